// SPDX-License-Identifier: Apache-2.0
//! NodeStageVolume: the device of a volume is found, and its file system is made and mounted once per node.
//! A block volume has nothing to be mounted; its device is found and checked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use csi_host::mount::Place;
use csi_host::{Device, DeviceError, FsType, Host, MkfsOptions, Mount, MountOptions, Prepare, Prepared};
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::{NodeStageVolumeRequest, NodeStageVolumeResponse};
use tonic::Status;

use super::NodeService;
use super::fields::{self, NodeCapability, Use};
use crate::node_error::NodeError;
use crate::operations::{Deadline, Progress, Target};
use crate::timing::TIMING;
use crate::{parameters, status};

/// A file system that is smaller than its device by less stays as it is: each kind leaves some of the end unused.
const GROWTH_WORTH: u64 = 32 << 20;

/// What NodeStageVolume is to do.
#[derive(Debug, Clone, PartialEq)]
struct Stage {
    volume_id: String,
    path: PathBuf,
    wanted: NodeCapability,
    has_content_source: bool,
    mkfs_options: MkfsOptions,
    /// The volume is attached to this server read-only.
    attached_read_only: bool,
    /// The bytes that its device has at least, where the controller has told them.
    size: Option<u64>,
}

pub(super) async fn stage(
    service: &NodeService,
    request: NodeStageVolumeRequest,
    deadline: Deadline,
) -> Result<NodeStageVolumeResponse, Status> {
    let volume_id = fields::volume_uuid(&request.volume_id)?;
    let path = fields::path("staging_target_path", &request.staging_target_path)?;
    let wanted = fields::capability(request.volume_capability.as_ref())?;
    let path = service.place("staging_target_path", path)?;
    // The Go driver's and our controller's mark of a volume that was made from another.
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
    let stage = Stage {
        volume_id: volume_id.clone(),
        path,
        wanted,
        has_content_source,
        mkfs_options,
        size: size.transpose()?,
        attached_read_only: request
            .publish_context
            .get(parameters::PUBLISH_READONLY)
            .is_some_and(|value| value == "true"),
    };
    let (host, known) = (service.host.clone(), service.known.clone());
    let work = |progress: Progress| {
        let stage = stage.clone();
        async move {
            if let Err(error) = stage.run(&host, &progress).await {
                return Err(super::failed(&host, &stage.path, &error).await);
            }
            known.saw(&stage.volume_id, std::slice::from_ref(&stage.path));
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

impl Stage {
    /// Whether nothing may be written, for whatever reason.
    fn reads_only(&self) -> bool {
        self.attached_read_only || self.wanted.reads_only()
    }

    async fn run(&self, host: &Host, progress: &Progress) -> Result<(), NodeError> {
        progress.set("waiting for the device");
        let mut device = self.find_device(host).await?;
        match &self.wanted.usage {
            Use::Block => {
                // The kernel's flag stays: it may keep a pod from writing that has the device read-only, and the kubelet
                // stages again what is published. To publish it writable takes the flag off.
                if !self.reads_only() {
                    host.forget_unfinished_format(&device).await?;
                }
                Ok(())
            }
            Use::Filesystem(fs_type, options) => {
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
    /// A hypervisor that did not carry an expansion through shows a smaller disk, for as long as the volume is attached. It is used
    /// at the size that it has, unless it would have to be formatted.
    async fn find_device(&self, host: &Host) -> Result<Device, NodeError> {
        // A copy of a smaller volume grows when it is staged, and at no other time.
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
            if self.wanted.usage == Use::Block || host.has_filesystem_that_fits(&device).await? {
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
        wanted: Option<FsType>,
        options: &MountOptions,
        progress: &Progress,
    ) -> Result<(), NodeError> {
        let path = host.resolve(&self.path).await?;
        let mounts = host.mounts().await?;
        if let Some(mount) = mounts.at(&path) {
            let fs_type = self.check_staged(mount, device, wanted, options)?;
            // An earlier call may have ended between the mount and the growth.
            return self.grow_mounted(host, device, fs_type, options, &path, progress).await;
        }
        // What an earlier call left would count as a file system in use, which is mounted without options of its own.
        host.discard_draft(&path).await?;
        // From here on things are done to it by name, a format among them.
        let _pinned = host.pin(device).await?;
        progress.set("checking, and where it is empty formatting, the device");
        let prepare = Prepare {
            fs_type: wanted,
            read_only: options.is_read_only(),
            mkfs_options: self.mkfs_options.clone(),
            size: self.size,
        };
        let Prepared { fs_type, in_use, .. } = host.prepare_filesystem(device, prepare).await?;
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
            && (device.read_only || self.attached_read_only || self.wanted.mode == Mode::MultiNodeReaderOnly)
            && let Some(option) = fs_type.without_recovery()
        {
            // A read-only mount writes what the journal has left, which a device that cannot be written, or that other
            // nodes read at the same time, must be spared.
            options = options.with(option);
        }
        progress.set("mounting the file system");
        host.create_place(&path, Place::Directory, 0o750).await?;
        if in_use {
            host.mount_again(device, &path, fs_type, &options).await?;
        } else {
            host.mount(device, &path, fs_type, &options).await?;
        }
        tracing::info!(volume = self.volume_id, device = %device.path.display(), %fs_type, "staged");
        self.grow_mounted(host, device, fs_type, &options, &path, progress)
            .await
    }

    /// Whether a volume that was made from another, and may be larger than it, has a file system of the old size.
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

    /// A staging path that has something mounted serves if it is this volume, of this type and as writable as asked.
    fn check_staged(
        &self,
        mount: &Mount,
        device: &Device,
        wanted: Option<FsType>,
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
        match self.usable_type(mount, wanted) {
            Ok(fs_type) if mount.was_mounted_read_only() == options.is_read_only() => Ok(fs_type),
            _ => Err(NodeError::StagedDifferently {
                volume_id: self.volume_id.clone(),
                path: self.path.clone(),
                found: format!("{} {}", access(mount.was_mounted_read_only()), mount.fs_type),
                wanted: format!(
                    "{} {}",
                    access(options.is_read_only()),
                    wanted.map_or("any type", FsType::name)
                ),
            }),
        }
    }

    fn usable_type(&self, mount: &Mount, wanted: Option<FsType>) -> Result<FsType, NodeError> {
        let found = FsType::from_name(&mount.fs_type);
        match (found, wanted) {
            (Some(found), Some(wanted)) if wanted.is_served_by(found) => Ok(found),
            (Some(found), None) => Ok(found),
            (_, wanted) => Err(NodeError::OtherType {
                volume_id: self.volume_id.clone(),
                found: mount.fs_type.clone(),
                wanted: wanted.unwrap_or(FsType::Ext4),
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
    async fn a_device_that_is_published_read_only_stays_so_when_it_is_staged_again() {
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
        let stage = Stage {
            volume_id: "volume-1".into(),
            path: dir.path().join("staging"),
            wanted: NodeCapability {
                usage: Use::Block,
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
                |progress| async move { stage.run(&host, &progress).await.map_err(|error| status::node(&error)) },
            )
            .await;
        staged.expect("the flag is left alone");
    }
}
