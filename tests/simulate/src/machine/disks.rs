// SPDX-License-Identifier: Apache-2.0
//! Disks that come, grow and go, and what is done with open ones.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use csi_host::FsType;
use csi_host::machine::{self, Open};
use rustix::io::Errno;
use tokio::time::Instant;

use super::medium::Medium;
use super::state::{By, Disk, Link, Opening, State};
use super::{Node, SimMachine, fail};

/// What Cinder counts in.
const GIB: u64 = 1 << 30;
/// Where virtio cuts a serial.
const SERIAL: usize = 20;
/// How long udev takes, and how long where it is slow.
const UDEV: Duration = Duration::from_millis(300);
const SLOW_UDEV: Duration = Duration::from_mins(1);
/// How long the kernel may show another size than the disk has.
const LATE_SIZE: Duration = Duration::from_secs(30);

impl SimMachine {
    /// Attaches a volume of `bytes` to this node. One that is attached already stays as it is.
    pub fn plug(&self, volume_id: &str, medium: Arc<Medium>, bytes: u64) {
        let mut state = self.node.state();
        if state.disk_of_volume(volume_id).is_some() {
            return;
        }
        // The first is the disk that the node booted from.
        let is_free = |index: &u32| state.disks.values().all(|disk| disk.index != *index);
        let index = (1..u32::MAX).find(is_free).unwrap_or(u32::MAX);
        let id = state.number();
        // Nothing yet, or what it had before Cinder extended it.
        let before = bytes.saturating_sub(GIB);
        let shown = if bytes.is_multiple_of(GIB) && self.node.happens(500_000) {
            before
        } else {
            0
        };
        let late = self.node.late(&state, shown);
        let disk = Disk {
            volume_id: volume_id.to_owned(),
            index,
            bytes,
            first_bytes: bytes,
            late,
            read_only: false,
            medium,
            plugged: true,
        };
        self.node
            .note(|| format!("{} is plugged in, volume {volume_id} of {bytes} bytes", disk.name()));
        state.disks.insert(id, disk);
        self.node.link(&mut state, id);
    }

    /// Takes a volume away, whoever uses it. One that is not attached is fine.
    pub fn unplug(&self, volume_id: &str) {
        let mut state = self.node.state();
        let Some(id) = state.disk_of_volume(volume_id) else {
            return;
        };
        self.node.note(|| format!("volume {volume_id} is unplugged"));
        if let Some(disk) = state.disks.get_mut(&id) {
            disk.plugged = false;
        }
        let faults = state.faults;
        if !self.node.happens(faults.stale_link) {
            let changes = self.node.udev(&state);
            if let Some(link) = state.links.get_mut(&link_name(volume_id)) {
                let before = link.target().map(str::to_owned);
                *link = Link {
                    before,
                    after: None,
                    changes,
                };
            }
        }
        if let Some(superblock) = state.superblock_of(id) {
            if let Some(lost) = state.superblocks.get_mut(&superblock) {
                lost.dirty.clear();
            }
            if let Some(disk) = state.disks.get(&id) {
                disk.medium.unmounted(&self.node.name, superblock);
            }
        }
        state.forget_unplugged();
    }

    /// Has udev look at all disks again, as `udevadm trigger` does: afterwards there are the links of those that are there.
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

    /// The attached volume has another size. virtio tells the kernel at once.
    pub fn resize(&self, volume_id: &str, bytes: u64) {
        let mut state = self.node.state();
        let Some(id) = state.disk_of_volume(volume_id) else {
            return;
        };
        let Some(before) = state.disks.get(&id).filter(|disk| disk.bytes != bytes).map(Disk::size) else {
            return;
        };
        let late = self.node.late(&state, before);
        if let Some(disk) = state.disks.get_mut(&id) {
            disk.bytes = bytes;
            disk.late = late;
        }
    }

    /// Whether the volume is attached to this node.
    pub fn has(&self, volume_id: &str) -> bool {
        self.node.state().disk_of_volume(volume_id).is_some()
    }
}

/// The serial of a volume's disk.
pub(super) fn serial(volume_id: &str) -> &str {
    volume_id.get(..SERIAL).unwrap_or(volume_id)
}

fn link_name(volume_id: &str) -> String {
    format!("virtio-{}", serial(volume_id))
}

impl Node {
    /// What the kernel shows of a size for a while, where it is late.
    fn late(&self, state: &State, shown: u64) -> Option<(u64, Instant)> {
        let is_late = self.happens(state.faults.late_size);
        is_late.then(|| (shown, Instant::now() + self.draw(LATE_SIZE)))
    }

    /// When udev has done what it does next.
    fn udev(&self, state: &State) -> Instant {
        let slow = self.happens(state.faults.slow_udev);
        Instant::now() + self.draw(if slow { SLOW_UDEV } else { UDEV })
    }

    /// Lets udev make the link of a disk.
    pub(super) fn link(&self, state: &mut State, disk: u64) {
        let faults = state.faults;
        let changes = self.udev(state);
        let Some(disk) = state.disks.get(&disk) else { return };
        if self.happens(faults.missing_link) {
            return;
        }
        let (name, after) = (link_name(&disk.volume_id), Some(disk.name()));
        let before = state.links.get(&name).and_then(|link| link.target().map(str::to_owned));
        let link = Link { before, after, changes };
        state.links.insert(name, link);
    }

    /// Opens the device at a path: its node in `/dev`, or a bind of it.
    pub(super) fn open(self: &Arc<Self>, path: &Path, how: Open, by: By) -> io::Result<SimDisk> {
        let mut state = self.state();
        let id = state.device_at(path)?;
        let alone = matches!(how, Open::ReadAlone | Open::WriteAlone);
        let Some(disk) = state.disks.get(&id) else {
            return fail(Errno::NXIO);
        };
        if how == Open::WriteAlone && disk.read_only {
            return fail(Errno::ACCESS);
        }
        if alone && state.is_claimed(id) {
            return fail(Errno::BUSY);
        }
        let opening = state.number();
        state.openings.insert(opening, Opening { disk: id, by, alone });
        Ok(SimDisk {
            node: self.clone(),
            opening,
        })
    }
}

impl State {
    /// The disk whose device is at a path.
    pub(super) fn device_at(&self, path: &Path) -> io::Result<u64> {
        let number = match self.node_at(path) {
            Some(number) => number,
            None if self.kind_at(path).is_some() => return fail(Errno::NOTBLK),
            None => return fail(Errno::NOENT),
        };
        self.disk_numbered(number).map_or_else(|| fail(Errno::NXIO), Ok)
    }
}

/// An open disk. It stays the disk that was opened, whatever its name means later.
#[derive(Debug)]
pub(super) struct SimDisk {
    node: Arc<Node>,
    opening: u64,
}

impl SimDisk {
    fn with<T>(&self, call: impl FnOnce(&Opening, &Disk) -> io::Result<T>) -> io::Result<T> {
        let state = self.node.state();
        let opening = state.openings.get(&self.opening);
        let disk = opening.and_then(|opening| Some((opening, state.disks.get(&opening.disk)?)));
        match disk {
            Some((opening, disk)) => call(opening, disk),
            None => fail(Errno::BADF),
        }
    }

    /// The same, which may fail where the faults say so. Programs fail otherwise.
    fn transfer<T>(&self, call: impl FnOnce(&Disk) -> io::Result<T>) -> io::Result<T> {
        let millionths = self.node.state().faults.io_error;
        self.with(|opening, disk| {
            if matches!(opening.by, By::Process(_)) && self.node.happens(millionths) {
                return fail(Errno::IO);
            }
            call(disk)
        })
    }

    /// What is on it, while it is plugged in.
    pub(super) fn medium(&self) -> io::Result<Arc<Medium>> {
        self.with(|_, disk| {
            if disk.plugged {
                Ok(disk.medium.clone())
            } else {
                fail(Errno::IO)
            }
        })
    }

    /// Reports a format that must not be.
    pub(super) fn judge_format(&self, fs_type: FsType) -> io::Result<()> {
        self.with(|_, disk| {
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
        self.with(|_, disk| Ok(disk.number()))
    }

    fn size(&self) -> io::Result<u64> {
        self.with(|_, disk| Ok(disk.size()))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let size = self.size()?;
        self.transfer(|disk| {
            // A disk that was unplugged has no bytes left.
            let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
            let length = buffer.len().min(left);
            disk.medium
                .read_at(buffer.get_mut(..length).unwrap_or_default(), offset);
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
            disk.medium.write_at(bytes, offset);
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.transfer(|disk| if disk.plugged { Ok(()) } else { fail(Errno::IO) })
    }

    fn set_direct(&self, _direct: bool) -> io::Result<()> {
        self.with(|_, _| Ok(()))
    }
}

impl Drop for SimDisk {
    fn drop(&mut self) {
        self.node.state().close(self.opening);
    }
}
