// SPDX-License-Identifier: Apache-2.0
//! State of a node.

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

/// Directories that exist before the driver starts.
const DIRECTORIES: [&str; 5] = [
    "/",
    "/dev",
    "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices",
    "/var/lib/kubelet/plugins/kubernetes.io/csi/pv",
    "/var/lib/kubelet/pods",
];

/// First minor number of block devices on top of disks.
const FIRST_LAYER: u32 = 1_000;

#[derive(Debug)]
pub(super) struct State {
    /// The driver's current process.
    pub(super) process: u64,
    pub(super) hardware: Hardware,
    pub(super) faults: Faults,
    /// Where the next call of the driver is stopped.
    pub(super) trap: Option<Trap>,
    /// Number of running system calls.
    pub(super) calls: u64,
    /// Number of mount, bind and unmount calls.
    pub(super) mount_calls: u64,
    /// The next unused number.
    next: u64,
    pub(super) disks: BTreeMap<u64, Disk>,
    pub(super) openings: BTreeMap<u64, Opening>,
    /// Links of udev, by name.
    pub(super) links: BTreeMap<String, Link>,
    pub(super) superblocks: BTreeMap<u64, Superblock>,
    /// The last mount covers the previous ones.
    pub(super) mounts: Vec<Mount>,
    /// Directories and files of the root file system; `true` is a directory.
    pub(super) tree: BTreeMap<PathBuf, bool>,
    /// Mounts in which pods have open files, one entry per open file.
    pub(super) held: Vec<(PathBuf, u64, Option<u64>)>,
    pub(super) programs: BTreeMap<u64, AbortHandle>,
}

/// A disk that is plugged in, or that is still open.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) volume_id: String,
    pub(super) hardware: Hardware,
    /// Index among all disks, which determines name and number.
    pub(super) index: u32,
    /// Current size, and size when it was plugged in.
    pub(super) bytes: u64,
    pub(super) first_bytes: u64,
    /// Size in the storage, and sizes that SCSI paths show since their last rescan.
    pub(super) storage_bytes: u64,
    pub(super) path_bytes: [u64; 2],
    /// A temporary wrong size that the kernel shows, and its end.
    pub(super) late: Option<(u64, Instant)>,
    /// Time when multipathd has created the map of the paths.
    pub(super) appears: Instant,
    /// Value of `blockdev --setro`.
    pub(super) read_only: bool,
    pub(super) medium: Arc<Medium>,
    pub(super) cache: PageCache,
    pub(super) plugged: bool,
    /// Whether an agent has activated a block device on top of it.
    pub(super) has_layer: bool,
}

impl Disk {
    pub(super) fn name(&self) -> String {
        self.hardware.disk_name(self.index)
    }

    pub(super) fn number(&self) -> (u32, u32) {
        self.hardware.number(self.index)
    }

    /// Returns its paths, if the kernel shows paths.
    pub(super) fn paths(&self) -> Vec<DiskPath> {
        if self.plugged {
            self.hardware.paths(self.index)
        } else {
            Vec::new()
        }
    }

    /// Returns name and number of the block device on top of it, if any.
    pub(super) fn layer(&self) -> Option<(String, u32)> {
        let number = FIRST_LAYER + self.index;
        (self.has_layer && self.plugged).then(|| (format!("dm-{number}"), number))
    }

    /// Whether the kernel shows the disk.
    pub(super) fn is_shown(&self) -> bool {
        self.plugged && self.appears <= Instant::now()
    }

    /// Returns the size that the kernel shows.
    pub(super) fn size(&self) -> u64 {
        match self.late {
            _ if !self.plugged => 0,
            Some((shown, until)) if Instant::now() < until => shown,
            _ => self.bytes,
        }
    }
}

/// The opener of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opener {
    Process(u64),
    Program,
    Pod,
    /// An agent of the node that is neither the driver nor a pod.
    Agent,
}

#[derive(Debug)]
pub(super) struct Opening {
    pub(super) disk: u64,
    pub(super) by: Opener,
    /// Number of the opened node: of the disk or of a path.
    pub(super) number: (u32, u32),
    /// Whether the opener has the kernel's exclusive claim.
    pub(super) alone: bool,
}

/// A udev link, which changes some time after the disk.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) before: Option<String>,
    pub(super) after: Option<String>,
    pub(super) changes: Instant,
}

impl Link {
    /// Returns the name of the disk that the link currently refers to.
    pub(super) fn target(&self) -> Option<&str> {
        let now = if Instant::now() < self.changes {
            &self.before
        } else {
            &self.after
        };
        now.as_deref()
    }
}

/// A mounted file system.
#[derive(Debug)]
pub(super) struct Superblock {
    pub(super) disk: u64,
    pub(super) fs_type: FsType,
    pub(super) uuid: [u8; 16],
    pub(super) read_only: bool,
    /// Options of its first mount.
    pub(super) options: Vec<String>,
    /// Source of its first mount.
    pub(super) source: PathBuf,
    /// Keys that pods have written and the kernel has not.
    pub(super) dirty: BTreeSet<u64>,
    /// Targets of mounts in an agent's private mount namespace. They end when their directory is removed.
    pub(super) copies: BTreeSet<PathBuf>,
    /// Whether an agent has an open file, even without a mount.
    pub(super) is_open: bool,
}

impl Superblock {
    /// Whether an agent uses it outside of the driver's mount namespace.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.is_open || !self.copies.is_empty()
    }
}

/// The root of a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Root {
    /// The file system of a disk.
    Volume(u64),
    /// A device node in `/dev`: name and number.
    Device(String, (u32, u32)),
    /// A part of the root file system.
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

    /// Returns the visible disk with this name.
    pub(super) fn disk_named(&self, name: &str) -> Option<(u64, &Disk)> {
        let mut disks = self.disks.iter().filter(|(_, disk)| disk.is_shown());
        disks
            .find(|(_, disk)| disk.name() == name)
            .map(|(id, disk)| (*id, disk))
    }

    /// Returns the disk that has a path with this name.
    pub(super) fn path_named(&self, name: &str) -> Option<(u64, DiskPath)> {
        self.disks.iter().find_map(|(id, disk)| {
            let path = disk.paths().into_iter().find(|path| path.name == name)?;
            Some((*id, path))
        })
    }

    /// Returns the disk with this number, or with a path of this number. A bind-mounted node opens this disk.
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

    /// Returns the superblock of the mounted file system of a disk.
    pub(super) fn superblock_of(&self, disk: u64) -> Option<u64> {
        let mut found = self.superblocks.iter().filter(|(_, found)| found.disk == disk);
        found.next().map(|(id, _)| *id)
    }

    /// Whether an exclusive open of the disk is refused.
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

    pub(super) fn close_all(&mut self, whose: impl Fn(Opener) -> bool) {
        self.openings.retain(|_, opening| !whose(opening.by));
        self.write_unused();
    }

    /// Writes back dirty data of unused disks, as the last close does. Frees names and numbers of unplugged ones.
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

    /// Returns the topmost mount at a path.
    pub(super) fn mount_at(&self, path: &Path) -> Option<&Mount> {
        self.mounts.iter().rev().find(|mount| mount.target == path)
    }

    /// Whether the disk below a mounted file system was removed.
    pub(super) fn is_dead(&self, superblock: u64) -> bool {
        let disk = self
            .superblocks
            .get(&superblock)
            .and_then(|superblock| self.disks.get(&superblock.disk));
        !disk.is_some_and(|disk| disk.plugged)
    }
}
