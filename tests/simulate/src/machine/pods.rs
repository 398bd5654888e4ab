// SPDX-License-Identifier: Apache-2.0
//! Operations of pods on published volumes.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::MountFlags;
use tokio::time::sleep;

use super::cache::NO_FILESYSTEM;
use super::medium::Medium;
use super::state::{Opener, Opening, Root, State};
use super::{SimMachine, fail};

/// Delay of the kernel's write-back, and its maximum duration.
const WRITE_BACK: Duration = Duration::from_secs(30);
const SLOW_WRITE_BACK: Duration = Duration::from_mins(1);

/// The volume at a pod's path.
struct VisibleVolume {
    mount: u64,
    /// The file system, if there is one.
    superblock: Option<u64>,
    disk: u64,
    volume_id: String,
    medium: Arc<Medium>,
    /// UUID of the file system; zeros for a device.
    owner: [u8; 16],
    /// The error of writes, if they are refused.
    refusal: Option<Errno>,
}

impl SimMachine {
    /// Writes `key` durably to the volume that is mounted or bound at `path`. Fails with `ENOENT` without a volume,
    /// `EROFS` or `EPERM` if it is read-only, and `EIO` if its disk was removed.
    pub fn write(&self, path: &Path, key: u64) -> io::Result<()> {
        let mut state = self.node.state();
        let seen = state.seen(path)?;
        if let Some(errno) = seen.refusal {
            return fail(errno);
        }
        if seen.superblock.is_none()
            && let Some(disk) = state.disks.get_mut(&seen.disk)
        {
            disk.flush();
        }
        seen.medium.write_key(seen.owner, key);
        Ok(())
    }

    /// Writes `key` without `fsync`. For up to 90 s, the key is only in the node's memory. A crash of the node or a
    /// removal of the disk then loses it. An unmount of the last mount, or the last close of a device, writes it back.
    pub fn write_cached(&self, path: &Path, key: u64) -> io::Result<()> {
        let mut state = self.node.state();
        let seen = state.seen(path)?;
        if let Some(errno) = seen.refusal {
            return fail(errno);
        }
        seen.medium.holds_data_now();
        match seen.superblock {
            Some(id) => drop(state.superblocks.get_mut(&id).map(|found| found.dirty.insert(key))),
            None => drop(state.disks.get_mut(&seen.disk).map(|disk| disk.cache_key(key))),
        }
        drop(state);
        let node = self.node.clone();
        let time = WRITE_BACK + node.draw(SLOW_WRITE_BACK);
        tokio::spawn(async move {
            sleep(time).await;
            let mut state = node.state();
            match seen.superblock {
                Some(superblock) => state.write_back(superblock),
                None => state.write_back_device(seen.disk),
            }
        });
        Ok(())
    }

    /// Reads every key of the volume that is mounted or bound at `path`, written by any node. Errors are those of
    /// [`SimMachine::write`].
    pub fn read(&self, path: &Path) -> io::Result<BTreeSet<u64>> {
        let state = self.node.state();
        let seen = state.seen(path)?;
        let mut keys = seen.medium.keys(seen.owner);
        let superblock = seen
            .superblock
            .and_then(|superblock| state.superblocks.get(&superblock));
        keys.extend(superblock.iter().flat_map(|superblock| &superblock.dirty));
        if seen.superblock.is_none() {
            keys.extend(state.disks.get(&seen.disk).iter().flat_map(|disk| disk.cached_keys()));
        }
        Ok(keys)
    }

    /// Returns the paths at which the volume is mounted or bound on this node, including dead mounts of an unplugged
    /// disk.
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

    /// Whether a mount, a program or a pod of this node uses the volume's disk. Other mount namespaces do not count.
    pub fn is_used(&self, volume_id: &str) -> bool {
        let state = self.node.state();
        let Some(disk) = state.disk_of_volume(volume_id) else {
            return false;
        };
        let is_open = |opening: &Opening| opening.disk == disk && matches!(opening.by, Opener::Program | Opener::Pod);
        let superblock = state.superblock_of(disk).and_then(|id| state.superblocks.get(&id));
        superblock.is_some_and(|found| !found.is_elsewhere()) || state.openings.values().any(is_open)
    }

    /// Returns the volumes whose disks are attached to this node.
    pub fn volumes(&self) -> Vec<String> {
        let state = self.node.state();
        let plugged = state.disks.values().filter(|disk| disk.plugged);
        plugged.map(|disk| disk.volume_id.clone()).collect()
    }

    /// Returns the id of the volume at `path`.
    pub fn volume_at(&self, path: &Path) -> io::Result<String> {
        Ok(self.node.state().seen(path)?.volume_id)
    }

    /// Opens a file or the device at a path for a pod, until [`SimMachine::release`] or a reboot. An unmount fails as
    /// busy meanwhile.
    pub fn hold(&self, path: &Path) -> io::Result<()> {
        let mut state = self.node.state();
        let seen = state.seen(path)?;
        let opening = seen.superblock.is_none().then(|| state.number());
        if let Some(opening) = opening {
            let number = state.disks.get(&seen.disk).map(super::state::Disk::number);
            let opened = Opening {
                disk: seen.disk,
                by: Opener::Pod,
                number: number.unwrap_or_default(),
                alone: false,
            };
            state.openings.insert(opening, opened);
        }
        state.held.push((path.to_owned(), seen.mount, opening));
        Ok(())
    }

    /// Closes all open files of pods below `path`.
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
    fn seen(&self, path: &Path) -> io::Result<VisibleVolume> {
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
        let disk_state = self.disks.get(&disk).ok_or(Errno::IO)?;
        Ok(VisibleVolume {
            mount: mount.id,
            superblock,
            disk,
            volume_id: disk_state.volume_id.clone(),
            medium: disk_state.medium.clone(),
            owner,
            refusal: read_only.or(disk_state.read_only.then_some(Errno::PERM)),
        })
    }
}
