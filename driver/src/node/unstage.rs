// SPDX-License-Identifier: Apache-2.0
//! NodeUnstageVolume: flushes the volume and unmounts the staging path.
//!
//! It succeeds when nothing on this node uses the device any more, because the volume is detached afterwards.
//!
//! * A mount that this process sees always causes a refusal, because pods may write there.
//! * The staging directory is removed after the unmount. When a directory is removed, Linux removes its mounts from
//!   every mount namespace, including copies in the namespace of an agent. The kubelet accepts a missing directory.
//! * The driver waits for other users of the device, such as the device mapper or an agent with an open file. After a
//!   timeout, it ignores them. All data that was written through the staging path is durable by then.
//! * A raw device is flushed. The driver does not wait for its users, because it was never mounted here.

use std::path::PathBuf;
use std::time::Duration;

use csi_host::device::{Holder, Holders, Layer};
use csi_host::{Device, DeviceError, Host, MountError};
use csi_proto::csi::v1::{NodeUnstageVolumeRequest, NodeUnstageVolumeResponse};
use tonic::Status;

use super::{NodeService, fields};
use crate::node_error::NodeError;
use crate::operations::{Deadline, Progress, Target};
use crate::status;
use crate::timing::TIMING;

pub(super) async fn unstage(
    service: &NodeService,
    request: NodeUnstageVolumeRequest,
    deadline: Deadline,
) -> Result<NodeUnstageVolumeResponse, Status> {
    let volume_id = fields::volume_uuid(&request.volume_id)?;
    let path = fields::path("staging_target_path", &request.staging_target_path)?;
    let path = service.check_mount_point("staging_target_path", path)?;
    let unstage = UnstageRequest {
        host: service.host.clone(),
        volume_id: volume_id.clone(),
        path: path.clone(),
        device_in_use_timeout: service.device_in_use_timeout,
    };
    let (cache, metrics) = (service.cache.clone(), service.metrics.clone());
    let work = |progress: Progress| async move {
        let in_use = unstage.run(&progress).await;
        if let Some(holders) = in_use.map_err(|error| status::from_node(&error))?
            && let Some(metrics) = metrics
        {
            metrics.unstaged_in_use(&holders);
        }
        cache.remove_volume(&unstage.volume_id);
        Ok(NodeUnstageVolumeResponse {})
    };
    service
        .operations
        .run("NodeUnstageVolume", Target::Volume(volume_id), path, deadline, work)
        .await
}

/// A decoded request.
#[derive(Debug)]
struct UnstageRequest {
    host: Host,
    volume_id: String,
    path: PathBuf,
    /// See [`crate::args::Args::device_in_use_timeout`].
    device_in_use_timeout: Duration,
}

impl UnstageRequest {
    /// Unstages the volume. Returns the remaining users of the device if there are any.
    async fn run(&self, progress: &Progress) -> Result<Option<Holders>, NodeError> {
        let host = &self.host;
        progress.set("writing back what is dirty in the file system");
        let was_mounted = self.write_back().await?;
        progress.set("unmounting the file system");
        let was_unmounted = super::unmount(host, &self.path, &self.volume_id).await?;
        if was_unmounted {
            self.remove_directory().await;
        }
        let device = match host.find_device(&self.volume_id, None, Duration::ZERO).await {
            Ok(device) => device,
            // The disk was unplugged. A link that udev did not remove leads to the disk of another volume.
            Err(DeviceError::NotFound { .. } | DeviceError::Stale { unidentified: None, .. }) => return Ok(None),
            // The state of the device is unknown, and it may be in use. A retry may find it.
            Err(error @ (DeviceError::NoAnswer(_) | DeviceError::Stale { .. } | DeviceError::Ambiguous { .. })) => {
                return Err(error.into());
            }
            // The device cannot be identified as the volume, so it does not block the unstaging. The mount has been
            // removed.
            Err(error) => {
                tracing::warn!(volume = self.volume_id, %error, "the volume is unstaged, but its device could not be looked at");
                return Ok(None);
            }
        };
        let layers = host.layers(&device).await.map_err(DeviceError::from)?;
        self.check_unpublished(&device, &layers).await?;
        let refuses = self.device_in_use_timeout.is_zero();
        if !was_mounted {
            // It is a raw device, or an earlier call unmounted it. The last user of a raw device flushes it only if no
            // other layer uses it.
            progress.set("making durable what was written to the device");
            self.flush(&device).await?;
            let holders = host.holders(&device).await.map_err(DeviceError::from)?;
            match holders.first() {
                None | Some(Holder::Opening { .. }) => return Ok(None),
                Some(Holder::Layer(_)) => return Ok(Some(self.log_holders(&device, holders))),
                // The kubelet does not retry for a raw device whose directory is missing, so this call must not fail in
                // that case.
                Some(_) if holders.has_filesystem() && !refuses => self.remove_directory().await,
                Some(_) => {}
            }
        }
        progress.set("waiting until the device is no longer in use");
        let limit = if refuses {
            TIMING.device_idle_wait
        } else {
            self.device_in_use_timeout
        };
        match host.wait_until_idle(&device, limit).await {
            Err(DeviceError::Busy { path, .. }) if refuses => {
                let holder = host.holders(&device).await.unwrap_or_default().to_string();
                Err(DeviceError::Busy { path, holder }.into())
            }
            Err(DeviceError::Busy { .. }) => {
                let layers = host.layers(&device).await.map_err(DeviceError::from)?;
                self.check_unpublished(&device, &layers).await?;
                let holders = host.holders(&device).await.unwrap_or_default();
                Ok(Some(self.log_holders(&device, holders)))
            }
            idle => Ok(idle.map(|()| None)?),
        }
    }

    /// Removes the unmounted staging directory, and with it the mounts of other namespaces there.
    ///
    /// If this fails, the kubelet removes it after this call.
    async fn remove_directory(&self) {
        if let Err(error) = self.host.remove_place(&self.path).await {
            tracing::warn!(volume = self.volume_id, %error, "the staging directory remains until the kubelet removes it");
        }
    }

    /// Flushes the file system at the staging path. Returns whether something was mounted there.
    async fn write_back(&self) -> Result<bool, NodeError> {
        match self.host.write_back(&self.path).await {
            // A later call could not write to a disk that was unplugged or refuses writes.
            Err(error @ MountError::Place { .. }) => {
                tracing::warn!(volume = self.volume_id, %error, "the volume is unmounted, and what was not written back is lost");
                Ok(true)
            }
            written => Ok(written?),
        }
    }

    /// Like [`UnstageRequest::write_back`], for the device itself.
    async fn flush(&self, device: &Device) -> Result<(), NodeError> {
        match self.host.flush(device).await {
            Err(error @ DeviceError::Access { .. }) => {
                tracing::warn!(volume = self.volume_id, %error, "the device refuses a flush, and what was not written back is lost");
                Ok(())
            }
            flushed => Ok(flushed?),
        }
    }

    /// Refuses while this process sees a mount of the volume or of a layer on it.
    async fn check_unpublished(&self, device: &Device, layers: &[Layer]) -> Result<(), NodeError> {
        let mounts = self.host.mounts().await?;
        let device_mounts = super::device_mounts(&self.host, device, &mounts).await?;
        let of_layers = mounts
            .iter()
            .filter(|mount| layers.iter().any(|layer| layer.bears(mount)));
        let remaining = mounts.of_device(device).chain(device_mounts).chain(of_layers).next();
        remaining.map_or(Ok(()), |mount| {
            Err(NodeError::StillPublished {
                volume_id: self.volume_id.clone(),
                path: mount.target.clone(),
            })
        })
    }

    /// Logs the users of the device while the volume is released.
    fn log_holders(&self, device: &Device, holders: Holders) -> Holders {
        tracing::warn!(
            volume = self.volume_id,
            device = %device.path.display(),
            %holders,
            "the volume is unstaged although its device is in use: if the volume is detached from this node, its users get \
             input/output errors"
        );
        holders
    }
}
