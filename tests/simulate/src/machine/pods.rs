// SPDX-License-Identifier: Apache-2.0
//! What pods do with what the driver shows them.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::MountFlags;
use tokio::time::sleep;

use super::medium::Medium;
use super::state::{By, Opening, Root, State, Superblock};
use super::{SimMachine, fail};

/// The owner of what is written to a device itself.
const NO_FILESYSTEM: [u8; 16] = [0; 16];

/// How long the kernel keeps what was written before it writes it back.
const WRITE_BACK: Duration = Duration::from_secs(30);

/// What is at a pod's path.
struct Seen {
    mount: u64,
    /// The file system, where it is one.
    superblock: Option<u64>,
    disk: u64,
    volume_id: String,
    medium: Arc<Medium>,
    /// The UUID of the file system, zeros for a device.
    owner: [u8; 16],
    /// Why nothing can be written, if that is so.
    refusal: Option<Errno>,
}

impl SimMachine {
    /// Writes `key` durably into the volume that is mounted or bound at `path`. `ENOENT` where none is, `EROFS` or `EPERM` where it
    /// is read-only, `EIO` where its disk is gone.
    pub fn write(&self, path: &Path, key: u64) -> io::Result<()> {
        let state = self.node.state();
        let seen = state.seen(path)?;
        if let Some(errno) = seen.refusal {
            return fail(errno);
        }
        seen.medium.write_key(seen.owner, key);
        Ok(())
    }

    /// The same without `fsync`: for up to 30 s the key is in the node's memory alone, and is lost with the node or the disk. An
    /// unmount of the file system's last mount writes it back. What is written to a device is durable at once.
    pub fn write_cached(&self, path: &Path, key: u64) -> io::Result<()> {
        let mut state = self.node.state();
        let seen = state.seen(path)?;
        let Some(superblock) = seen.superblock else {
            drop(state);
            return self.write(path, key);
        };
        if let Some(errno) = seen.refusal {
            return fail(errno);
        }
        seen.medium.holds_data_now();
        if let Some(found) = state.superblocks.get_mut(&superblock) {
            found.dirty.insert(key);
        }
        let node = self.node.clone();
        tokio::spawn(async move {
            sleep(WRITE_BACK).await;
            node.state().write_back(superblock);
        });
        Ok(())
    }

    /// Every key that was written into the volume that is mounted or bound at `path`, by whichever node. Errors as those of
    /// [`SimMachine::write`].
    pub fn read(&self, path: &Path) -> io::Result<BTreeSet<u64>> {
        let state = self.node.state();
        let seen = state.seen(path)?;
        let mut keys = seen.medium.keys(seen.owner);
        let superblock = seen
            .superblock
            .and_then(|superblock| state.superblocks.get(&superblock));
        keys.extend(superblock.iter().flat_map(|superblock| &superblock.dirty));
        Ok(keys)
    }

    /// Where the volume is mounted or bound on this node, dead mounts of an unplugged disk among them.
    pub fn places(&self, volume_id: &str) -> Vec<PathBuf> {
        let state = self.node.state();
        let is_volume = |disk: Option<u64>| {
            let disk = disk.and_then(|disk| state.disks.get(&disk));
            disk.is_some_and(|disk| disk.volume_id == volume_id)
        };
        let shown = state.mounts.iter().filter(|mount| match &mount.root {
            Root::Volume(id) => is_volume(state.superblocks.get(id).map(|superblock| superblock.disk)),
            Root::Device(_, number) => is_volume(state.disk_numbered(*number)),
            Root::Tree(_) => false,
        });
        shown.map(|mount| mount.target.clone()).collect()
    }

    /// Whether something of this node still uses the volume's disk: a mount, a program, a pod. Another mount namespace does not count.
    pub fn is_used(&self, volume_id: &str) -> bool {
        let state = self.node.state();
        let Some(disk) = state.disk_of_volume(volume_id) else {
            return false;
        };
        let is_open = |opening: &Opening| opening.disk == disk && !matches!(opening.by, By::Process(_));
        let superblock = state.superblock_of(disk).and_then(|id| state.superblocks.get(&id));
        superblock.is_some_and(|found| !found.is_elsewhere()) || state.openings.values().any(is_open)
    }

    /// The volumes whose disks this node has.
    pub fn volumes(&self) -> Vec<String> {
        let state = self.node.state();
        let plugged = state.disks.values().filter(|disk| disk.plugged);
        plugged.map(|disk| disk.volume_id.clone()).collect()
    }

    /// An agent with a mount namespace of its own takes a copy of the mounts of a volume. The device stays in use when it is unmounted
    /// here, until the directories of the mounts are removed, [`SimMachine::unmount_elsewhere`] or a reboot. Nothing mounted is fine.
    pub fn mount_elsewhere(&self, volume_id: &str) {
        self.change_superblocks(volume_id, |found, targets| found.copies.extend(targets));
    }

    /// The same agent opens a file of the volume. That keeps the device in use without any mount.
    pub fn open_elsewhere(&self, volume_id: &str) {
        self.change_superblocks(volume_id, |found, _| found.is_open = true);
    }

    /// The agent is gone.
    pub fn unmount_elsewhere(&self, volume_id: &str) {
        self.change_superblocks(volume_id, |found, _| {
            found.copies.clear();
            found.is_open = false;
        });
    }

    /// No agent is left.
    pub fn unmount_all_elsewhere(&self) {
        let volumes: BTreeSet<String> = {
            let state = self.node.state();
            state.disks.values().map(|disk| disk.volume_id.clone()).collect()
        };
        for volume in volumes {
            self.unmount_elsewhere(&volume);
        }
    }

    /// Changes the superblocks of a volume. The second argument has the targets of the mounts.
    fn change_superblocks(&self, volume_id: &str, change: impl Fn(&mut Superblock, Vec<PathBuf>)) {
        let mut state = self.node.state();
        let disks = state.disks.iter().filter(|(_, disk)| disk.volume_id == volume_id);
        let disks: BTreeSet<u64> = disks.map(|(id, _)| *id).collect();
        let superblocks = state
            .superblocks
            .iter()
            .filter(|(_, found)| disks.contains(&found.disk));
        for superblock in superblocks.map(|(id, _)| *id).collect::<Vec<u64>>() {
            let mounts = state
                .mounts
                .iter()
                .filter(|mount| mount.root == Root::Volume(superblock));
            let targets = mounts.map(|mount| mount.target.clone()).collect();
            if let Some(found) = state.superblocks.get_mut(&superblock) {
                change(found, targets);
            }
            self.node.release(&mut state, superblock);
        }
    }

    /// The id of the volume whose bytes are at `path`.
    pub fn volume_at(&self, path: &Path) -> io::Result<String> {
        Ok(self.node.state().seen(path)?.volume_id)
    }

    /// A pod opens a file there, or the device, and keeps it open until [`SimMachine::release`] or a reboot: an unmount is busy.
    pub fn hold(&self, path: &Path) -> io::Result<()> {
        let mut state = self.node.state();
        let seen = state.seen(path)?;
        let opening = seen.superblock.is_none().then(|| state.number());
        if let Some(opening) = opening {
            let (disk, by, alone) = (seen.disk, By::Pod, false);
            state.openings.insert(opening, Opening { disk, by, alone });
        }
        state.held.push((path.to_owned(), seen.mount, opening));
        Ok(())
    }

    /// All pods close what they have open below `path`. Nothing is fine.
    pub fn release(&self, path: &Path) {
        let mut state = self.node.state();
        let (released, held) = std::mem::take(&mut state.held)
            .into_iter()
            .partition(|(at, _, _)| at.starts_with(path));
        state.held = held;
        let released: Vec<_> = released;
        for opening in released.into_iter().filter_map(|(_, _, opening)| opening) {
            state.close(opening);
        }
    }
}

impl State {
    fn seen(&self, path: &Path) -> io::Result<Seen> {
        let Some(mount) = path.ancestors().find_map(|path| self.mount_at(path)) else {
            return fail(Errno::NOENT);
        };
        let superblock = match mount.root {
            Root::Volume(superblock) => Some(superblock),
            _ => None,
        };
        let (disk, owner, read_only) = match &mount.root {
            Root::Volume(id) => {
                if self.is_dead(*id) {
                    return fail(Errno::IO);
                }
                let superblock = self.superblocks.get(id).ok_or(Errno::IO)?;
                let read_only = superblock.read_only || mount.flags.contains(MountFlags::RDONLY);
                (superblock.disk, superblock.uuid, read_only.then_some(Errno::ROFS))
            }
            Root::Device(_, number) => {
                let id = self.disk_numbered(*number).ok_or(Errno::NXIO)?;
                (id, NO_FILESYSTEM, None)
            }
            Root::Tree(_) => return fail(Errno::NOENT),
        };
        let found = self.disks.get(&disk).ok_or(Errno::IO)?;
        Ok(Seen {
            mount: mount.id,
            superblock,
            disk,
            volume_id: found.volume_id.clone(),
            medium: found.medium.clone(),
            owner,
            refusal: read_only.or(found.read_only.then_some(Errno::PERM)),
        })
    }
}
