// SPDX-License-Identifier: Apache-2.0
//! Devices, file systems and mounts of the machine that runs the driver's node service.
//!
//! ```text
//! find_device ──► Device ──► pin ───► prepare_filesystem ──► mount ──► bind ──► usage
//!  sysfs serials   path,               probe, mark, mkfs,     fsopen    target    statvfs
//!  by-id links     size                fsck                   or mount(2)
//! ```
//!
//! Rules of this crate:
//!
//! * **Possible data is never overwritten.** The crate formats a device only after it has checked the identity and the
//!   size. In addition, the low-level probe must find nothing, and every region that is read must be zero. The
//!   exception is a device that proves that an earlier format of *this* volume was interrupted. [`filesystem`] has the
//!   reasoning.
//! * **The crate stores no state.** Mounts come from `mountinfo`, attached disks from sysfs and `/dev`, and the content
//!   of a device from the device. A restart of the driver loses nothing.
//! * **Every call is bounded.** Blocking system calls run on their own threads, so that a dead device blocks neither
//!   the runtime nor another volume. External programs run without a shell and with a time limit.
//! * **All access goes through [`Machine`].** Tests can replace this trait of system calls and programs.
//! * The crate uses neither gRPC nor OpenStack.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests build machines from files"
    )
)]

pub mod config_drive;
pub mod device;
pub mod filesystem;
pub mod health;
pub mod machine;
pub mod mount;
pub mod mountinfo;
pub mod slots;
pub mod tool;
pub mod usage;

mod firmware;
mod host;
mod network;
mod offload;
mod paths;
mod timing;

pub use config_drive::{ConfigDrive, ConfigDriveError};
pub use device::{Device, DeviceError, PinnedDevice};
pub use filesystem::{FilesystemError, FilesystemRequest, FsType, MkfsOptionError, MkfsOptions, PreparedFilesystem};
pub use firmware::Firmware;
pub use host::Host;
pub use machine::{Linux, Machine, exec_if_confined};
pub use mount::{MountError, MountOptions};
pub use mountinfo::{Mount, MountTable};
pub use offload::OffloadError;
pub use paths::HostPaths;
pub use tool::{ToolError, Tools};
pub use usage::{Usage, UsageError};
