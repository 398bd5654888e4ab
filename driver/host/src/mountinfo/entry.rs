// SPDX-License-Identifier: Apache-2.0
//! One line of mountinfo.

use std::ffi::OsStr;
use std::path::PathBuf;

use crate::FsType;

/// A mount, with the fields of proc(5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Unique while the mount exists.
    pub id: u64,
    /// The mount that this one is mounted on.
    pub parent: u64,
    /// Major and minor number of the file system (`st_dev` of its files).
    pub device: (u32, u32),
    /// The directory or file of the file system that is visible at [`Mount::target`].
    pub root: PathBuf,
    /// The mount point.
    pub target: PathBuf,
    /// Options of this mount, such as `ro,nosuid`.
    pub options: String,
    /// `ext4`, `xfs`, `devtmpfs` …
    pub fs_type: String,
    /// The mounted device, as the file system names it.
    pub source: PathBuf,
    /// Options of the file system, shared by all its mounts.
    pub super_options: String,
}

impl Mount {
    /// Whether this mount shows the disk `name` with this number: its file system, or its node in a devtmpfs.
    pub(crate) fn shows(&self, name: &str, number: Option<(u32, u32)>) -> bool {
        self.is_of_disk(name, number) || self.root.file_name() == Some(OsStr::new(name))
    }

    /// Whether this mount shows the file system of the disk.
    pub(crate) fn is_of_disk(&self, name: &str, number: Option<(u32, u32)>) -> bool {
        Some(self.device) == number
            || (self.fs_type == FsType::Btrfs.name() && self.source.file_name() == Some(OsStr::new(name)))
    }

    /// Whether this mount or the whole file system refuses writes.
    pub fn is_read_only(&self) -> bool {
        self.was_mounted_read_only() || has_option(&self.super_options, "ro")
    }

    /// Whether this mount was mounted read-only, as opposed to a file system that became read-only after an error.
    pub fn was_mounted_read_only(&self) -> bool {
        has_option(&self.options, "ro")
    }

    /// Whether the kernel made the file system read-only after an error.
    ///
    /// Since Linux 6.15, ext4 reports this with its own option.
    pub fn was_turned_read_only(&self) -> bool {
        !self.was_mounted_read_only()
            && (has_option(&self.super_options, "ro") || has_option(&self.super_options, "emergency_ro"))
    }
}

fn has_option(options: &str, name: &str) -> bool {
    options.split(',').any(|option| option == name)
}
