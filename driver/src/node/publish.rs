// SPDX-License-Identifier: Apache-2.0
//! NodePublishVolume and NodeUnpublishVolume: mount a staged volume at the path of a pod, and unmount it.
//!
//! `SINGLE_NODE_SINGLE_WRITER` allows one target on this node. `SINGLE_NODE_READER_ONLY` is refused while the volume is
//! published writable at another target. `SINGLE_NODE_WRITER` allows several targets, because Kubernetes shares a
//! ReadWriteOnce volume between the pods of a node in this way.

use std::path::PathBuf;

use csi_host::mount::MountPointKind;
use csi_host::{Device, DeviceError, Host, Mount, MountOptions, MountTable};
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::{
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
};
use tonic::Status;

use super::NodeService;
use super::fields::{self, NodeCapability, VolumeUse};
use crate::node_error::NodeError;
use crate::operations::{Deadline, Progress, Target};
use crate::timing::TIMING;
use crate::{parameters, status};

/// A decoded request.
#[derive(Debug, Clone, PartialEq)]
struct PublishRequest {
    volume_id: String,
    staging: PathBuf,
    target: PathBuf,
    requested: NodeCapability,
    read_only: bool,
}

pub(super) async fn publish(
    service: &NodeService,
    request: NodePublishVolumeRequest,
    deadline: Deadline,
) -> Result<NodePublishVolumeResponse, Status> {
    let volume_id = fields::volume_uuid(&request.volume_id)?;
    let target = fields::path("target_path", &request.target_path)?;
    let requested = fields::capability(request.volume_capability.as_ref())?;
    let target = service.check_mount_point("target_path", target)?;
    if request.staging_target_path.is_empty() {
        // By the specification, a missing staging path is an error of sequence, not of form.
        return Err(status::not_staged(
            "staging_target_path is missing: NodeStageVolume has to come first",
        ));
    }
    let staging = fields::path("staging_target_path", &request.staging_target_path)?;
    let staging = service.check_mount_point("staging_target_path", staging)?;
    let attached_read_only = request
        .publish_context
        .get(parameters::PUBLISH_READONLY)
        .is_some_and(|value| value == "true");
    let read_only = request.readonly || attached_read_only || requested.reads_only();
    let publish = PublishRequest {
        volume_id: volume_id.clone(),
        staging,
        target,
        requested,
        read_only,
    };
    let (host, cache) = (service.host.clone(), service.cache.clone());
    let work = |progress: Progress| {
        let publish = publish.clone();
        async move {
            if let Err(error) = publish.run(&host, &progress).await {
                return Err(super::failure_status(&host, &publish.target, &error).await);
            }
            cache.record_publish(&publish.volume_id, &publish.staging, &publish.target);
            Ok(NodePublishVolumeResponse {})
        }
    };
    service
        .operations
        .run(
            "NodePublishVolume",
            Target::Volume(volume_id),
            publish.clone(),
            deadline,
            work,
        )
        .await
}

impl PublishRequest {
    async fn run(&self, host: &Host, progress: &Progress) -> Result<(), NodeError> {
        progress.set("looking for the device");
        let device = host
            .find_device(&self.volume_id, None, TIMING.staged_device_wait)
            .await?;
        let mounts = host.mounts().await?;
        progress.set("binding the volume to the target");
        match &self.requested.usage {
            VolumeUse::Block => self.publish_block(host, &device, &mounts).await,
            VolumeUse::Filesystem(_, options) => self.publish_filesystem(host, &device, &mounts, options).await,
        }
    }

    async fn publish_filesystem(
        &self,
        host: &Host,
        device: &Device,
        mounts: &MountTable,
        options: &MountOptions,
    ) -> Result<(), NodeError> {
        let staging = host.resolve(&self.staging).await?;
        let target = host.resolve(&self.target).await?;
        let not_staged = || NodeError::NotStaged {
            volume_id: self.volume_id.clone(),
            path: self.staging.clone(),
        };
        let staged = mounts
            .at(&staging)
            .filter(|mount| mount.is_of(device))
            .ok_or_else(not_staged)?;
        if let Some(mount) = mounts.at(&target) {
            return self.check_published(mount, mount.is_of(device) && mount.root == staged.root);
        }
        let others: Vec<&Mount> = mounts
            .of_device(device)
            .filter(|mount| mount.root == staged.root && mount.target != staging)
            .collect();
        self.check_alone(&others)?;
        let mut options = options.clone().of_the_mount_alone();
        if self.read_only {
            options = options.read_only();
        }
        // A bind mount inherits the options of the staged mount, so only missing options are passed.
        let options = if options.are_met_by(staged) {
            MountOptions::default()
        } else {
            options
        };
        self.bind(host, &staging, &target, MountPointKind::Directory, 0o750, &options)
            .await
    }

    async fn publish_block(&self, host: &Host, device: &Device, mounts: &MountTable) -> Result<(), NodeError> {
        let target = host.resolve(&self.target).await?;
        if let Some(mount) = mounts.at(&target) {
            let same = host.device_number(&target).await? == Some(device.number);
            return self.check_published(mount, same);
        }
        // The device is used by name from here on.
        let _pinned = host.pin(device).await?;
        let actual = host.device_number(&device.path).await?;
        if actual != Some(device.number) {
            return Err(NodeError::Device(DeviceError::WrongNode {
                path: device.path.clone(),
                name: device.name.clone(),
                expected: device.number,
                actual: actual.unwrap_or_default(),
            }));
        }
        let others = super::device_mounts(host, device, mounts).await?;
        self.check_alone(&others)?;
        let options = if self.read_only {
            self.protect(host, device, &others).await?;
            // The option does not prevent writes. It records for the next call how the volume was published.
            MountOptions::default().read_only()
        } else {
            if device.read_only {
                super::make_writable(host, device).await?;
            }
            MountOptions::default()
        };
        self.bind(host, &device.path, &target, MountPointKind::File, 0o640, &options)
            .await
    }

    /// Sets the kernel's read-only flag of the device, unless the volume is published writable at another target of
    /// this node.
    ///
    /// The flag applies to the device, not to a target. In the other case, only the device rules of the container
    /// runtime, which the kubelet configures, prevent writes by this pod.
    async fn protect(&self, host: &Host, device: &Device, others: &[&Mount]) -> Result<(), NodeError> {
        if let Some(writer) = others.iter().find(|mount| !mount.was_mounted_read_only()) {
            tracing::warn!(
                volume = self.volume_id,
                target_path = %self.target.display(),
                writable_at = %writer.target.display(),
                "the device stays writable, because it is published so at another place of this node"
            );
            return Ok(());
        }
        if device.read_only {
            return Ok(());
        }
        Ok(host.set_read_only(device, true).await?)
    }

    async fn bind(
        &self,
        host: &Host,
        from: &std::path::Path,
        target: &std::path::Path,
        place: MountPointKind,
        mode: u32,
        options: &MountOptions,
    ) -> Result<(), NodeError> {
        let created = host.create_place(target, place, mode).await?;
        if let Err(error) = host.bind(from, target, place, options).await {
            if created && let Err(failure) = host.remove_place(target).await {
                tracing::warn!(volume = self.volume_id, error = %failure, "the target of a failed publish is left");
            }
            return Err(error.into());
        }
        tracing::info!(volume = self.volume_id, target_path = %target.display(), read_only = self.read_only, "published");
        Ok(())
    }

    /// Accepts an existing mount at the target if it is this volume with the requested access.
    fn check_published(&self, mount: &Mount, is_the_volume: bool) -> Result<(), NodeError> {
        if is_the_volume && mount.was_mounted_read_only() == self.read_only {
            return Ok(());
        }
        let found = match (is_the_volume, mount.was_mounted_read_only()) {
            (true, true) => "the volume read-only".to_owned(),
            (true, false) => "the volume writable".to_owned(),
            (false, _) => mount.source.display().to_string(),
        };
        Err(NodeError::PublishedDifferently {
            volume_id: self.volume_id.clone(),
            path: self.target.clone(),
            found,
            wanted: if self.read_only { "read-only" } else { "writable" },
        })
    }

    fn check_alone(&self, others: &[&Mount]) -> Result<(), NodeError> {
        let conflict = match self.requested.mode {
            Mode::SingleNodeSingleWriter => others.first(),
            Mode::SingleNodeReaderOnly => others.iter().find(|mount| !mount.was_mounted_read_only()),
            _ => None,
        };
        conflict.map_or(Ok(()), |mount| {
            Err(NodeError::PublishedElsewhere {
                volume_id: self.volume_id.clone(),
                path: mount.target.clone(),
            })
        })
    }
}

/// Removes anything at the target: a bind mount, several stacked by an earlier driver, or an empty directory. Succeeds
/// if the target is missing.
///
/// The id may have any form, because inline volumes of Go drivers up to 1.30 have handles that are not ids of Cinder.
pub(super) async fn unpublish(
    service: &NodeService,
    request: NodeUnpublishVolumeRequest,
    deadline: Deadline,
) -> Result<NodeUnpublishVolumeResponse, Status> {
    let volume_id = fields::volume_id(&request.volume_id)?;
    let path = fields::path("target_path", &request.target_path)?;
    let target = service.check_mount_point("target_path", path)?;
    let (host, cache, volume) = (service.host.clone(), service.cache.clone(), volume_id.clone());
    let published_at = target.clone();
    let work = |progress: Progress| async move {
        progress.set("unmounting the target");
        let released = async {
            super::unmount(&host, &published_at, &volume).await?;
            Ok(host.remove_place(&published_at).await?)
        };
        released.await.map_err(|error| status::from_node(&error))?;
        cache.remove_path(&volume, &published_at);
        Ok(NodeUnpublishVolumeResponse {})
    };
    service
        .operations
        .run("NodeUnpublishVolume", Target::Volume(volume_id), target, deadline, work)
        .await
}
