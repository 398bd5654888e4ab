// SPDX-License-Identifier: Apache-2.0
//! The usage of a volume.

/// Usage of a file system in bytes and inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub bytes_total: u64,
    /// Used bytes, without reserved blocks.
    pub bytes_used: u64,
    /// Bytes that an unprivileged user may still write.
    pub bytes_available: u64,
    pub inodes_total: u64,
    pub inodes_used: u64,
    pub inodes_free: u64,
}
