// SPDX-License-Identifier: Apache-2.0
//! What a node remembers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use csi_host::FsType;
use rustix::mount::MountFlags;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::Faults;
use super::cache::PageCache;
use super::hardware::{DiskPath, Hardware};
use super::medium::Medium;
use super::trap::Trap;

/// The directories that there are before a driver comes.
const DIRECTORIES: [&str; 5] = [
    "/",
    "/dev",
    "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices",
    "/var/lib/kubelet/plugins/kubernetes.io/csi/pv",
    "/var/lib/kubelet/pods",
];

/// Block devices on top of disks are numbered from here on.
const FIRST_LAYER: u32 = 1_000;

#[derive(Debug)]
pub(super) struct State {
    /// The driver's process that runs now.
    pub(super) process: u64,
    pub(super) hardware: Hardware,
    pub(super) faults: Faults,
    /// Where the next call of the driver is stopped.
    pub(super) trap: Option<Trap>,
    /// System calls that have begun and not ended.
    pub(super) calls: u64,
    /// How often something was mounted, bound or unmounted.
    pub(super) mount_calls: u64,
    /// The next number for whatever wants one.
    next: u64,
    pub(super) disks: BTreeMap<u64, Disk>,
    pub(super) openings: BTreeMap<u64, Opening>,
    /// udev's, by name.
    pub(super) links: BTreeMap<String, Link>,
    pub(super) superblocks: BTreeMap<u64, Superblock>,
    /// The last covers those before it.
    pub(super) mounts: Vec<Mount>,
    /// The root's own directories and files; `true` is a directory.
    pub(super) tree: BTreeMap<PathBuf, bool>,
    /// Mounts in which pods have files open, each as often as it stands here.
    pub(super) held: Vec<(PathBuf, u64, Option<u64>)>,
    pub(super) programs: BTreeMap<u64, AbortHandle>,
}

/// A disk that is plugged in, or that is still open.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) volume_id: String,
    pub(super) hardware: Hardware,
    /// Its place among all disks, which gives it its name and its number.
    pub(super) index: u32,
    /// What it has, and what it had when it was plugged in.
    pub(super) bytes: u64,
    pub(super) first_bytes: u64,
    /// The size in the storage, and the size that SCSI paths show since their last rescan.
    pub(super) storage_bytes: u64,
    pub(super) path_bytes: [u64; 2],
    /// What the kernel shows instead, and until when.
    pub(super) late: Option<(u64, Instant)>,
    /// When multipathd has created the map of the paths.
    pub(super) appears: Instant,
    /// What `blockdev --setro` sets.
    pub(super) read_only: bool,
    pub(super) medium: Arc<Medium>,
    pub(super) cache: PageCache,
    pub(super) plugged: bool,
    /// An agent has activated a block device on top of it.
    pub(super) has_layer: bool,
}

impl Disk {
    pub(super) fn name(&self) -> String {
        self.hardware.disk_name(self.index)
    }

    pub(super) fn number(&self) -> (u32, u32) {
        self.hardware.number(self.index)
    }

    /// Its paths, where the kernel shows paths.
    pub(super) fn paths(&self) -> Vec<DiskPath> {
        if self.plugged {
            self.hardware.paths(self.index)
        } else {
            Vec::new()
        }
    }

    /// The name and the number of the block device on top of it, if there is one.
    pub(super) fn layer(&self) -> Option<(String, u32)> {
        let number = FIRST_LAYER + self.index;
        (self.has_layer && self.plugged).then(|| (format!("dm-{number}"), number))
    }

    /// Whether the kernel shows it.
    pub(super) fn is_shown(&self) -> bool {
        self.plugged && self.appears <= Instant::now()
    }

    /// The size that the kernel shows.
    pub(super) fn size(&self) -> u64 {
        match self.late {
            _ if !self.plugged => 0,
            Some((shown, until)) if Instant::now() < until => shown,
            _ => self.bytes,
        }
    }
}

/// Who has a device open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Process(u64),
    Program,
    Pod,
    /// An agent of the node that is neither the driver nor a pod.
    Agent,
}

#[derive(Debug)]
pub(super) struct Opening {
    pub(super) disk: u64,
    pub(super) by: By,
    /// The number of the node that was opened: of the disk or of a path.
    pub(super) number: (u32, u32),
    /// With the kernel's claim.
    pub(super) alone: bool,
}

/// A link changes a while after the disk did.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) before: Option<String>,
    pub(super) after: Option<String>,
    pub(super) changes: Instant,
}

impl Link {
    /// The name of the disk that it leads to now.
    pub(super) fn target(&self) -> Option<&str> {
        let now = if Instant::now() < self.changes {
            &self.before
        } else {
            &self.after
        };
        now.as_deref()
    }
}

/// A file system that is mounted somewhere.
#[derive(Debug)]
pub(super) struct Superblock {
    pub(super) disk: u64,
    pub(super) fs_type: FsType,
    pub(super) uuid: [u8; 16],
    pub(super) read_only: bool,
    /// The options of its first mount.
    pub(super) options: Vec<String>,
    /// What was mounted first.
    pub(super) source: PathBuf,
    /// What pods have written and the kernel has not.
    pub(super) dirty: BTreeSet<u64>,
    /// Targets of mounts in a mount namespace of its own, which an agent has. They end with their directory.
    pub(super) copies: BTreeSet<PathBuf>,
    /// Whether an agent has a file open, by a mount that may be gone.
    pub(super) is_open: bool,
}

impl Superblock {
    /// Whether an agent uses it in a mount namespace of its own.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.is_open || !self.copies.is_empty()
    }
}

/// What is seen at a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Root {
    /// The file system of a disk.
    Volume(u64),
    /// A device's node in `/dev`: its name and its number.
    Device(String, (u32, u32)),
    /// A part of the root's tree.
    Tree(PathBuf),
}

#[derive(Debug)]
pub(super) struct Mount {
    pub(super) id: u64,
    pub(super) root: Root,
    pub(super) target: PathBuf,
    pub(super) flags: MountFlags,
}

impl State {
    pub(super) fn booted(hardware: Hardware) -> Self {
        let mut tree = BTreeMap::new();
        for directory in DIRECTORIES {
            tree.extend(Path::new(directory).ancestors().map(|path| (path.to_owned(), true)));
        }
        Self {
            process: 0,
            hardware,
            faults: Faults::default(),
            trap: None,
            calls: 0,
            mount_calls: 0,
            next: 100,
            disks: BTreeMap::new(),
            openings: BTreeMap::new(),
            links: BTreeMap::new(),
            superblocks: BTreeMap::new(),
            mounts: Vec::new(),
            tree,
            held: Vec::new(),
            programs: BTreeMap::new(),
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The disk that the kernel shows under this name.
    pub(super) fn disk_named(&self, name: &str) -> Option<(u64, &Disk)> {
        let mut disks = self.disks.iter().filter(|(_, disk)| disk.is_shown());
        disks
            .find(|(_, disk)| disk.name() == name)
            .map(|(id, disk)| (*id, disk))
    }

    /// The disk that has a path of this name.
    pub(super) fn path_named(&self, name: &str) -> Option<(u64, DiskPath)> {
        self.disks.iter().find_map(|(id, disk)| {
            let path = disk.paths().into_iter().find(|path| path.name == name)?;
            Some((*id, path))
        })
    }

    /// The disk with this number, or with a path of this number. A node that a bind mount shows opens it.
    pub(super) fn disk_numbered(&self, number: (u32, u32)) -> Option<u64> {
        let is_numbered = |disk: &Disk| {
            let is_path = || disk.paths().iter().any(|path| path.number == number);
            (disk.is_shown() && disk.number() == number) || (disk.hardware.shows_paths() && is_path())
        };
        let mut disks = self.disks.iter().filter(|(_, disk)| disk.plugged);
        disks.find(|(_, disk)| is_numbered(disk)).map(|(id, _)| *id)
    }

    pub(super) fn disk_of_volume(&self, volume_id: &str) -> Option<u64> {
        let mut disks = self.disks.iter().filter(|(_, disk)| disk.plugged);
        disks.find(|(_, disk)| disk.volume_id == volume_id).map(|(id, _)| *id)
    }

    /// The superblock of the mounted file system of a disk.
    pub(super) fn superblock_of(&self, disk: u64) -> Option<u64> {
        let mut found = self.superblocks.iter().filter(|(_, found)| found.disk == disk);
        found.next().map(|(id, _)| *id)
    }

    /// Whether a caller that needs the disk alone is refused.
    pub(super) fn is_claimed(&self, disk: u64) -> bool {
        let mut openings = self.openings.values();
        self.superblock_of(disk).is_some()
            || openings.any(|opening| opening.alone && opening.disk == disk)
            || self.disks.get(&disk).is_some_and(|disk| disk.has_layer)
    }

    /// Closes an opening, if it is still open.
    pub(super) fn close(&mut self, opening: u64) {
        if self.openings.remove(&opening).is_some() {
            self.write_unused();
        }
    }

    pub(super) fn close_all(&mut self, whose: impl Fn(By) -> bool) {
        self.openings.retain(|_, opening| !whose(opening.by));
        self.write_unused();
    }

    /// Writes back what is dirty of disks without a user, as the last closing does, and frees names and numbers of those that are
    /// unplugged.
    pub(super) fn write_unused(&mut self) {
        let openings = self.openings.values().map(|opening| opening.disk);
        let mounted = self.superblocks.values().map(|superblock| superblock.disk);
        let mut used: BTreeSet<u64> = openings.chain(mounted).collect();
        used.extend(self.disks.iter().filter(|(_, disk)| disk.has_layer).map(|(id, _)| *id));
        let unused = self.disks.iter_mut().filter(|(id, _)| !used.contains(id));
        for (_, disk) in unused.filter(|(_, disk)| disk.plugged) {
            disk.flush();
        }
        self.disks.retain(|id, disk| disk.plugged || used.contains(id));
    }

    /// What is seen at a path: the last of the mounts there.
    pub(super) fn mount_at(&self, path: &Path) -> Option<&Mount> {
        self.mounts.iter().rev().find(|mount| mount.target == path)
    }

    /// Whether the disk below a mounted file system is gone.
    pub(super) fn is_dead(&self, superblock: u64) -> bool {
        let disk = self
            .superblocks
            .get(&superblock)
            .and_then(|superblock| self.disks.get(&superblock.disk));
        !disk.is_some_and(|disk| disk.plugged)
    }
}
