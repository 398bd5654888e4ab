// SPDX-License-Identifier: Apache-2.0
//! Errors of file systems.

use std::io;
use std::path::PathBuf;

use super::fs_type::{FsType, MkfsOptionError};
use crate::DeviceError;
use crate::offload::OffloadError;
use crate::tool::ToolError;

/// Reasons why a volume cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum FilesystemError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The device has content that this driver neither mounts nor overwrites.
    #[error(
        "{} (volume {volume_id}) holds {found} and was not touched: it is never formatted, because it may be data. If the \
         volume is known to hold nothing of value, delete its claim and make a new one, or clear it by hand with \
         `wipefs --all` and by overwriting it with zeros", device.display()
    )]
    Foreign {
        device: PathBuf,
        volume_id: String,
        /// Description of the content.
        found: String,
    },
    /// The volume has another file system than the requested one.
    #[error(
        "{} (volume {volume_id}) holds {found} and {wanted} is asked for: ask for {found} in the volume's fsType; \
         it is not formatted again", device.display()
    )]
    OtherType {
        device: PathBuf,
        volume_id: String,
        found: FsType,
        /// The requested file system.
        wanted: FsType,
    },
    /// An empty volume is requested read-only.
    #[error(
        "{} (volume {volume_id}) holds no file system yet and cannot get one, because it is asked for read-only: mount it \
         writable once", device.display()
    )]
    EmptyReadOnly { device: PathBuf, volume_id: String },
    /// The creation of the file system did not end, and the mark of this driver's format is missing.
    #[error(
        "{0} (volume {volume_id}) holds {found} whose creation did not end, without the mark that this driver's own format leaves: \
         it was not touched, because data may be copied or restored there at this moment. If the volume is known to hold \
         nothing of value, run `mkfs.{found} -f {0}` on the node", device.display()
    )]
    Unfinished {
        device: PathBuf,
        volume_id: String,
        /// The type of the unfinished file system.
        found: FsType,
    },
    /// The driver does not pass this option to mkfs.
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
    /// mkfs reported success, and the probe finds other content.
    #[error("{tool} exited 0 on {} (volume {volume_id}), but the device holds {found}; see the kernel's log", device.display())]
    NotMade {
        tool: String,
        device: PathBuf,
        volume_id: String,
        /// Result of the probe.
        found: String,
    },
    /// e2fsck found damage that it does not repair automatically.
    #[error(
        "the {fs_type} on {} (volume {volume_id}) is damaged and was not mounted: e2fsck -p leaves it to a person ({report}). \
         Take a snapshot, then run e2fsck on it", device.display()
    )]
    Damaged {
        device: PathBuf,
        volume_id: String,
        fs_type: FsType,
        /// Output of e2fsck.
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
    /// The device did not respond in time.
    #[error(transparent)]
    NoAnswer(#[from] OffloadError),
}
