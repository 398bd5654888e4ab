// SPDX-License-Identifier: Apache-2.0
//! NodeUnstageVolume: what was written is made durable, and the staging path is unmounted. It succeeds when nothing on this node uses
//! the device any more, for the volume is detached then.
//!
//! * A mount that this process sees always refuses it: pods write there.
//! * The staging directory is removed once it is unmounted. Linux takes all mounts off a directory that is removed, in every mount
//!   namespace, so that the copy of an agent with a namespace of its own ends at once. The kubelet expects a missing directory.
//! * Another user of the device, such as an agent with an open file or the device mapper, is waited for and then passed over. All
//!   that was written through the staging path is durable by then.
//! * A raw device is flushed and neither waited for nor claimed: nothing of it was ever mounted here.

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
    let path = service.place("staging_target_path", path)?;
    let unstage = Unstage {
        host: service.host.clone(),
        volume_id: volume_id.clone(),
        path: path.clone(),
        device_in_use_timeout: service.device_in_use_timeout,
    };
    let (known, metrics) = (service.known.clone(), service.metrics.clone());
    let work = |progress: Progress| async move {
        let in_use = unstage.run(&progress).await;
        if let Some(holders) = in_use.map_err(|error| status::node(&error))?
            && let Some(metrics) = metrics
        {
            metrics.unstaged_in_use(&holders);
        }
        known.forget(&unstage.volume_id);
        Ok(NodeUnstageVolumeResponse {})
    };
    service
        .operations
        .run("NodeUnstageVolume", Target::Volume(volume_id), path, deadline, work)
        .await
}

/// What NodeUnstageVolume is to do.
#[derive(Debug)]
struct Unstage {
    host: Host,
    volume_id: String,
    path: PathBuf,
    /// See [`crate::args::Args::device_in_use_timeout`].
    device_in_use_timeout: Duration,
}

impl Unstage {
    /// What still has the device, where the volume is unstaged all the same.
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
            // The disk was unplugged. A link that udev did not remove leads to another volume's disk.
            Err(DeviceError::NotFound { .. } | DeviceError::Stale { unidentified: None, .. }) => return Ok(None),
            // Nothing is known about the device, and it may be in use. A later look may find it.
            Err(error @ (DeviceError::NoAnswer(_) | DeviceError::Stale { .. } | DeviceError::Ambiguous { .. })) => {
                return Err(error.into());
            }
            // What cannot be told to be the volume is not held by it either; the mount, which was, is gone.
            Err(error) => {
                tracing::warn!(volume = self.volume_id, %error, "the volume is unstaged, but its device could not be looked at");
                return Ok(None);
            }
        };
        let layers = host.layers(&device).await.map_err(DeviceError::from)?;
        self.check_unpublished(&device, &layers).await?;
        let refuses = self.device_in_use_timeout.is_zero();
        if !was_mounted {
            // A raw device, whose last user flushes it only where no other layer has it; or an earlier call has unmounted it.
            progress.set("making durable what was written to the device");
            self.flush(&device).await?;
            let holders = host.holders(&device).await.map_err(DeviceError::from)?;
            match holders.first() {
                None | Some(Holder::Opening { .. }) => return Ok(None),
                Some(Holder::Layer(_)) => return Ok(Some(self.pass_over(&device, holders))),
                // The kubelet does not call again for a raw device whose directory is missing, so that this call must not fail then.
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
                Ok(Some(self.pass_over(&device, holders)))
            }
            idle => Ok(idle.map(|()| None)?),
        }
    }

    /// Removes the unmounted staging directory, and with it the mounts that other namespaces have there. The kubelet removes it
    /// otherwise, after this call.
    async fn remove_directory(&self) {
        if let Err(error) = self.host.remove_place(&self.path).await {
            tracing::warn!(volume = self.volume_id, %error, "the staging directory remains until the kubelet removes it");
        }
    }

    /// Whether something was mounted at the staging path; what was dirty there is durable then.
    async fn write_back(&self) -> Result<bool, NodeError> {
        match self.host.write_back(&self.path).await {
            // No later call could write more to a disk that was unplugged or refuses it.
            Err(error @ MountError::Place { .. }) => {
                tracing::warn!(volume = self.volume_id, %error, "the volume is unmounted, and what was not written back is lost");
                Ok(true)
            }
            written => Ok(written?),
        }
    }

    /// As [`Unstage::write_back`], of the device itself.
    async fn flush(&self, device: &Device) -> Result<(), NodeError> {
        match self.host.flush(device).await {
            Err(error @ DeviceError::Access { .. }) => {
                tracing::warn!(volume = self.volume_id, %error, "the device refuses a flush, and what was not written back is lost");
                Ok(())
            }
            flushed => Ok(flushed?),
        }
    }

    /// No mount that this process sees may be left, of the volume or of what is made of it.
    async fn check_unpublished(&self, device: &Device, layers: &[Layer]) -> Result<(), NodeError> {
        let mounts = self.host.mounts().await?;
        let shown = super::shown(&self.host, device, &mounts).await?;
        let of_layers = mounts
            .iter()
            .filter(|mount| layers.iter().any(|layer| layer.bears(mount)));
        let left = mounts.of_device(device).chain(shown).chain(of_layers).next();
        left.map_or(Ok(()), |mount| {
            Err(NodeError::StillPublished {
                volume_id: self.volume_id.clone(),
                path: mount.target.clone(),
            })
        })
    }

    /// Names what has the device while the volume is given up.
    fn pass_over(&self, device: &Device, holders: Holders) -> Holders {
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
