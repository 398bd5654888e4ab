// SPDX-License-Identifier: Apache-2.0
//! One line of mountinfo.

use std::ffi::OsStr;
use std::path::PathBuf;

use crate::FsType;

/// One mount, as in proc(5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Unique while the mount exists.
    pub id: u64,
    /// The mount that this one is mounted on.
    pub parent: u64,
    /// Major and minor number of the file system (`st_dev` of its files).
    pub device: (u32, u32),
    /// The directory or file of the file system that is seen at [`Mount::target`].
    pub root: PathBuf,
    /// Where it is mounted.
    pub target: PathBuf,
    /// Options of this mount alone, such as `ro,nosuid`.
    pub options: String,
    /// `ext4`, `xfs`, `devtmpfs` …
    pub fs_type: String,
    /// What was mounted, as the file system names it.
    pub source: PathBuf,
    /// Options of the file system, shared by all its mounts.
    pub super_options: String,
}

impl Mount {
    /// Whether this shows the disk of the kernel's `name`, with this number: its file system, or its node in a file system of
    /// devices.
    pub(crate) fn shows(&self, name: &str, number: Option<(u32, u32)>) -> bool {
        self.is_of_disk(name, number) || self.root.file_name() == Some(OsStr::new(name))
    }

    /// Whether this is of the disk's file system.
    pub(crate) fn is_of_disk(&self, name: &str, number: Option<(u32, u32)>) -> bool {
        Some(self.device) == number
            || (self.fs_type == FsType::Btrfs.name() && self.source.file_name() == Some(OsStr::new(name)))
    }

    /// Whether writes are refused here, by this mount or by the whole file system.
    pub fn is_read_only(&self) -> bool {
        self.was_mounted_read_only() || has_option(&self.super_options, "ro")
    }

    /// Whether this mount was made read-only, as opposed to a file system that the kernel turned read-only after an error.
    pub fn was_mounted_read_only(&self) -> bool {
        has_option(&self.options, "ro")
    }

    /// Whether the kernel refuses writes here although they were allowed when it was mounted: its answer to an error.
    /// ext4 says so in an option of its own from Linux 6.15 on.
    pub fn was_turned_read_only(&self) -> bool {
        !self.was_mounted_read_only()
            && (has_option(&self.super_options, "ro") || has_option(&self.super_options, "emergency_ro"))
    }
}

fn has_option(options: &str, wanted: &str) -> bool {
    options.split(',').any(|option| option == wanted)
}
