// SPDX-License-Identifier: Apache-2.0
//! Errors of mounts.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use super::options::OptionError;
use crate::mountinfo::MountInfoError;
use crate::offload::OffloadError;

/// Errors of mounts, binds and unmounts.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error(transparent)]
    List(#[from] MountInfoError),
    /// The kernel cannot accept an option.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The kernel refused to mount the file system.
    #[error("cannot mount {} at {} as {fs_type}: {reason}", device.display(), target.display())]
    Mount {
        device: PathBuf,
        target: PathBuf,
        fs_type: &'static str,
        /// The message of the kernel, or the meaning of its error number, with the remedy.
        reason: String,
        source: io::Error,
    },
    /// The kernel has mounted another disk instead of the device.
    #[error(
        "{} was to be mounted at {} as btrfs, and the kernel shows {source_name} for it: they have one UUID, and only kernels from 6.7 on \
         mount both; if it is a clone or its source, end the pods of the other volume on this node; if that device is gone, end the process \
         that still has this volume mounted from before; or use another node",
        device.display(), target.display()
    )]
    OtherDisk {
        device: PathBuf,
        target: PathBuf,
        /// The source of the mount, as the kernel names it.
        source_name: String,
    },
    /// A btrfs that consists of several devices.
    #[error(
        "{} has a btrfs of {devices} devices and was not mounted: a volume is one device, and the others could be disks of other volumes. \
         Copy its data to a btrfs of one device elsewhere, or delete the volume", device.display()
    )]
    SeveralDevices {
        device: PathBuf,
        /// Number of devices from the superblock or the kernel.
        devices: u64,
    },
    /// The file system is in use elsewhere on this node, and one of the two mounts is read-only.
    #[error(
        "cannot mount {} at {} {access}: the file system is in use elsewhere on this node with other access ({reason}); end the \
         process that uses it, or use another node", device.display(), target.display()
    )]
    AccessConflict {
        device: PathBuf,
        target: PathBuf,
        /// `writable` or `read-only`, as requested.
        access: &'static str,
        reason: String,
    },
    /// The kernel refused a bind mount.
    #[error("cannot bind {} to {}", from.display(), target.display())]
    Bind {
        from: PathBuf,
        target: PathBuf,
        source: io::Error,
    },
    /// The mount point could not be created, removed or written back.
    #[error("cannot {what} {}", target.display())]
    Place {
        /// `create directory`, `remove` …
        what: &'static str,
        target: PathBuf,
        source: io::Error,
    },
    /// The path is not the file at which a device was published.
    #[error(
        "{} is no empty file, so it is not the one at which a device was shown, and it was not removed: move it away",
        target.display()
    )]
    NotEmpty { target: PathBuf },
    /// The kernel refused to unmount.
    #[error("cannot unmount {}", target.display())]
    Unmount { target: PathBuf, source: io::Error },
    /// A process or another mount uses the mount.
    #[error("{} cannot be unmounted: a process has files open there or another mount is on it; it is tried again", target.display())]
    Busy { target: PathBuf },
    /// The kernel did not return in time.
    #[error(transparent)]
    NoAnswer(#[from] OffloadError),
}

impl MountError {
    /// Whether the device or its file system is in use in a way that excludes this mount.
    pub(super) fn is_busy(&self) -> bool {
        self.is_refused_with(Errno::BUSY)
    }

    /// Whether the kernel rejects the options or the file system.
    pub(super) fn is_invalid(&self) -> bool {
        self.is_refused_with(Errno::INVAL)
    }

    pub(super) fn is_refused_with(&self, errno: Errno) -> bool {
        match self {
            Self::Mount { source, .. } => Errno::from_io_error(source) == Some(errno),
            _ => false,
        }
    }
}
