// SPDX-License-Identifier: Apache-2.0
//! Explains why the kernel refused a mount.

use rustix::io::Errno;

use crate::FsType;
use crate::tool::excerpt;

/// Returns the message of the kernel, with the remedy for its error number.
pub(super) fn explain(errno: Errno, fs_type: FsType, messages: &[String]) -> String {
    let advice = match errno {
        Errno::NODEV => "this node's kernel has no such file system: load its module, or choose another fsType",
        Errno::EXIST if fs_type == FsType::Btrfs => {
            "a file system with the same UUID is mounted on this node, and only kernels from 6.7 on mount both; if the volume is a clone or the \
             source of one, end the pods of the other volume on this node, or use another node"
        }
        Errno::BUSY => "the device is in use by something else, or is mounted with other options",
        Errno::UCLEAN if fs_type == FsType::Xfs => {
            "the file system is damaged: detach the volume from workloads and run xfs_repair on it; a snapshot first is wise"
        }
        Errno::UCLEAN => "the file system is damaged: run e2fsck on it; a snapshot first is wise",
        Errno::IO => "the device cannot be read or written; see the kernel's log of the node and the volume in Cinder",
        Errno::ROFS | Errno::ACCESS => "the device can only be read; mount it read-only",
        Errno::INVAL if fs_type == FsType::Xfs => {
            "an option of mountOptions may be unknown to this file system, the file system may have features that this node's kernel does \
             not know (see the kernel's log; mkfsOptions of the StorageClass selects features for new volumes), or it is damaged"
        }
        Errno::INVAL => "an option of mountOptions may be unknown to this file system, or the file system is damaged",
        _ => "see the kernel's log of the node",
    };
    if messages.is_empty() {
        advice.to_owned()
    } else {
        format!("the kernel says: {} ({advice})", excerpt(&messages.join("\n")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explains_second_btrfs_with_same_uuid() {
        let reason = explain(Errno::EXIST, FsType::Btrfs, &[]);
        assert!(reason.contains("6.7") && reason.contains("the same UUID"), "{reason}");
        assert!(!explain(Errno::EXIST, FsType::Ext4, &[]).contains("UUID"));
    }
}
