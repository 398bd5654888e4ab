// SPDX-License-Identifier: Apache-2.0
//! NodeGetVolumeHealth and NodeGetStorageHealth: problems of volumes on this node.

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

use super::volumes::VolumeCache;
use super::{NodeService, fields};
use crate::node_error::NodeError;
use crate::operations::Deadline;
use crate::status;

/// The number of volumes that are examined in parallel. Each takes milliseconds, or occupies one thread if it hangs.
const AT_ONCE: usize = 16;
/// The maximum number of volumes in a message. The others are counted.
const NAMED: usize = 5;
/// Returns the health of one volume. The kubelet also calls it for a volume whose stage or publish failed.
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
    let findings = examine(&service.host, &service.cache, &volume_id, &paths)
        .await
        .map_err(|error| status::from_node(&error))?;
    service.cache.record_paths(&volume_id, &paths);
    Ok(NodeGetVolumeHealthResponse {
        volume_health: Some(VolumeHealth {
            volume_id,
            health_statuses: findings.into_iter().map(entry).collect(),
        }),
    })
}

/// Returns the health of all known volumes on this node.
pub(super) async fn storage(
    service: &NodeService,
    _request: NodeGetStorageHealthRequest,
    _deadline: Deadline,
) -> Result<NodeGetStorageHealthResponse, Status> {
    let examined = stream::iter(service.cache.ids())
        .map(|volume_id| async move {
            let findings = examine(&service.host, &service.cache, &volume_id, &[]).await;
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
            // The volume was detached in the meantime.
            Err(NodeError::Device(DeviceError::NotFound { .. })) => service.cache.remove_volume(&volume_id),
            // The device is ambiguous, which calls for that volume report. The volume still counts as present.
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
    cache: &VolumeCache,
    volume_id: &str,
    paths: &[PathBuf],
) -> Result<Vec<Finding>, NodeError> {
    let mounts = host.mounts().await?;
    let cached_paths = cache.paths(volume_id);
    let places: Vec<&PathBuf> = paths.iter().chain(cached_paths.iter().flatten()).collect();
    let device = match host.find_device(volume_id, None, Duration::ZERO).await {
        Ok(device) => device,
        Err(error @ DeviceError::NotFound { .. }) => {
            return if is_mounted(host, &mounts, &places).await? {
                Ok(vec![device_gone(error.to_string())])
            } else {
                Err(error.into())
            };
        }
        Err(error @ DeviceError::NoSize { .. }) => return Ok(vec![device_gone(error.to_string())]),
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
            findings.push(device_gone(format!(
                "{} shows {}, a disk that is gone, although the volume is attached as {}: end the pods that use it",
                path.display(),
                mount.source.display(),
                device.path.display()
            )));
        }
    }
    Ok(findings)
}

fn device_gone(message: String) -> Finding {
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
    fn storage_health_depends_on_share_of_inaccessible_volumes() {
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
