// SPDX-License-Identifier: Apache-2.0
//! Mounts and unmounts that several calls need.

use std::path::Path;
use std::time::Duration;

use cinder_cloud::VolumeId;
use csi_host::{Device, Host};

use crate::node_error::NodeError;

/// Unmounts what is at a place of a volume, unless that is another volume. Returns whether something was mounted there.
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
        // A disk that does not answer must not keep a pod from its end.
        Err(error) => {
            tracing::warn!(volume = volume_id, path = %path.display(), %error, "unmounting without that look");
        }
    }
    Ok(host.unmount(path).await?)
}

/// Takes the kernel's own flag off a device that an earlier read-only publish left on it. What the hypervisor wants
/// read-only stays so, and is an error.
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
