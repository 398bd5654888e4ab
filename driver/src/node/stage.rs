// SPDX-License-Identifier: Apache-2.0
//! NodeStageVolume: finds the device of a volume, and formats and mounts its file system once per node.
//!
//! A block volume is not mounted. Its device is found and checked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use csi_host::mount::MountPointKind;
use csi_host::{
    Device, DeviceError, FilesystemRequest, FsType, Host, MkfsOptions, Mount, MountOptions, PreparedFilesystem,
};
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::{NodeStageVolumeRequest, NodeStageVolumeResponse};
use tonic::Status;

use super::NodeService;
use super::fields::{self, NodeCapability, VolumeUse};
use crate::node_error::NodeError;
use crate::operations::{Deadline, Progress, Target};
use crate::timing::TIMING;
use crate::{parameters, status};

/// Smaller differences between file system and device are ignored, because every file system reserves some space at the
/// end.
const GROWTH_WORTH: u64 = 32 << 20;

/// A decoded request.
#[derive(Debug, Clone, PartialEq)]
struct StageRequest {
    volume_id: String,
    path: PathBuf,
    requested: NodeCapability,
    has_content_source: bool,
    mkfs_options: MkfsOptions,
    /// Whether the volume is attached to this server read-only.
    attached_read_only: bool,
    /// The minimum size of the device in bytes, if the controller sent it.
    size: Option<u64>,
}

pub(super) async fn stage(
    service: &NodeService,
    request: NodeStageVolumeRequest,
    deadline: Deadline,
) -> Result<NodeStageVolumeResponse, Status> {
    let volume_id = fields::volume_uuid(&request.volume_id)?;
    let path = fields::path("staging_target_path", &request.staging_target_path)?;
    let requested = fields::capability(request.volume_capability.as_ref())?;
    let path = service.check_mount_point("staging_target_path", path)?;
    // This key marks a volume from a source, for the Go driver and this one.
    let has_content_source = request
        .volume_context
        .get(parameters::RESIZE_REQUIRED)
        .is_some_and(|value| value == "true");
    let mkfs_options = [parameters::MKFS_OPTIONS, parameters::GO_MKFS_OPTIONS]
        .iter()
        .find_map(|key| request.volume_context.get(*key).filter(|text| !text.is_empty()))
        .map_or(MkfsOptions::NONE, |text| MkfsOptions::parse(text));
    let size = request.publish_context.get(parameters::PUBLISH_SIZE).map(|text| {
        text.parse().map_err(|_| {
            let reason = format!("{} is {text:?} and no number of bytes", parameters::PUBLISH_SIZE);
            status::invalid("publish_context", reason)
        })
    });
    let stage = StageRequest {
        volume_id: volume_id.clone(),
        path,
        requested,
        has_content_source,
        mkfs_options,
        size: size.transpose()?,
        attached_read_only: request
            .publish_context
            .get(parameters::PUBLISH_READONLY)
            .is_some_and(|value| value == "true"),
    };
    let (host, cache) = (service.host.clone(), service.cache.clone());
    let work = |progress: Progress| {
        let stage = stage.clone();
        async move {
            if let Err(error) = stage.run(&host, &progress).await {
                return Err(super::failure_status(&host, &stage.path, &error).await);
            }
            cache.record_paths(&stage.volume_id, std::slice::from_ref(&stage.path));
            Ok(NodeStageVolumeResponse {})
        }
    };
    service
        .operations
        .run(
            "NodeStageVolume",
            Target::Volume(volume_id),
            stage.clone(),
            deadline,
            work,
        )
        .await
}

impl StageRequest {
    /// Whether the volume is mounted read-only.
    fn reads_only(&self) -> bool {
        self.attached_read_only || self.requested.reads_only()
    }

    async fn run(&self, host: &Host, progress: &Progress) -> Result<(), NodeError> {
        progress.set("waiting for the device");
        let mut device = self.find_device(host).await?;
        match &self.requested.usage {
            VolumeUse::Block => {
                // The kernel's read-only flag is retained, because a pod may use the device read-only, and the kubelet
                // repeats the staging of published volumes. A writable publish clears the flag.
                if !self.reads_only() {
                    host.forget_unfinished_format(&device).await?;
                }
                Ok(())
            }
            VolumeUse::Filesystem(fs_type, options) => {
                if device.read_only && !self.reads_only() {
                    device = super::make_writable(host, &device).await?;
                }
                let options = if self.reads_only() {
                    options.clone().read_only()
                } else {
                    options.clone()
                };
                self.mount(host, &device, *fs_type, &options, progress).await
            }
        }
    }

    /// Finds the device, which normally has the size of the volume.
    ///
    /// If a hypervisor did not complete an expansion, the disk is smaller while the volume is attached. It is used with
    /// its actual size, unless it must be formatted.
    async fn find_device(&self, host: &Host) -> Result<Device, NodeError> {
        // A copy of a smaller volume grows only during staging.
        let may_be_smaller = self.size.is_some() && !self.has_content_source;
        if !may_be_smaller {
            return Ok(host.find_device(&self.volume_id, self.size, TIMING.device_wait).await?);
        }
        let whole = host
            .find_device(&self.volume_id, self.size, TIMING.whole_device_wait)
            .await;
        let Err(error) = whole else { return Ok(whole?) };
        if let DeviceError::TooSmall { .. } = error {
            let device = host.find_device(&self.volume_id, None, Duration::ZERO).await?;
            if self.requested.usage == VolumeUse::Block || host.has_filesystem_that_fits(&device).await? {
                tracing::warn!(volume = self.volume_id, %error, "the volume is staged with the size that its disk has");
                return Ok(device);
            }
        }
        Ok(host.find_device(&self.volume_id, self.size, TIMING.device_wait).await?)
    }

    async fn mount(
        &self,
        host: &Host,
        device: &Device,
        requested: Option<FsType>,
        options: &MountOptions,
        progress: &Progress,
    ) -> Result<(), NodeError> {
        let path = host.resolve(&self.path).await?;
        let mounts = host.mounts().await?;
        if let Some(mount) = mounts.at(&path) {
            let fs_type = self.check_staged(mount, device, requested, options)?;
            // An earlier call may have ended between the mount and the growth.
            return self.grow_mounted(host, device, fs_type, options, &path, progress).await;
        }
        // A draft of an earlier call would count as a mounted file system, for which mount options are ignored.
        host.discard_draft(&path).await?;
        // From here on, programs such as mkfs use the device by name.
        let _pinned = host.pin(device).await?;
        progress.set("checking, and where it is empty formatting, the device");
        let prepare = FilesystemRequest {
            fs_type: requested,
            read_only: options.is_read_only(),
            mkfs_options: self.mkfs_options.clone(),
            size: self.size,
        };
        let PreparedFilesystem { fs_type, in_use, .. } = host.prepare_filesystem(device, prepare).await?;
        if fs_type.is_ext()
            && !in_use
            && !host.may_grow_mounted_ext()
            && self.has_to_grow(host, device, fs_type, options).await?
        {
            progress.set("growing the file system to the size of the device");
            host.grow_unmounted_ext(device, fs_type).await?;
        }
        let mut options = options.clone();
        if options.is_read_only()
            && !in_use
            && (device.read_only || self.attached_read_only || self.requested.mode == Mode::MultiNodeReaderOnly)
            && let Some(option) = fs_type.without_recovery()
        {
            // By default, a read-only mount replays the journal. The device may refuse writes, or other nodes may read
            // it at the same time, so recovery is disabled.
            options = options.with(option);
        }
        progress.set("mounting the file system");
        host.create_place(&path, MountPointKind::Directory, 0o750).await?;
        if in_use {
            host.mount_again(device, &path, fs_type, &options).await?;
        } else {
            host.mount(device, &path, fs_type, &options).await?;
        }
        tracing::info!(volume = self.volume_id, device = %device.path.display(), %fs_type, "staged");
        self.grow_mounted(host, device, fs_type, &options, &path, progress)
            .await
    }

    /// Whether a volume from a source, which may be larger than its source, has a file system of the old size.
    async fn has_to_grow(
        &self,
        host: &Host,
        device: &Device,
        fs_type: FsType,
        options: &MountOptions,
    ) -> Result<bool, NodeError> {
        if !self.has_content_source || options.is_read_only() {
            return Ok(false);
        }
        let size = host.filesystem_size(device, fs_type).await?;
        Ok(size.saturating_add(GROWTH_WORTH) <= device.size_bytes)
    }

    async fn grow_mounted(
        &self,
        host: &Host,
        device: &Device,
        fs_type: FsType,
        options: &MountOptions,
        path: &Path,
        progress: &Progress,
    ) -> Result<(), NodeError> {
        if !self.has_to_grow(host, device, fs_type, options).await? {
            return Ok(());
        }
        progress.set("growing the file system to the size of the device");
        Ok(host.grow_mounted(device, fs_type, path).await?)
    }

    /// Accepts an existing mount at the staging path if it is this volume with the requested type and access.
    fn check_staged(
        &self,
        mount: &Mount,
        device: &Device,
        requested: Option<FsType>,
        options: &MountOptions,
    ) -> Result<FsType, NodeError> {
        if !mount.is_of(device) {
            return Err(NodeError::StagedOther {
                volume_id: self.volume_id.clone(),
                path: self.path.clone(),
                source_name: mount.source.display().to_string(),
                device: device.path.display().to_string(),
            });
        }
        let access = |read_only: bool| if read_only { "read-only" } else { "writable" };
        match self.usable_type(mount, requested) {
            Ok(fs_type) if mount.was_mounted_read_only() == options.is_read_only() => Ok(fs_type),
            _ => Err(NodeError::StagedDifferently {
                volume_id: self.volume_id.clone(),
                path: self.path.clone(),
                found: format!("{} {}", access(mount.was_mounted_read_only()), mount.fs_type),
                wanted: format!(
                    "{} {}",
                    access(options.is_read_only()),
                    requested.map_or("any type", FsType::name)
                ),
            }),
        }
    }

    fn usable_type(&self, mount: &Mount, requested: Option<FsType>) -> Result<FsType, NodeError> {
        let existing = FsType::from_name(&mount.fs_type);
        match (existing, requested) {
            (Some(existing), Some(requested)) if requested.is_served_by(existing) => Ok(existing),
            (Some(existing), None) => Ok(existing),
            (_, requested) => Err(NodeError::OtherType {
                volume_id: self.volume_id.clone(),
                found: mount.fs_type.clone(),
                wanted: requested.unwrap_or(FsType::Ext4),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use csi_host::{HostPaths, Tools};

    use super::*;
    use crate::operations::{Limits, Operations};

    #[tokio::test]
    async fn repeated_stage_retains_read_only_device() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let disk = dir.path().join("block/vda");
        fs::create_dir_all(&disk).expect("a directory");
        for (file, text) in [("serial", "volume-1"), ("size", "2048"), ("dev", "254:0"), ("ro", "1")] {
            fs::write(disk.join(file), text).expect("a file");
        }
        let paths = HostPaths {
            sys: dir.path().into(),
            dev: dir.path().join("dev"),
            ..HostPaths::default()
        };
        let tools = Tools {
            blockdev: dir.path().join("must-not-be-run"),
            ..Tools::default()
        };
        let host = Host::with_tools(paths, tools);
        let stage = StageRequest {
            volume_id: "volume-1".into(),
            path: dir.path().join("staging"),
            requested: NodeCapability {
                usage: VolumeUse::Block,
                mode: Mode::SingleNodeWriter,
            },
            has_content_source: false,
            mkfs_options: MkfsOptions::NONE,
            attached_read_only: false,
            size: Some(1 << 20),
        };
        let staged = Operations::new(Limits::default())
            .run(
                "NodeStageVolume",
                Target::Volume("volume-1".into()),
                (),
                Deadline::within(Duration::from_mins(1)),
                |progress| async move {
                    stage
                        .run(&host, &progress)
                        .await
                        .map_err(|error| status::from_node(&error))
                },
            )
            .await;
        staged.expect("the flag is left alone");
    }
}
