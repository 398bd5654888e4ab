// SPDX-License-Identifier: Apache-2.0
//! Where the kernel shows this machine.

use std::path::PathBuf;

/// Directories of the kernel's file systems. Tests replace them with a machine in files.
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
