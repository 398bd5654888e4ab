// SPDX-License-Identifier: Apache-2.0
//! ControllerExpandVolume: expands a volume and returns its size in Cinder.

use cinder_cloud::{Cloud, GiB, Volume, VolumeId};
use csi_proto::csi::v1::{ControllerExpandVolumeRequest, ControllerExpandVolumeResponse};
use tonic::Status;

use super::{ControllerService, encode, follow, size};
use crate::capability::Access;
use crate::operations::{Deadline, Target};
use crate::status::CloudAction;
use crate::{fields, status};

/// A decoded request. Equal requests are one operation.
#[derive(Debug, Clone, Copy, PartialEq)]
struct DesiredExpansion {
    size: GiB,
    limit: Option<u64>,
    block: bool,
}

/// Expands a volume. `OK` means that Cinder reports the new size. A volume that is large enough costs one query.
pub(super) async fn expand(
    service: &ControllerService,
    request: ControllerExpandVolumeRequest,
    deadline: Deadline,
) -> Result<ControllerExpandVolumeResponse, Status> {
    let volume = VolumeId::new(fields::required("volume_id", &request.volume_id)?);
    let Some(range) = &request.capacity_range else {
        return Err(status::invalid("capacity_range", "it is required and missing"));
    };
    // Older sidecars do not send the capability.
    let access = request.volume_capability.as_ref();
    let access = access
        .map(|capability| Access::decode_existing("volume_capability", capability))
        .transpose()?;
    let desired = DesiredExpansion {
        size: size::size(Some(range))?,
        limit: size::limit(range),
        block: access.is_some_and(|access| access.block),
    };
    if !volume.is_uuid() {
        return Err(status::not_found("volume", volume.as_str()));
    }
    let target = Target::Volume(volume.to_string());
    service
        .operations
        .run("ControllerExpandVolume", target, desired, deadline, |progress| {
            let (clouds, secrets) = (service.clouds.clone(), request.secrets);
            async move {
                progress.set("looking for the volume's cloud");
                let Some(cloud) = clouds.cloud_of_volume(&volume, &secrets).await? else {
                    return Err(status::not_found("volume", volume.as_str()));
                };
                progress.set("growing the volume and waiting until the new size can be read back");
                follow(&progress, &cloud, volume.as_str());
                let grown = cloud.expand_volume(&volume, desired.size).await;
                let grown = grown.map_err(|error| status::from_cloud(CloudAction::Expand, &error))?;
                build_response(&cloud, desired, &grown)
            }
        })
        .await
}

fn build_response(
    cloud: &Cloud,
    desired: DesiredExpansion,
    grown: &Volume,
) -> Result<ControllerExpandVolumeResponse, Status> {
    if let Some(limit) = desired.limit.filter(|limit| grown.size.bytes() > *limit) {
        return Err(status::out_of_range(format_args!(
            "volume {} has {} already, which is more than the limit of {limit} bytes; volumes do not shrink",
            grown.id, grown.size
        )));
    }
    Ok(ControllerExpandVolumeResponse {
        capacity_bytes: encode::bytes(grown.size),
        // A file system must grow as well. For a raw block device, Nova notifies the guest, except in clouds where
        // devices must be rescanned.
        node_expansion_required: !desired.block || cloud.config().block_storage.rescan_on_resize,
    })
}
