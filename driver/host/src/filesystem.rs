// SPDX-License-Identifier: Apache-2.0
//! From a device to a file system that can be mounted: probe, format if and only if nothing can be lost, check.
//!
//! # When a device is formatted
//!
//! Only when all of this holds: the device is the volume (serial or link, size, device number on the open file), and who
//! asks holds it ([`crate::PinnedDevice`]), so that its name means no other disk meanwhile; nobody else has it open exclusively;
//! blkid's low-level probe finds neither a file system nor RAID, encryption or a partition table; and its beginning, its end
//! and samples in between, read back, are zero. Anything else that is not a file system is an error that says so, and the
//! device stays as it is.
//!
//! # A format that was cut short
//!
//! The process or the node may die during mkfs. mkfs.xfs then leaves a superblock that says «in progress», which the
//! kernel refuses to mount; mkfs.btrfs leaves one with a magic number of its own, likewise. Neither proves that there is no
//! data: xfs_copy, xfs_mdrestore and btrfs-convert write the same while they work. mke2fs leaves written blocks and no
//! superblock, which cannot be told from foreign data by looking at them. Three ways to know were weighed:
//!
//! * A note on the node: lost when the volume goes to another node; and it lies when the volume was used elsewhere in
//!   the meantime, which the node cannot know.
//! * Recognising mke2fs's pattern: a guess, and a wrong guess destroys data.
//! * **A mark on the volume itself**: what is done. Before mkfs, on the device that was just proven empty, one block near its
//!   end is written that names the volume and its size ([`mark`]); neither mkfs touches it, since there the last block
//!   group (the last allocation group) has free blocks, and mke2fs's and mkfs.xfs's own wiping ends 128 KiB before the end.
//!   mkfs.btrfs wipes the last 2 MiB, so for it the mark stands further from the end.
//!   It is cleared, durably, after mkfs and before the first mount.
//!
//! So the mark is there exactly while no file system of this volume was ever complete and mounted, on whatever node the
//! volume turns up. It counts only where the superblocks' place is still zero or holds such an unfinished one: mke2fs writes
//! its primary superblock last. Nothing else counts: an unfinished file system without the mark is refused, with the command
//! that formats it. The mark names the volume, so a clone or a restored copy of a half-made volume, which is
//! another volume, is refused as well. So is a volume that was extended in between, which has its mark elsewhere.
//!
//! A mkfs that outlives the process still holds the device exclusively; the next call waits for its end and looks anew.
//!
//! # A file system in use
//!
//! A mount in another mount namespace, or an open file, can keep the kernel's superblock of the device in use after the driver has
//! unmounted it. Such a file system is complete, because the kernel has read it. The driver reads its type without a claim. It
//! neither checks nor changes it, and mounts it once more. A mkfs or fsck of an earlier call has no superblock in the kernel, so
//! that it still counts as a user that the next call waits for.

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
/// Parsers of bytes that tenants write, public for the fuzz targets.
#[doc(hidden)]
pub use {
    probe::{sniff, understand},
    size::of as size_of,
};

/// What a volume is to be made ready for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prepare {
    /// The file system asked for; `None` takes what is there, and makes the host's default, ext4 if not told otherwise, where nothing is.
    pub fs_type: Option<FsType>,
    /// Nothing may be written: no format, no repair.
    pub read_only: bool,
    /// What mkfs is told beside our own defaults.
    pub mkfs_options: MkfsOptions,
    /// The size of the volume in bytes, where it is known: a smaller device is not formatted.
    pub size: Option<u64>,
}

/// A volume that can be mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prepared {
    pub fs_type: FsType,
    /// Whether this call made it.
    pub formatted: bool,
    /// Whether the kernel has it in use elsewhere: it was neither checked nor changed, and may be mounted once more.
    pub in_use: bool,
}

impl Host {
    /// Makes sure that `device`, which is not mounted at the place in question, holds a file system that can be mounted.
    ///
    /// Bounded by the limits of the programs that it runs. Dropping the future leaves a running mkfs or fsck going on; the
    /// next call waits for it and takes its result.
    pub async fn prepare_filesystem(&self, device: &Device, wanted: Prepare) -> Result<Prepared, FilesystemError> {
        let deadline = Instant::now() + TIMING.busy_device_wait;
        let mut pause = TIMING.busy_device_retry;
        loop {
            // The kernel refuses the claim while a superblock is in use, so that an idle device costs no search.
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
            pause = (pause * 2).min(TIMING.device_look_max);
        }
    }

    /// What the device holds, without changing it.
    pub async fn probe(&self, device: &Device) -> Result<Content, FilesystemError> {
        probe::probe(self, device, Open::Read).await
    }

    /// Whether the device holds a complete file system that ends before the device does. It can be used on a device that is
    /// smaller than its volume. Nothing is written.
    pub async fn has_filesystem_that_fits(&self, device: &Device) -> Result<bool, FilesystemError> {
        let Content::Filesystem(fs_type) = self.probe(device).await? else {
            return Ok(false);
        };
        Ok(self.filesystem_size(device, fs_type).await? <= device.size_bytes)
    }

    /// Takes off what a format that was cut short may have left, before the device is given away as raw storage: whatever
    /// is written there from now on must not pass for an unfinished format.
    pub async fn forget_unfinished_format(&self, device: &Device) -> Result<(), FilesystemError> {
        if device.read_only || !mark::is_set(self, device).await? {
            return Ok(());
        }
        tracing::info!(volume = device.volume_id, device = %device.path.display(), "clearing the mark of an unfinished format");
        mark::clear(self, device).await
    }

    /// Reads the type of a file system that the kernel has in use. Nothing is written.
    async fn prepare_in_use(
        &self,
        device: &Device,
        wanted: &Prepare,
        holders: &Holders,
    ) -> Result<Prepared, FilesystemError> {
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
        Ok(Prepared {
            fs_type: found,
            formatted: false,
            in_use: true,
        })
    }

    async fn try_prepare(&self, device: &Device, wanted: &Prepare) -> Result<Prepared, FilesystemError> {
        let read_only = wanted.read_only || device.read_only;
        // With a claim on the device, so that no mkfs is in the middle of what is looked at.
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
                return Ok(Prepared {
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
        // Before the mark: nothing is begun with options that mkfs is not given.
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
        format::make(self, device, fs_type, &arguments).await?;
        // Only what mkfs finished is unmarked; after a failure the mark says that the rest is nobody's data.
        mark::clear(self, device).await?;
        tracing::info!(volume = device.volume_id, device = %device.path.display(), %fs_type, "formatted");
        Ok(Prepared {
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
