// SPDX-License-Identifier: Apache-2.0
//! Mounts and unmounts that several calls need.

use std::path::Path;
use std::time::Duration;

use cinder_cloud::VolumeId;
use csi_host::{Device, Host};

use crate::node_error::NodeError;

/// Unmounts a volume from a path, unless another volume is mounted there. Returns whether something was mounted.
pub(super) async fn unmount(host: &Host, path: &Path, volume_id: &str) -> Result<bool, NodeError> {
    if !VolumeId::new(volume_id).is_uuid() {
        // An inline volume of an older Go driver. Its handle is not the id of its Cinder volume.
        tracing::warn!(
            volume = volume_id,
            path = %path.display(),
            "unmounting an inline volume; its volume in Cinder has to be detached and deleted by hand"
        );
        return Ok(host.unmount(path).await?);
    }
    match host.other_volume_at(path, volume_id).await {
        Ok(None) => {}
        Ok(Some(serial)) => {
            return Err(NodeError::OtherVolume {
                volume_id: volume_id.to_owned(),
                path: path.to_owned(),
                serial,
            });
        }
        // A disk that does not respond must not prevent a pod from ending.
        Err(error) => {
            tracing::warn!(volume = volume_id, path = %path.display(), %error, "unmounting without that look");
        }
    }
    Ok(host.unmount(path).await?)
}

/// Clears the kernel's read-only flag, which an earlier read-only publish may have set.
///
/// Fails if the device remains read-only, because the hypervisor set it so.
pub(super) async fn make_writable(host: &Host, device: &Device) -> Result<Device, NodeError> {
    host.set_read_only(device, false).await?;
    let device = host.find_device(&device.volume_id, None, Duration::ZERO).await?;
    if device.read_only {
        return Err(NodeError::ReadOnlyDevice {
            volume_id: device.volume_id,
            device: device.path,
        });
    }
    Ok(device)
}
