// SPDX-License-Identifier: Apache-2.0
//! The usage of a volume.

/// How full a file system is. Bytes and inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Size of the file system.
    pub bytes_total: u64,
    /// What is taken, reserved blocks not counted.
    pub bytes_used: u64,
    /// What an unprivileged user may still write.
    pub bytes_available: u64,
    /// All inodes.
    pub inodes_total: u64,
    /// Inodes taken.
    pub inodes_used: u64,
    /// Inodes left.
    pub inodes_free: u64,
}
