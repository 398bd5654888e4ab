// SPDX-License-Identifier: Apache-2.0
//! Errors of file systems.

use std::io;
use std::path::PathBuf;

use super::fs_type::{FsType, MkfsOptionError};
use crate::DeviceError;
use crate::offload::OffloadError;
use crate::tool::ToolError;

/// Why a volume cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum FilesystemError {
    /// The device is not usable.
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The device holds something that this driver does not mount and will not overwrite.
    #[error(
        "{} (volume {volume_id}) holds {found} and was not touched: it is never formatted, because it may be data. If the \
         volume is known to hold nothing of value, delete its claim and make a new one, or clear it by hand with \
         `wipefs --all` and by overwriting it with zeros", device.display()
    )]
    Foreign {
        device: PathBuf,
        volume_id: String,
        /// What it seems to be.
        found: String,
    },
    /// The volume holds another file system than the one asked for.
    #[error(
        "{} (volume {volume_id}) holds {found} and {wanted} is asked for: ask for {found} in the volume's fsType; \
         it is not formatted again", device.display()
    )]
    OtherType {
        device: PathBuf,
        volume_id: String,
        found: FsType,
        /// What was asked for.
        wanted: FsType,
    },
    /// An empty volume, asked for read-only.
    #[error(
        "{} (volume {volume_id}) holds no file system yet and cannot get one, because it is asked for read-only: mount it \
         writable once", device.display()
    )]
    EmptyReadOnly { device: PathBuf, volume_id: String },
    /// A file system whose creation did not end, without the mark of a format that this driver began.
    #[error(
        "{0} (volume {volume_id}) holds {found} whose creation did not end, without the mark that this driver's own format leaves: \
         it was not touched, because data may be copied or restored there at this moment. If the volume is known to hold \
         nothing of value, run `mkfs.{found} -f {0}` on the node", device.display()
    )]
    Unfinished {
        device: PathBuf,
        volume_id: String,
        /// What it would have been.
        found: FsType,
    },
    /// An option for mkfs that it is not given.
    #[error(transparent)]
    MkfsOption(#[from] MkfsOptionError),
    /// This process may not grow a mounted ext file system.
    #[error(
        "the {fs_type} on {} (volume {volume_id}) cannot grow while it is mounted, because the driver lacks CAP_SYS_RESOURCE on \
         this node: run its container privileged", device.display()
    )]
    NotOnline {
        device: PathBuf,
        volume_id: String,
        fs_type: FsType,
    },
    /// mkfs said that it was done, and the probe finds something else.
    #[error("{tool} exited 0 on {} (volume {volume_id}), but the device holds {found}; see the kernel's log", device.display())]
    NotMade {
        tool: String,
        device: PathBuf,
        volume_id: String,
        /// What the probe found.
        found: String,
    },
    /// The check found damage that it does not repair by itself.
    #[error(
        "the {fs_type} on {} (volume {volume_id}) is damaged and was not mounted: e2fsck -p leaves it to a person ({report}). \
         Take a snapshot, then run e2fsck on it", device.display()
    )]
    Damaged {
        device: PathBuf,
        volume_id: String,
        fs_type: FsType,
        /// What e2fsck said.
        report: String,
    },
    /// The device could not be read or written.
    #[error("cannot {what} {} (volume {volume_id})", device.display())]
    Io {
        /// `read`, `write the mark on` …
        what: &'static str,
        device: PathBuf,
        volume_id: String,
        source: io::Error,
    },
    /// The device gave no answer in time.
    #[error(transparent)]
    NoAnswer(#[from] OffloadError),
}
