// SPDX-License-Identifier: Apache-2.0
//! NodeGetVolumeHealth and NodeGetStorageHealth: what is wrong with volumes on this node.

use std::path::PathBuf;
use std::time::Duration;

use csi_host::health::{Finding, Trouble};
use csi_host::{DeviceError, Host, MountTable};
use csi_proto::csi::v1::node_get_storage_health_response::StorageBackendHealth;
use csi_proto::csi::v1::volume_health::VolumeHealthEntry;
use csi_proto::csi::v1::{
    NodeGetStorageHealthRequest, NodeGetStorageHealthResponse, NodeGetVolumeHealthRequest, NodeGetVolumeHealthResponse,
    StorageHealthErrorType, VolumeHealth, VolumeHealthErrorType,
};
use futures::{StreamExt, stream};
use tonic::Status;

use super::volumes::NodeVolumes;
use super::{NodeService, fields};
use crate::node_error::NodeError;
use crate::operations::Deadline;
use crate::status;

/// How many volumes are examined at once. Each takes milliseconds unless it hangs, and then it holds one thread.
const AT_ONCE: usize = 16;
/// How many volumes a message names; the others are counted.
const NAMED: usize = 5;
/// Of one volume. Asked as well for one that failed to be staged or published.
pub(super) async fn volume(
    service: &NodeService,
    request: NodeGetVolumeHealthRequest,
    _deadline: Deadline,
) -> Result<NodeGetVolumeHealthResponse, Status> {
    let volume_id = fields::volume_id(&request.volume_id)?;
    let mut paths = Vec::new();
    for (field, value) in [
        ("volume_publish_path", &request.volume_publish_path),
        ("staging_target_path", &request.staging_target_path),
    ] {
        if !value.is_empty() {
            paths.push(fields::path(field, value)?);
        }
    }
    let findings = examine(&service.host, &service.known, &volume_id, &paths)
        .await
        .map_err(|error| status::node(&error))?;
    service.known.saw(&volume_id, &paths);
    Ok(NodeGetVolumeHealthResponse {
        volume_health: Some(VolumeHealth {
            volume_id,
            health_statuses: findings.into_iter().map(entry).collect(),
        }),
    })
}

/// Of all volumes that are known to be on this node.
pub(super) async fn storage(
    service: &NodeService,
    _request: NodeGetStorageHealthRequest,
    _deadline: Deadline,
) -> Result<NodeGetStorageHealthResponse, Status> {
    let examined = stream::iter(service.known.ids())
        .map(|volume_id| async move {
            let findings = examine(&service.host, &service.known, &volume_id, &[]).await;
            (volume_id, findings)
        })
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    let mut volumes = 0;
    let mut inaccessible = Vec::new();
    for (volume_id, findings) in examined {
        match findings {
            Ok(findings) => {
                volumes += 1;
                let worst = findings
                    .into_iter()
                    .find(|finding| severity(finding.trouble) == VolumeHealthErrorType::Inaccessible);
                inaccessible.extend(worst.map(|finding| format!("{volume_id} ({})", reason(finding.trouble))));
            }
            // Detached in the meantime.
            Err(NodeError::Device(DeviceError::NotFound { .. })) => service.known.forget(&volume_id),
            // It cannot be told apart from another, which the calls about that volume say; here it counts as here.
            Err(error) => {
                tracing::debug!(volume = volume_id, %error, "the volume cannot be examined");
                volumes += 1;
            }
        }
    }
    inaccessible.sort_unstable();
    Ok(NodeGetStorageHealthResponse {
        backend_health: backend(volumes, &inaccessible).into_iter().collect(),
    })
}

fn backend(volumes: usize, inaccessible: &[String]) -> Option<StorageBackendHealth> {
    if inaccessible.is_empty() {
        return None;
    }
    let (status, reason) = if inaccessible.len() == volumes {
        (StorageHealthErrorType::StorageUnreachable, "AllVolumesInaccessible")
    } else {
        (StorageHealthErrorType::StorageDegraded, "SomeVolumesInaccessible")
    };
    let named = inaccessible.get(..NAMED.min(inaccessible.len())).unwrap_or_default();
    let more = match inaccessible.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(StorageBackendHealth {
        status: status.into(),
        reason: reason.into(),
        message: format!(
            "{} of {volumes} volumes on this node cannot be accessed: {}{more}; see the kernel's log of the node",
            inaccessible.len(),
            named.join(", ")
        ),
        volume_capability: None,
    })
}

async fn examine(
    host: &Host,
    known: &NodeVolumes,
    volume_id: &str,
    paths: &[PathBuf],
) -> Result<Vec<Finding>, NodeError> {
    let mounts = host.mounts().await?;
    let before = known.paths(volume_id);
    let places: Vec<&PathBuf> = paths.iter().chain(before.iter().flatten()).collect();
    let device = match host.find_device(volume_id, None, Duration::ZERO).await {
        Ok(device) => device,
        Err(error @ DeviceError::NotFound { .. }) => {
            return if is_mounted(host, &mounts, &places).await? {
                Ok(vec![gone(error.to_string())])
            } else {
                Err(error.into())
            };
        }
        Err(error @ DeviceError::NoSize { .. }) => return Ok(vec![gone(error.to_string())]),
        Err(DeviceError::NoAnswer(error)) if error.is_hang() => {
            return Ok(vec![Finding {
                trouble: Trouble::ReadTimedOut,
                message: error.to_string(),
            }]);
        }
        Err(error) => return Err(error.into()),
    };
    let mut findings = host.examine(&device, &mounts).await;
    for path in places {
        let place = host.resolve(path).await?;
        if let Some(mount) = mounts.at(&place)
            && mount.device.0 != 0
            && !mount.is_of(&device)
            && !host.has_device(mount.device).await.map_err(DeviceError::from)?
            && findings.iter().all(|finding| finding.trouble != Trouble::DeviceGone)
        {
            findings.push(gone(format!(
                "{} shows {}, a disk that is gone, although the volume is attached as {}: end the pods that use it",
                path.display(),
                mount.source.display(),
                device.path.display()
            )));
        }
    }
    Ok(findings)
}

fn gone(message: String) -> Finding {
    Finding {
        trouble: Trouble::DeviceGone,
        message,
    }
}

async fn is_mounted(host: &Host, mounts: &MountTable, paths: &[&PathBuf]) -> Result<bool, NodeError> {
    for path in paths {
        if mounts.at(&host.resolve(path).await?).is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn entry(finding: Finding) -> VolumeHealthEntry {
    VolumeHealthEntry {
        status: severity(finding.trouble).into(),
        reason: reason(finding.trouble).into(),
        message: finding.message,
    }
}

fn severity(trouble: Trouble) -> VolumeHealthErrorType {
    match trouble {
        Trouble::FilesystemErrors => VolumeHealthErrorType::Degraded,
        Trouble::ReadOnlyByKernel
        | Trouble::FilesystemShutDown
        | Trouble::DeviceGone
        | Trouble::ReadError
        | Trouble::ReadTimedOut => VolumeHealthErrorType::Inaccessible,
        Trouble::DeviceShrunk => VolumeHealthErrorType::DataLoss,
    }
}

fn reason(trouble: Trouble) -> &'static str {
    match trouble {
        Trouble::ReadOnlyByKernel => "ReadOnlyByKernel",
        Trouble::FilesystemErrors => "FilesystemErrors",
        Trouble::FilesystemShutDown => "FilesystemShutDown",
        Trouble::DeviceGone => "DeviceGone",
        Trouble::ReadError => "ReadError",
        Trouble::ReadTimedOut => "ReadTimedOut",
        Trouble::DeviceShrunk => "DeviceShrunk",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_storage_is_unreachable_when_every_volume_is_and_degraded_when_some_are() {
        let lost: Vec<String> = (0..7).map(|index| format!("volume-{index} (ReadTimedOut)")).collect();
        assert_eq!(backend(3, &[]), None);
        let all = backend(7, &lost).expect("it is in trouble");
        assert_eq!(all.status(), StorageHealthErrorType::StorageUnreachable);
        assert!(
            all.message.contains("volume-0") && all.message.contains("and 2 more"),
            "{}",
            all.message
        );
        let some = backend(8, &lost).expect("it is in trouble");
        assert_eq!(some.status(), StorageHealthErrorType::StorageDegraded);
    }
}
