// SPDX-License-Identifier: Apache-2.0
//! NodePublishVolume and NodeUnpublishVolume: a staged volume is shown at a pod's path.
//!
//! A second target on this node is refused where the access mode says that one is all (`SINGLE_NODE_SINGLE_WRITER`), and
//! where a reader asked to be the only one and somebody writes (`SINGLE_NODE_READER_ONLY`). `SINGLE_NODE_WRITER` may have
//! several: that is how Kubernetes shares a ReadWriteOnce volume between the pods of a node.

use std::path::PathBuf;

use csi_host::mount::Place;
use csi_host::{Device, DeviceError, Host, Mount, MountOptions, MountTable};
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::{
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
};
use tonic::Status;

use super::NodeService;
use super::fields::{self, NodeCapability, Use};
use crate::node_error::NodeError;
use crate::operations::{Deadline, Progress, Target};
use crate::timing::TIMING;
use crate::{parameters, status};

/// What NodePublishVolume is to do.
#[derive(Debug, Clone, PartialEq)]
struct PublishRequest {
    volume_id: String,
    staging: PathBuf,
    target: PathBuf,
    wanted: NodeCapability,
    read_only: bool,
}

pub(super) async fn publish(
    service: &NodeService,
    request: NodePublishVolumeRequest,
    deadline: Deadline,
) -> Result<NodePublishVolumeResponse, Status> {
    let volume_id = fields::volume_uuid(&request.volume_id)?;
    let target = fields::path("target_path", &request.target_path)?;
    let wanted = fields::capability(request.volume_capability.as_ref())?;
    let target = service.place("target_path", target)?;
    if request.staging_target_path.is_empty() {
        // The specification makes a missing staging path a matter of order, not of form.
        return Err(status::not_staged(
            "staging_target_path is missing: NodeStageVolume has to come first",
        ));
    }
    let staging = fields::path("staging_target_path", &request.staging_target_path)?;
    let staging = service.place("staging_target_path", staging)?;
    let attached_read_only = request
        .publish_context
        .get(parameters::PUBLISH_READONLY)
        .is_some_and(|value| value == "true");
    let read_only = request.readonly || attached_read_only || wanted.reads_only();
    let publish = PublishRequest {
        volume_id: volume_id.clone(),
        staging,
        target,
        wanted,
        read_only,
    };
    let (host, known) = (service.host.clone(), service.known.clone());
    let work = |progress: Progress| {
        let publish = publish.clone();
        async move {
            if let Err(error) = publish.run(&host, &progress).await {
                return Err(super::failed(&host, &publish.target, &error).await);
            }
            known.published(&publish.volume_id, &publish.staging, &publish.target);
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
        match &self.wanted.usage {
            Use::Block => self.block(host, &device, &mounts).await,
            Use::Filesystem(_, options) => self.filesystem(host, &device, &mounts, options).await,
        }
    }

    async fn filesystem(
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
        // A bind inherits the options of the staged mount; only what it lacks has to be asked for.
        let options = if options.are_met_by(staged) {
            MountOptions::default()
        } else {
            options
        };
        self.bind(host, &staging, &target, Place::Directory, 0o750, &options)
            .await
    }

    async fn block(&self, host: &Host, device: &Device, mounts: &MountTable) -> Result<(), NodeError> {
        let target = host.resolve(&self.target).await?;
        if let Some(mount) = mounts.at(&target) {
            let same = host.device_number(&target).await? == Some(device.number);
            return self.check_published(mount, same);
        }
        // From here on things are done to it by name.
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
        let others = super::shown(host, device, mounts).await?;
        self.check_alone(&others)?;
        let options = if self.read_only {
            self.protect(host, device, &others).await?;
            // It keeps nobody from writing, and tells the next call how the volume was published.
            MountOptions::default().read_only()
        } else {
            if device.read_only {
                super::make_writable(host, device).await?;
            }
            MountOptions::default()
        };
        self.bind(host, &device.path, &target, Place::File, 0o640, &options)
            .await
    }

    /// Lets the kernel refuse writes to the whole device, unless it is published writable at another place of this node:
    /// the flag is the device's and not the place's, and then only the container runtime's rules for devices, which the
    /// kubelet gives it, keep this pod from writing.
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
        place: Place,
        mode: u32,
        options: &MountOptions,
    ) -> Result<(), NodeError> {
        let created = host.create_place(target, place, mode).await?;
        if let Err(error) = host.bind(from, target, place, options).await {
            if created && let Err(left) = host.remove_place(target).await {
                tracing::warn!(volume = self.volume_id, error = %left, "the target of a failed publish is left");
            }
            return Err(error.into());
        }
        tracing::info!(volume = self.volume_id, target_path = %target.display(), read_only = self.read_only, "published");
        Ok(())
    }

    /// A target that has something mounted serves if it is this volume, as writable as asked.
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
        let conflict = match self.wanted.mode {
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

/// Whatever is at the target is removed: a bind mount, several that an earlier driver stacked, an empty directory, nothing. The id may be of
/// any form: inline volumes of Go drivers up to 1.30 have handles that are not ids of Cinder.
pub(super) async fn unpublish(
    service: &NodeService,
    request: NodeUnpublishVolumeRequest,
    deadline: Deadline,
) -> Result<NodeUnpublishVolumeResponse, Status> {
    let volume_id = fields::volume_id(&request.volume_id)?;
    let path = fields::path("target_path", &request.target_path)?;
    let target = service.place("target_path", path)?;
    let (host, known, volume) = (service.host.clone(), service.known.clone(), volume_id.clone());
    let published_at = target.clone();
    let work = |progress: Progress| async move {
        progress.set("unmounting the target");
        let released = async {
            super::unmount(&host, &published_at, &volume).await?;
            Ok(host.remove_place(&published_at).await?)
        };
        released.await.map_err(|error| status::node(&error))?;
        known.left(&volume, &published_at);
        Ok(NodeUnpublishVolumeResponse {})
    };
    service
        .operations
        .run("NodeUnpublishVolume", Target::Volume(volume_id), target, deadline, work)
        .await
}
