// SPDX-License-Identifier: Apache-2.0
//! Prepares a device for a mount: probes it, formats it if no data can be lost, and checks its file system.
//!
//! # When the driver formats a device
//!
//! All of these conditions must be true:
//!
//! * The device is the volume. The driver checks the serial or link, the size, and the device number on the open file.
//! * The caller has the device pinned ([`crate::PinnedDevice`]), so that its name keeps its meaning.
//! * No other process has the device open exclusively.
//! * blkid's low-level probe finds neither a file system nor RAID, encryption or a partition table.
//! * The beginning, the end and samples in between are zero.
//!
//! For any other content without a file system, the driver returns an error and does not change the device.
//!
//! # Interrupted formats
//!
//! The process or the node may die during mkfs. mkfs.xfs then leaves a superblock with the state «in progress», which
//! the kernel refuses to mount. mkfs.btrfs leaves a superblock with a different magic number, which the kernel refuses
//! as well. Neither proves that the device has no data: xfs_copy, xfs_mdrestore and btrfs-convert write the same state
//! while they work. mke2fs leaves written blocks and no superblock, which look like foreign data. Three designs were
//! considered:
//!
//! * A record on the node. It is lost when the volume moves to another node. It is wrong if the volume was used
//!   elsewhere in the meantime, which the node cannot detect.
//! * Recognition of the pattern of mke2fs. This is a guess, and a wrong guess destroys data.
//! * **A mark on the volume itself**, which the driver uses. Before mkfs, the driver writes one block near the end of
//!   the empty device. The block contains the volume id and the size ([`mark`]). No mkfs overwrites it: the last block
//!   group (or allocation group) has free blocks there, and mke2fs and mkfs.xfs wipe only the last 128 KiB. mkfs.btrfs
//!   wipes the last 2 MiB, so its mark has a larger distance from the end. After mkfs and before the first mount, the
//!   driver clears the mark and flushes the device.
//!
//! The mark is therefore present only while no file system of this volume has ever been complete and mounted, on any
//! node. It counts only if the area of the superblocks is zero or contains an unfinished superblock, because mke2fs
//! writes its primary superblock last. The driver refuses an unfinished file system without the mark and reports the
//! command that formats it. The mark contains the volume id, so that a clone or a restored copy of an unfinished volume
//! is refused as well. So is a volume that was extended in between, because its mark is at another offset.
//!
//! A mkfs that outlives the process still has the device open exclusively. The next call waits for its end and probes
//! again.
//!
//! # File systems in use
//!
//! A mount in another mount namespace or an open file can keep the kernel's superblock in use after an unmount by the
//! driver. Such a file system is complete, because the kernel has read it. The driver reads its type
//! without an exclusive open, neither checks nor changes it, and mounts it again. A mkfs or fsck of an earlier call has
//! no superblock in the kernel. It therefore counts as a user that the next call waits for.

mod error;
mod format;
mod fs_type;
mod grow;
mod mark;
mod probe;
pub(crate) mod size;

use tokio::time::{Instant, sleep};

use crate::device::Holders;
use crate::machine::Open;
use crate::timing::TIMING;
use crate::{Device, DeviceError, Host};

pub use error::FilesystemError;
pub(crate) use fs_type::leads_elsewhere;
pub use fs_type::{FsType, MkfsOptionError, MkfsOptions};
pub use probe::Content;
/// Parsers of bytes that tenants write. Public for the fuzz targets.
#[doc(hidden)]
pub use {
    probe::{sniff, understand},
    size::from_superblock as size_of,
};

/// Requirements for the file system of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilesystemRequest {
    /// The requested file system. `None` accepts any existing one, and formats an empty volume with the host's default
    /// (ext4 unless configured).
    pub fs_type: Option<FsType>,
    /// Forbids writes: no format, no repair.
    pub read_only: bool,
    /// Options for mkfs in addition to the defaults.
    pub mkfs_options: MkfsOptions,
    /// The size of the volume in bytes, if known. A smaller device is not formatted.
    pub size: Option<u64>,
}

/// A volume whose file system can be mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreparedFilesystem {
    pub fs_type: FsType,
    /// Whether this call created the file system.
    pub formatted: bool,
    /// Whether the file system is in use elsewhere on this node. Such a file system was neither checked nor changed,
    /// and can be mounted again.
    pub in_use: bool,
}

impl Host {
    /// Ensures that `device`, which is not mounted at the target yet, has a file system that can be mounted.
    ///
    /// The time limits of the programs bound the call. Dropping the future does not stop a running mkfs or fsck; the
    /// next call waits for it and uses its result.
    pub async fn prepare_filesystem(
        &self,
        device: &Device,
        wanted: FilesystemRequest,
    ) -> Result<PreparedFilesystem, FilesystemError> {
        let deadline = Instant::now() + TIMING.busy_device_wait;
        let mut pause = TIMING.busy_device_retry;
        loop {
            // The kernel refuses the exclusive open while a superblock is in use. An idle device therefore needs no
            // search for holders.
            let busy = match self.try_prepare(device, &wanted).await {
                Err(FilesystemError::Device(DeviceError::Busy { path, .. })) => path,
                result => return result,
            };
            let holders = self.holders(device).await?;
            if holders.has_filesystem() {
                return self.prepare_in_use(device, &wanted, &holders).await;
            }
            if Instant::now() >= deadline {
                let holder = holders.to_string();
                return Err(DeviceError::Busy { path: busy, holder }.into());
            }
            sleep(pause).await;
            pause = (pause * 2).min(TIMING.device_poll_max);
        }
    }

    /// Determines the content of the device. Does not write.
    pub async fn probe(&self, device: &Device) -> Result<Content, FilesystemError> {
        probe::probe(self, device, Open::Read).await
    }

    /// Whether the device has a complete file system that fits into the device.
    ///
    /// Such a file system is usable on a device that is smaller than its volume. Does not write.
    pub async fn has_filesystem_that_fits(&self, device: &Device) -> Result<bool, FilesystemError> {
        let Content::Filesystem(fs_type) = self.probe(device).await? else {
            return Ok(false);
        };
        Ok(self.filesystem_size(device, fs_type).await? <= device.size_bytes)
    }

    /// Clears the mark of an interrupted format before the device is published as raw storage.
    ///
    /// Otherwise a later call could mistake the pod's data for an unfinished format.
    pub async fn forget_unfinished_format(&self, device: &Device) -> Result<(), FilesystemError> {
        if device.read_only || !mark::is_set(self, device).await? {
            return Ok(());
        }
        tracing::info!(volume = device.volume_id, device = %device.path.display(), "clearing the mark of an unfinished format");
        mark::clear(self, device).await
    }

    /// Reads the type of a file system that is in use. Does not write.
    async fn prepare_in_use(
        &self,
        device: &Device,
        wanted: &FilesystemRequest,
        holders: &Holders,
    ) -> Result<PreparedFilesystem, FilesystemError> {
        let content = probe::probe(self, device, Open::Read).await?;
        let Content::Filesystem(found) = content else {
            return Err(FilesystemError::Foreign {
                device: device.path.clone(),
                volume_id: device.volume_id.clone(),
                found: content.to_string(),
            });
        };
        check_type(device, wanted.fs_type, found)?;
        tracing::warn!(
            volume = device.volume_id,
            device = %device.path.display(),
            %holders,
            "the file system is in use elsewhere on this node: it is mounted without a check"
        );
        Ok(PreparedFilesystem {
            fs_type: found,
            formatted: false,
            in_use: true,
        })
    }

    async fn try_prepare(
        &self,
        device: &Device,
        wanted: &FilesystemRequest,
    ) -> Result<PreparedFilesystem, FilesystemError> {
        let read_only = wanted.read_only || device.read_only;
        // The exclusive open ensures that no mkfs is running on the content.
        let content = probe::probe(self, device, Open::ReadAlone).await?;
        let marked = mark::is_set(self, device).await?;
        let path = || device.path.clone();
        let volume_id = || device.volume_id.clone();
        let unfinished = match &content {
            Content::Filesystem(found) => {
                check_type(device, wanted.fs_type, *found)?;
                if !read_only {
                    if marked {
                        mark::clear(self, device).await?;
                    }
                    format::check(self, device, *found).await?;
                }
                return Ok(PreparedFilesystem {
                    fs_type: *found,
                    formatted: false,
                    in_use: false,
                });
            }
            Content::Blank => None,
            Content::Unfinished(fs_type) if marked => Some(format!("a {fs_type} that was never finished")),
            Content::Unfinished(found) => {
                return Err(FilesystemError::Unfinished {
                    device: path(),
                    volume_id: volume_id(),
                    found: *found,
                });
            }
            Content::Unknown {
                superblock_is_zero: true,
                ..
            } if marked => Some("a file system that was never finished".to_owned()),
            Content::Unknown { .. } | Content::Other(_) => {
                let found = content.to_string();
                return Err(FilesystemError::Foreign {
                    device: path(),
                    volume_id: volume_id(),
                    found,
                });
            }
        };
        if read_only {
            return Err(FilesystemError::EmptyReadOnly {
                device: path(),
                volume_id: volume_id(),
            });
        }
        if let Some(expected) = wanted.size.filter(|size| device.size_bytes < *size) {
            return Err(DeviceError::TooSmall {
                volume_id: volume_id(),
                device: device.name.clone(),
                map: None,
                expected,
                actual: device.size_bytes,
            }
            .into());
        }
        let fs_type = wanted.fs_type.unwrap_or(self.default_fs_type);
        // Validates the options before it writes the mark, because invalid options must not start a format.
        let arguments = format::arguments(fs_type, &wanted.mkfs_options)?;
        if let Some(found) = unfinished {
            tracing::warn!(
                volume = device.volume_id,
                device = %device.path.display(),
                "the volume holds {found}: an earlier format was cut short; formatting it again"
            );
        }
        if !marked {
            mark::set(self, device, fs_type).await?;
        }
        format::create(self, device, fs_type, &arguments).await?;
        // Clears the mark only after a successful mkfs. After a failure the mark proves that the rest is not data.
        mark::clear(self, device).await?;
        tracing::info!(volume = device.volume_id, device = %device.path.display(), %fs_type, "formatted");
        Ok(PreparedFilesystem {
            fs_type,
            formatted: true,
            in_use: false,
        })
    }
}

fn check_type(device: &Device, wanted: Option<FsType>, found: FsType) -> Result<(), FilesystemError> {
    match wanted {
        Some(wanted) if !wanted.is_served_by(found) => Err(FilesystemError::OtherType {
            device: device.path.clone(),
            volume_id: device.volume_id.clone(),
            found,
            wanted,
        }),
        _ => Ok(()),
    }
}
