// SPDX-License-Identifier: Apache-2.0
//! Attaches, resizes and detaches disks, and implements operations on open ones.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use csi_host::FsType;
use csi_host::machine::{self, Open};
use rustix::io::Errno;
use tokio::time::Instant;

use super::cache::PageCache;
use super::filesystem::Filesystem;
use super::hardware::Hardware;
use super::holders::Holder;
use super::medium::{Medium, Readable as _};
use super::state::{Disk, Link, Opener, Opening, State};
use super::{Node, SimMachine, fail};

/// Unit of Cinder's sizes.
const GIB: u64 = 1 << 30;
/// Maximum time of udev: usually, and in slow cases.
const UDEV: Duration = Duration::from_millis(300);
const SLOW_UDEV: Duration = Duration::from_mins(1);
/// Maximum time for which the kernel reports a wrong size.
const LATE_SIZE: Duration = Duration::from_secs(30);
/// Time for which a hypervisor that did not complete an expansion reports the old size.
const SHORT: Duration = Duration::from_hours(24);
/// Time of multipathd to create a map, or to resize it after its paths.
const MULTIPATHD: Duration = Duration::from_secs(2);

/// Prefix of the mark of a format.
const MARK: &[u8] = b"cinder-csi: volume";

impl SimMachine {
    /// Attaches a volume of `bytes` to this node. An attached volume is unchanged.
    pub fn plug(&self, volume_id: &str, medium: Arc<Medium>, bytes: u64) {
        let node = &self.node;
        let mut state = node.state();
        if state.disk_of_volume(volume_id).is_some() {
            return;
        }
        // Index 0 is the root disk.
        let is_free = |index: &u32| state.disks.values().all(|disk| disk.index != *index);
        let index = (1..u32::MAX).find(is_free).unwrap_or(u32::MAX);
        let id = state.number();
        let (faults, hardware) = (state.faults, state.hardware);
        if medium.is_blank() && node.happens(faults.foreign) {
            let what = node.spoil(&medium, bytes);
            node.note(|| format!("volume {volume_id} is delivered with {what}"));
        }
        // The late size is zero, or the size before Cinder's extension.
        let before = bytes.saturating_sub(GIB);
        let is_whole = bytes.is_multiple_of(GIB);
        let shown = if is_whole && node.happens(500_000) { before } else { 0 };
        let mut late = node.late(&state, shown);
        if is_whole && medium.is_blank() && node.happens(faults.short_disk) {
            late = Some((before, Instant::now() + SHORT));
        }
        let appears = if hardware == Hardware::ScsiMultipath {
            Instant::now() + node.draw(MULTIPATHD)
        } else {
            Instant::now()
        };
        let disk = Disk {
            volume_id: volume_id.to_owned(),
            hardware,
            index,
            bytes,
            first_bytes: bytes,
            storage_bytes: bytes,
            path_bytes: [bytes; 2],
            late,
            appears,
            read_only: false,
            medium,
            cache: PageCache::default(),
            plugged: true,
            has_layer: false,
        };
        node.note(|| format!("{} is plugged in, volume {volume_id} of {bytes} bytes", disk.name()));
        state.disks.insert(id, disk);
        node.link(&mut state, id);
        drop(state);
        if node.happens(faults.watched_disk) {
            self.hold_elsewhere(volume_id, Holder::Device);
        }
    }

    /// Detaches a volume, even if it is in use. Succeeds if it is not attached.
    pub fn unplug(&self, volume_id: &str) {
        let mut state = self.node.state();
        let Some(id) = state.disk_of_volume(volume_id) else {
            return;
        };
        self.node.note(|| format!("volume {volume_id} is unplugged"));
        self.node.lose(&mut state, id);
        if let Some(disk) = state.disks.get_mut(&id) {
            disk.plugged = false;
        }
        let faults = state.faults;
        if !self.node.happens(faults.stale_link) {
            let changes = self.node.udev(&state);
            let name = state.hardware.link_name(volume_id);
            if let Some(link) = state.links.get_mut(&name) {
                let before = link.target().map(str::to_owned);
                *link = Link {
                    before,
                    after: None,
                    changes,
                };
            }
        }
        if let Some(superblock) = state.superblock_of(id)
            && let Some(disk) = state.disks.get(&id)
        {
            disk.medium.unmounted(&self.node.name, superblock);
        }
        // An agent closes a device that returns only errors.
        let openings = &mut state.openings;
        openings.retain(|_, opening| opening.by != Opener::Agent || opening.disk != id);
        state.write_unused();
    }

    /// Triggers udev like `udevadm trigger`: afterwards, exactly the existing disks have links.
    pub fn trigger_udev(&self) {
        let mut state = self.node.state();
        state.links.clear();
        let ids: Vec<u64> = state
            .disks
            .iter()
            .filter(|(_, disk)| disk.plugged)
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            self.node.link(&mut state, id);
        }
    }

    /// Changes the size of an attached volume. virtio and NVMe report it to the kernel immediately; a SCSI path needs a
    /// rescan.
    pub fn resize(&self, volume_id: &str, bytes: u64) {
        let mut state = self.node.state();
        let Some(id) = state.disk_of_volume(volume_id) else {
            return;
        };
        let Some(before) = state
            .disks
            .get(&id)
            .filter(|disk| disk.storage_bytes != bytes)
            .map(Disk::size)
        else {
            return;
        };
        let late = self.node.late(&state, before);
        if let Some(disk) = state.disks.get_mut(&id) {
            disk.storage_bytes = bytes;
            if disk.hardware != Hardware::ScsiMultipath {
                disk.bytes = bytes;
                disk.late = late;
            }
        }
    }

    /// Returns the current sizes in bytes of the volume's disk and of its file system, if present.
    pub fn sizes(&self, volume_id: &str) -> (Option<u64>, Option<u64>) {
        let state = self.node.state();
        let disk = state.disk_of_volume(volume_id).and_then(|id| state.disks.get(&id));
        let filesystem = disk.and_then(Filesystem::detect);
        (disk.map(Disk::size), filesystem.map(|filesystem| filesystem.size))
    }

    /// Whether the volume is attached to this node.
    pub fn has_volume(&self, volume_id: &str) -> bool {
        self.node.state().disk_of_volume(volume_id).is_some()
    }
}

impl Node {
    /// Draws whether the kernel reports this size first, and until when.
    fn late(&self, state: &State, shown: u64) -> Option<(u64, Instant)> {
        let is_late = self.happens(state.faults.late_size);
        is_late.then(|| (shown, Instant::now() + self.draw(LATE_SIZE)))
    }

    /// Returns the time at which udev has completed its next operation.
    fn udev(&self, state: &State) -> Instant {
        let slow = self.happens(state.faults.slow_udev);
        Instant::now() + self.draw(if slow { SLOW_UDEV } else { UDEV })
    }

    /// Lets udev create the link of a disk.
    pub(super) fn link(&self, state: &mut State, disk: u64) {
        let faults = state.faults;
        let changes = self.udev(state);
        let Some(disk) = state.disks.get(&disk) else { return };
        if self.happens(faults.missing_link) {
            return;
        }
        let (name, after) = (disk.hardware.link_name(&disk.volume_id), Some(disk.name()));
        let before = state.links.get(&name).and_then(|link| link.target().map(str::to_owned));
        let link = Link { before, after, changes };
        state.links.insert(name, link);
    }

    /// Loses all writes to a disk or its file system that are not durable.
    pub(super) fn lose(&self, state: &mut State, id: u64) {
        let faults = state.faults;
        let superblock = state.superblock_of(id).and_then(|id| state.superblocks.get_mut(&id));
        let is_written_ext = superblock.is_some_and(|lost| {
            lost.dirty.clear();
            lost.fs_type.is_ext() && !lost.read_only
        });
        let Some(disk) = state.disks.get_mut(&id).filter(|disk| disk.plugged) else {
            return;
        };
        disk.lose_cache(|| self.happens(500_000));
        if is_written_ext && let Some(damage) = self.damage(&disk.medium, faults.damage) {
            self.note(|| format!("the file system of volume {} is damaged: {damage:?}", disk.volume_id));
        }
    }

    /// Rescans a SCSI path. multipathd resizes the map after it has seen both paths.
    pub(super) fn rescan(&self, state: &mut State, name: &str) -> Option<()> {
        let (id, path) = state.path_named(name)?;
        let late = self.happens(state.faults.late_size);
        let wait = self.draw(if late { LATE_SIZE } else { MULTIPATHD });
        let disk = state.disks.get_mut(&id).filter(|disk| disk.hardware.shows_paths())?;
        *disk.path_bytes.get_mut(path.index)? = disk.storage_bytes;
        let smallest = disk.path_bytes.into_iter().min().unwrap_or_default();
        if smallest > disk.bytes {
            disk.late = Some((disk.size(), Instant::now() + wait));
            disk.bytes = smallest;
        }
        Some(())
    }

    /// Opens the device at a path: its node in `/dev`, or a bind mount of it.
    pub(super) fn open(self: &Arc<Self>, path: &Path, how: Open, by: Opener) -> io::Result<SimDisk> {
        let mut state = self.state();
        let (id, number) = state.device_at(path)?;
        let alone = matches!(how, Open::ReadAlone | Open::WriteAlone);
        let Some(disk) = state.disks.get(&id) else {
            return fail(Errno::NXIO);
        };
        if how == Open::WriteAlone && disk.read_only {
            return fail(Errno::ACCESS);
        }
        // The device mapper claims the paths of a map.
        let is_claimed_path = disk.number() != number && disk.is_shown();
        if alone && (is_claimed_path || state.is_claimed(id)) {
            return fail(Errno::BUSY);
        }
        let opening = state.number();
        let opened = Opening {
            disk: id,
            by,
            number,
            alone,
        };
        state.openings.insert(opening, opened);
        Ok(SimDisk {
            node: self.clone(),
            opening,
        })
    }
}

impl State {
    /// Returns the disk whose device or path is at this path, and the device number.
    pub(super) fn device_at(&self, path: &Path) -> io::Result<(u64, (u32, u32))> {
        let number = match self.node_at(path) {
            Some(number) => number,
            None if self.kind_at(path).is_some() => return fail(Errno::NOTBLK),
            None => return fail(Errno::NOENT),
        };
        let disk = self.disk_numbered(number);
        disk.map_or_else(|| fail(Errno::NXIO), |disk| Ok((disk, number)))
    }
}

/// An open disk. It refers to the same disk even if the name is reused.
#[derive(Debug)]
pub(super) struct SimDisk {
    node: Arc<Node>,
    opening: u64,
}

impl SimDisk {
    fn with_disk<T>(&self, call: impl FnOnce(&Opening, &mut Disk) -> io::Result<T>) -> io::Result<T> {
        let state = &mut *self.node.state();
        let opening = state.openings.get(&self.opening);
        let disk = opening.and_then(|opening| Some((opening, state.disks.get_mut(&opening.disk)?)));
        match disk {
            Some((opening, disk)) => call(opening, disk),
            None => fail(Errno::BADF),
        }
    }

    /// Runs a call that may fail according to the fault probabilities. Programs do not use it; their failures are
    /// separate.
    fn transfer<T>(&self, call: impl FnOnce(&mut Disk) -> io::Result<T>) -> io::Result<T> {
        let millionths = self.node.state().faults.io_error;
        self.with_disk(|opening, disk| {
            if matches!(opening.by, Opener::Process(_)) && self.node.happens(millionths) {
                return fail(Errno::IO);
            }
            call(disk)
        })
    }

    /// Runs a program's operation on a disk.
    pub(super) fn access<T>(&self, call: impl FnOnce(&mut Disk) -> T) -> io::Result<T> {
        self.with_disk(|_, disk| if disk.plugged { Ok(call(disk)) } else { fail(Errno::IO) })
    }

    /// Reports a format whose mark is not durable. A crash could then lose the mark and retain a part of the file
    /// system.
    pub(super) fn judge_mark(&self) -> io::Result<()> {
        self.with_disk(|_, disk| {
            let is_marked = disk.medium.has_block(MARK);
            if !is_marked {
                let what = "mkfs begins before the mark of the format is durable";
                self.node.report(&disk.volume_id, what.into());
            }
            Ok(())
        })
    }

    /// Reports a format of a volume that must not be formatted.
    pub(super) fn judge_format(&self, fs_type: FsType) -> io::Result<()> {
        self.with_disk(|_, disk| {
            let what = if disk.medium.is_precious() {
                "over data, or over a file system that was mounted"
            } else if disk.size() < disk.first_bytes {
                "on a part of the disk, whose size the kernel does not show yet"
            } else {
                return Ok(());
            };
            self.node
                .report(&disk.volume_id, format!("mkfs makes an {fs_type} {what}"));
            Ok(())
        })
    }
}

impl machine::Disk for SimDisk {
    fn number(&self) -> io::Result<(u32, u32)> {
        self.with_disk(|opening, _| Ok(opening.number))
    }

    fn size(&self) -> io::Result<u64> {
        self.with_disk(|opening, disk| {
            let path = disk.paths().into_iter().find(|path| path.number == opening.number);
            let bytes = path.and_then(|path| disk.path_bytes.get(path.index).copied());
            Ok(bytes.unwrap_or_else(|| disk.size()))
        })
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let size = self.size()?;
        self.transfer(|disk| {
            // An unplugged disk has no bytes.
            let remaining = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
            let length = buffer.len().min(remaining);
            disk.read_at(buffer.get_mut(..length).unwrap_or_default(), offset);
            Ok(length)
        })
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let size = self.size()?;
        self.transfer(|disk| {
            if disk.read_only {
                return fail(Errno::PERM);
            }
            if offset + bytes.len() as u64 > size {
                return fail(Errno::NOSPC);
            }
            if disk.medium.is_precious() {
                let what = format!(
                    "{} bytes are written at {offset} of a device that is in use",
                    bytes.len()
                );
                self.node.report(&disk.volume_id, what);
            }
            disk.write_at(bytes, offset);
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.transfer(|disk| {
            if !disk.plugged {
                return fail(Errno::IO);
            }
            disk.flush();
            Ok(())
        })
    }

    fn set_direct(&self, _direct: bool) -> io::Result<()> {
        self.with_disk(|_, _| Ok(()))
    }
}

impl Drop for SimDisk {
    fn drop(&mut self) {
        self.node.state().close(self.opening);
    }
}
