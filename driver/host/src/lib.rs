// SPDX-License-Identifier: Apache-2.0
//! Devices, file systems and mounts of the machine that the driver's node role runs on.
//!
//! ```text
//! find_device ──► Device ──► hold ──► prepare_filesystem ──► mount ──► bind ──► usage
//!  sysfs serials   path,               probe, mark, mkfs,     fsopen    target    statvfs
//!  by-id links     size                fsck                   or mount(2)
//! ```
//!
//! What holds everywhere:
//!
//! * **Nothing that may hold data is written to.** A device is formatted only when its identity and size were checked,
//!   the low-level probe found nothing and every region that was read back is zero, or when the device itself proves
//!   that an earlier format of *this* volume was cut short ([`filesystem`] has the reasoning).
//! * **No state of our own.** What is mounted comes from `mountinfo`, what is attached from sysfs and `/dev`, what a
//!   device holds from the device. A restart forgets nothing.
//! * **Every call is bounded.** Blocking system calls run on threads of their own, so that a dead device keeps neither
//!   the runtime nor another volume waiting; external programs run without a shell and with a time limit.
//! * **One way to the machine.** System calls and programs go through [`Machine`], which a test may replace.
//! * No gRPC and no OpenStack in here.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests lay out machines in files"
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
pub use filesystem::{FilesystemError, FsType, MkfsOptionError, MkfsOptions, Prepare, Prepared};
pub use firmware::Firmware;
pub use host::Host;
pub use machine::{Linux, Machine, exec_if_confined};
pub use mount::{MountError, MountOptions};
pub use mountinfo::{Mount, MountTable};
pub use offload::OffloadError;
pub use paths::HostPaths;
pub use tool::{ToolError, Tools};
pub use usage::{Usage, UsageError};
