// SPDX-License-Identifier: Apache-2.0
//! NodeGetVolumeStats: the usage of a volume.

use std::time::Duration;

use csi_proto::csi::v1::volume_usage::Unit;
use csi_proto::csi::v1::{NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, VolumeUsage};
use tonic::Status;

use super::{NodeService, fields};
use crate::node_error::NodeError;
use crate::operations::Deadline;
use crate::status;

/// Queries the kernel for the usage.
///
/// The volume must be mounted or bound at the path. Below an unmounted directory, the figures would be those of the
/// node.
pub(super) async fn stats(
    service: &NodeService,
    request: NodeGetVolumeStatsRequest,
    _deadline: Deadline,
) -> Result<NodeGetVolumeStatsResponse, Status> {
    let volume_id = fields::volume_id(&request.volume_id)?;
    let path = fields::path("volume_path", &request.volume_path)?;
    let usage = query_usage(service, volume_id.clone(), path.clone())
        .await
        .map_err(|error| status::from_node(&error))?;
    service.cache.record_usage(&volume_id, &path);
    Ok(NodeGetVolumeStatsResponse { usage })
}

async fn query_usage(
    service: &NodeService,
    volume_id: String,
    path: std::path::PathBuf,
) -> Result<Vec<VolumeUsage>, NodeError> {
    let host = &service.host;
    let device = host.find_device(&volume_id, None, Duration::ZERO).await?;
    let place = host.resolve(&path).await?;
    let mounts = host.mounts().await?;
    match mounts.at(&place) {
        Some(mount) if mount.is_of(&device) => {
            let usage = host.usage(&place).await?;
            Ok(vec![
                figures(Unit::Bytes, usage.bytes_total, usage.bytes_used, usage.bytes_available),
                figures(Unit::Inodes, usage.inodes_total, usage.inodes_used, usage.inodes_free),
            ])
        }
        Some(_) if host.device_number(&place).await? == Some(device.number) => {
            let total = host.block_size(&place).await?;
            Ok(vec![VolumeUsage {
                total: signed(total),
                unit: Unit::Bytes.into(),
                ..VolumeUsage::default()
            }])
        }
        _ => Err(NodeError::NotThere { volume_id, path }),
    }
}

fn figures(unit: Unit, total: u64, used: u64, available: u64) -> VolumeUsage {
    VolumeUsage {
        total: signed(total),
        used: signed(used),
        available: signed(available),
        unit: unit.into(),
    }
}

fn signed(figure: u64) -> i64 {
    i64::try_from(figure).unwrap_or(i64::MAX)
}
