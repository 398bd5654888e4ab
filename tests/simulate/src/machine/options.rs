// SPDX-License-Identifier: Apache-2.0
//! Mounts from a pod's perspective: options of the mount and of its file system.

use std::path::Path;

use rustix::mount::MountFlags;

use super::SimMachine;
use super::state::Root;

/// Options that belong to the mount and not to the file system.
const FLAGS: [(&str, MountFlags); 7] = [
    ("ro", MountFlags::RDONLY),
    ("nosuid", MountFlags::NOSUID),
    ("nodev", MountFlags::NODEV),
    ("noexec", MountFlags::NOEXEC),
    ("noatime", MountFlags::NOATIME),
    ("nodiratime", MountFlags::NODIRATIME),
    ("strictatime", MountFlags::STRICTATIME),
];

/// A mount of a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownMount {
    flags: MountFlags,
    options: Vec<String>,
    /// Whether the file system itself is mounted read-only.
    pub has_read_only_filesystem: bool,
    /// Whether an agent, or a previous pod, has already mounted the file system.
    pub is_shared: bool,
}

impl ShownMount {
    /// Whether pods cannot write.
    pub fn is_read_only(&self) -> bool {
        self.has_read_only_filesystem || self.flags.contains(MountFlags::RDONLY)
    }

    /// Whether the mount or the file system has an option.
    pub fn has_option(&self, option: &str) -> bool {
        let flag = FLAGS.iter().find(|(name, _)| *name == option);
        flag.map_or_else(
            || self.options.iter().any(|present| present == option),
            |(_, flag)| self.flags.contains(*flag),
        )
    }
}

impl SimMachine {
    /// Returns the mount of the volume at a path. `None` without a file system.
    pub fn shown_mount(&self, path: &Path) -> Option<ShownMount> {
        let state = self.node.state();
        let mount = state.mount_at(path)?;
        let Root::Volume(id) = mount.root else { return None };
        let superblock = state.superblocks.get(&id)?;
        Some(ShownMount {
            flags: mount.flags,
            options: superblock.options.clone(),
            has_read_only_filesystem: superblock.read_only,
            is_shared: superblock.is_elsewhere(),
        })
    }

    /// Returns the maximum number of volumes of this node.
    pub fn room(&self) -> usize {
        self.node.state().room()
    }
}
