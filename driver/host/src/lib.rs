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
mod network;
mod offload;
mod timing;

use std::path::PathBuf;
use std::sync::Arc;

pub use config_drive::{ConfigDrive, ConfigDriveError};
pub use device::{Device, DeviceError, PinnedDevice};
pub use filesystem::{FilesystemError, FsType, MkfsOptionError, MkfsOptions, Prepare, Prepared};
pub use firmware::Firmware;
pub use machine::{Linux, Machine, exec_if_confined};
pub use mount::{MountError, MountOptions};
pub use mountinfo::{Mount, MountTable};
pub use offload::OffloadError;
pub use tool::{ToolError, Tools};
pub use usage::{Usage, UsageError};

/// Where the kernel's views of this machine are. A parameter, so that a test can lay out a machine of its own.
#[derive(Debug, Clone)]
pub struct HostPaths {
    /// sysfs, normally `/sys`.
    pub sys: PathBuf,
    /// The device directory, normally `/dev`.
    pub dev: PathBuf,
    /// procfs, normally `/proc`.
    pub proc: PathBuf,
}

impl Default for HostPaths {
    fn default() -> Self {
        Self {
            sys: "/sys".into(),
            dev: "/dev".into(),
            proc: "/proc".into(),
        }
    }
}

/// This machine. Cheap to clone; all clones share the bookkeeping of hung calls.
#[derive(Debug, Clone)]
pub struct Host {
    inner: Arc<Inner>,
    default_fs_type: FsType,
}

#[derive(Debug)]
struct Inner {
    paths: HostPaths,
    tools: Tools,
    machine: Arc<dyn Machine>,
    calls: offload::Calls,
    stale_links: device::StaleLinks,
}

impl Host {
    /// A host seen through `paths`, with the distribution's tools from `PATH`.
    pub fn new(paths: HostPaths) -> Self {
        Self::with_tools(paths, Tools::default())
    }

    /// The same with tools named one by one.
    pub fn with_tools(paths: HostPaths, tools: Tools) -> Self {
        Self::on(Arc::new(Linux::default()), paths, tools)
    }

    /// The same on another machine than the one that this process runs on.
    pub fn on(machine: Arc<dyn Machine>, paths: HostPaths, tools: Tools) -> Self {
        Self {
            inner: Arc::new(Inner {
                paths,
                tools,
                calls: offload::Calls::on(machine.clone()),
                machine,
                stale_links: device::StaleLinks::default(),
            }),
            default_fs_type: FsType::default(),
        }
    }

    /// The same, which makes this file system where none is asked for.
    #[must_use]
    pub fn with_default_fs_type(self, default_fs_type: FsType) -> Self {
        Self {
            default_fs_type,
            ..self
        }
    }

    fn machine(&self) -> &dyn Machine {
        &*self.inner.machine
    }

    /// The paths that this host is seen through.
    pub fn paths(&self) -> &HostPaths {
        &self.inner.paths
    }
}
