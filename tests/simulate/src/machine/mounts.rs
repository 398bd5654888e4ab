// SPDX-License-Identifier: Apache-2.0
//! mount(2) and umount(2), to the extent that the driver uses them.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use csi_host::machine::{Kind, Refusal};
use csi_host::{FsType, MountOptions};
use rustix::io::Errno;
use rustix::mount::MountFlags;

use super::filesystem::Filesystem;
use super::state::{Mount, Root, State, Superblock};
use super::{Node, fail};

impl Node {
    pub(super) fn mount(
        &self,
        device: &Path,
        target: &Path,
        fs_type: FsType,
        options: &MountOptions,
    ) -> Result<(), Refusal> {
        let refuse = |errno: Errno, message: &str| Refusal {
            errno,
            messages: vec![message.to_owned()],
        };
        let mut state = self.state();
        let plain = |error: io::Error| Refusal {
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
            messages: Vec::new(),
        };
        let (disk, number) = state.device_at(device).map_err(plain)?;
        let is_path = state.disks.get(&disk).is_some_and(|disk| disk.number() != number);
        if is_path {
            return Err(refuse(Errno::BUSY, "the device mapper has the path"));
        }
        state.check_target(target, Kind::Directory).map_err(plain)?;
        let superblock = match state.superblock_of(disk) {
            Some(id) => {
                let mounted = state.superblocks.get(&id);
                if mounted.is_none_or(|mounted| mounted.fs_type != fs_type) {
                    return Err(refuse(Errno::BUSY, "device in use"));
                }
                if mounted.is_none_or(|mounted| mounted.read_only != options.is_read_only()) {
                    return Err(refuse(Errno::BUSY, "mounted with other options"));
                }
                id
            }
            None => self.superblock(&mut state, disk, device, fs_type, options)?,
        };
        let id = state.number();
        state.mounts.push(Mount {
            id,
            root: Root::Volume(superblock),
            target: target.to_owned(),
            flags: options.flags(),
        });
        Ok(())
    }

    /// Reads the superblock of a disk that is not mounted.
    fn superblock(
        &self,
        state: &mut State,
        disk: u64,
        device: &Path,
        fs_type: FsType,
        options: &MountOptions,
    ) -> Result<u64, Refusal> {
        let refuse = |errno: Errno, message: &str| Refusal {
            errno,
            messages: vec![message.to_owned()],
        };
        if state.is_claimed(disk) {
            return Err(refuse(Errno::BUSY, "device in use"));
        }
        let Some(found) = state.disks.get_mut(&disk) else {
            return Err(refuse(Errno::NXIO, "no such device"));
        };
        found.flush();
        let read_only = options.is_read_only();
        if found.read_only && !read_only {
            return Err(refuse(Errno::ACCESS, "the device is read-only"));
        }
        let found = &*found;
        let Some(filesystem) = Filesystem::detect(found).filter(|there| there.fs_type == fs_type) else {
            return Err(refuse(Errno::INVAL, "bad magic number"));
        };
        if filesystem.in_progress {
            return Err(refuse(Errno::INVAL, "the superblock says that mkfs has not ended"));
        }
        if filesystem.size > found.size() {
            return Err(refuse(Errno::INVAL, "the file system is larger than its device"));
        }
        let twin = |of: FsType| {
            let mut twins = state.superblocks.iter();
            let twin = twins.find(|(_, other)| (other.fs_type, other.uuid) == (of, filesystem.uuid));
            twin.filter(|_| fs_type == of).map(|(id, _)| *id)
        };
        let blind = options.of_the_filesystem().iter().any(|option| option == "nouuid");
        if !blind && twin(FsType::Xfs).is_some() {
            return Err(refuse(Errno::INVAL, "a file system of the same UUID is mounted"));
        }
        // The kernel finds a btrfs by its UUID, independent of the named disk.
        if let Some(twin) = twin(FsType::Btrfs) {
            return Ok(twin);
        }
        let (medium, volume_id) = (found.medium.clone(), found.volume_id.clone());
        let id = state.number();
        if !read_only && medium.damage().is_some() {
            let what = "its file system is damaged, and is mounted for writing without a successful check";
            self.report(&volume_id, what.into());
        }
        if let Some(other) = medium.mounted(&self.name, id, read_only) {
            let what = format!("its file system is mounted for writing while node {other} has it mounted so");
            self.report(&volume_id, what);
        }
        let superblock = Superblock {
            disk,
            fs_type,
            uuid: filesystem.uuid,
            read_only,
            options: options.of_the_filesystem().to_vec(),
            source: device.to_owned(),
            dirty: BTreeSet::new(),
            copies: BTreeSet::new(),
            is_open: false,
        };
        state.superblocks.insert(id, superblock);
        Ok(id)
    }

    pub(super) fn bind(&self, from: &Path, target: &Path) -> io::Result<()> {
        let mut state = self.state();
        let kind = state.kind_at(from).ok_or(Errno::NOENT)?;
        let (root, flags) = match (state.mount_at(from), state.node_at(from)) {
            (Some(mount), _) => (mount.root.clone(), mount.flags),
            (None, Some(number)) => (Root::Device(name_of(from), number), MountFlags::empty()),
            (None, None) => (Root::Tree(from.to_owned()), MountFlags::empty()),
        };
        state.check_target(target, kind)?;
        let id = state.number();
        state.mounts.push(Mount {
            id,
            root,
            target: target.to_owned(),
            flags,
        });
        Ok(())
    }

    pub(super) fn remount_bind(&self, target: &Path, flags: MountFlags) -> io::Result<()> {
        let mut state = self.state();
        let mount = state.mounts.iter_mut().rev().find(|mount| mount.target == target);
        mount.ok_or(Errno::INVAL)?.flags = flags;
        Ok(())
    }

    pub(super) fn unmount(&self, target: &Path) -> io::Result<()> {
        let mut state = self.state();
        let Some(at) = state.mounts.iter().rposition(|mount| mount.target == target) else {
            let errno = state.kind_at(target).map_or(Errno::NOENT, |_| Errno::INVAL);
            return fail(errno);
        };
        let id = state.mounts.get(at).map(|mount| mount.id).unwrap_or_default();
        let is_below = |mount: &Mount| mount.target != target && mount.target.starts_with(target);
        if state.held.iter().any(|(_, mount, _)| *mount == id) || state.mounts.iter().any(is_below) {
            return fail(Errno::BUSY);
        }
        let faults = state.faults;
        if self.happens(faults.unmount_busy) {
            return fail(Errno::BUSY);
        }
        let mount = state.mounts.remove(at);
        if let Root::Volume(superblock) = mount.root {
            self.release(&mut state, superblock);
        }
        Ok(())
    }

    /// Writes back the file system of a path. Returns `EIO` if its disk was removed.
    pub(super) fn syncfs(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        if state.kind_at(path).is_none() {
            return fail(Errno::NOENT);
        }
        state.answers(path)?;
        let faults = state.faults;
        if self.happens(faults.io_error) {
            return fail(Errno::IO);
        }
        let mount = path.ancestors().find_map(|path| state.mount_at(path));
        if let Some(Root::Volume(superblock)) = mount.map(|mount| &mount.root) {
            let superblock = *superblock;
            state.write_back(superblock);
        }
        Ok(())
    }

    /// Releases a superblock without mounts, and writes back its dirty data.
    pub(super) fn release(&self, state: &mut State, superblock: u64) {
        let is_elsewhere = state.superblocks.get(&superblock).is_some_and(Superblock::is_elsewhere);
        if is_elsewhere || state.mounts.iter().any(|mount| mount.root == Root::Volume(superblock)) {
            return;
        }
        state.write_back(superblock);
        if let Some(released) = state.superblocks.remove(&superblock)
            && let Some(disk) = state.disks.get(&released.disk)
        {
            disk.medium.unmounted(&self.name, superblock);
        }
        state.write_unused();
    }

    /// Detaches all mounts from a removed directory or file in every mount namespace, as Linux does.
    pub(super) fn detach_mounts(&self, state: &mut State, target: &Path) {
        let superblocks: Vec<u64> = state.superblocks.keys().copied().collect();
        for superblock in superblocks {
            if let Some(found) = state.superblocks.get_mut(&superblock)
                && found.copies.remove(target)
            {
                self.release(state, superblock);
            }
        }
    }

    /// Removes all mounts for a reboot.
    pub(super) fn unmount_everything(&self, state: &mut State) {
        state.mounts.clear();
        state.held.clear();
        let superblocks: Vec<u64> = state.superblocks.keys().copied().collect();
        for superblock in superblocks {
            if let Some(lost) = state.superblocks.get_mut(&superblock) {
                lost.dirty.clear();
                lost.copies.clear();
                lost.is_open = false;
            }
            self.release(state, superblock);
        }
    }
}

impl State {
    /// Writes back a file system's dirty data of pods.
    pub(super) fn write_back(&mut self, superblock: u64) {
        if let Some(found) = self.superblocks.get_mut(&superblock)
            && let Some(disk) = self.disks.get(&found.disk).filter(|disk| disk.plugged)
        {
            for key in std::mem::take(&mut found.dirty) {
                disk.medium.write_key(found.uuid, key);
            }
        }
    }

    /// Writes back the cached writes of a raw device.
    pub(super) fn write_back_device(&mut self, disk: u64) {
        if let Some(disk) = self.disks.get_mut(&disk).filter(|disk| disk.plugged) {
            disk.flush();
        }
    }

    fn check_target(&self, target: &Path, from: Kind) -> io::Result<()> {
        match (self.kind_at(target), from) {
            (None, _) => fail(Errno::NOENT),
            (Some(Kind::Directory), Kind::Directory) => Ok(()),
            (Some(Kind::Directory), _) | (Some(_), Kind::Directory) => fail(Errno::NOTDIR),
            (Some(_), _) => Ok(()),
        }
    }

    /// Returns the content of `/proc/self/mountinfo`.
    pub(super) fn mountinfo(&self) -> String {
        let boot = self.hardware.local_disks().first();
        let (root_number, root_source) = boot.map_or(((0, 0), "overlay".to_owned()), |disk| {
            let partition = disk.partition.unwrap_or(disk.name);
            ((disk.number.0, disk.number.1 + 1), format!("/dev/{partition}"))
        });
        let mut text = format!(
            "1 0 {}:{} / / rw,relatime - ext4 {root_source} rw\n",
            root_number.0, root_number.1
        );
        text.push_str(
            "2 1 0:6 / /dev rw,nosuid - devtmpfs udev rw\n\
             3 1 0:21 / /sys rw,nosuid,nodev,noexec - sysfs sysfs rw\n\
             4 1 0:20 / /proc rw,nosuid,nodev,noexec - proc proc rw\n",
        );
        for mount in &self.mounts {
            let (number, root, fs_type, source, read_only) = match &mount.root {
                Root::Volume(id) => {
                    let Some(superblock) = self.superblocks.get(id) else {
                        continue;
                    };
                    let number = self.disks.get(&superblock.disk).map(super::state::Disk::number);
                    let number = match superblock.fs_type {
                        // A btrfs has an anonymous device number, like every file system that may span devices.
                        FsType::Btrfs => (0, u32::try_from(*id).unwrap_or(u32::MAX)),
                        _ => number.unwrap_or_default(),
                    };
                    let source = superblock.source.display().to_string();
                    let (name, read_only) = (superblock.fs_type.name(), superblock.read_only);
                    (number, "/".to_owned(), name, source, read_only)
                }
                Root::Device(name, number) => {
                    let is_there = self.disk_named(name).is_some_and(|(_, disk)| disk.number() == *number);
                    let suffix = if is_there { "" } else { "//deleted" };
                    ((0, 6), format!("/{name}{suffix}"), "devtmpfs", "udev".into(), false)
                }
                Root::Tree(path) => {
                    let root = path.display().to_string();
                    (root_number, root, "ext4", root_source.clone(), false)
                }
            };
            let options = options(mount.flags);
            let line = format!(
                "{} 1 {}:{} {} {} {options} - {fs_type} {} {}\n",
                mount.id,
                number.0,
                number.1,
                escape(&root),
                escape(&mount.target.display().to_string()),
                escape(&source),
                if read_only { "ro" } else { "rw" },
            );
            text.push_str(&line);
        }
        text
    }
}

fn options(flags: MountFlags) -> String {
    const NAMES: [(MountFlags, &str); 8] = [
        (MountFlags::NOSUID, ",nosuid"),
        (MountFlags::NODEV, ",nodev"),
        (MountFlags::NOEXEC, ",noexec"),
        (MountFlags::NOATIME, ",noatime"),
        (MountFlags::NODIRATIME, ",nodiratime"),
        (MountFlags::RELATIME, ",relatime"),
        (MountFlags::STRICTATIME, ",strictatime"),
        (MountFlags::NOSYMFOLLOW, ",nosymfollow"),
    ];
    let access = if flags.contains(MountFlags::RDONLY) { "ro" } else { "rw" };
    let set = NAMES.iter().filter(|(flag, _)| flags.contains(*flag));
    let names: String = set.map(|(_, name)| *name).collect();
    format!("{access}{names}")
}

fn escape(text: &str) -> String {
    let plain = |c: char| !matches!(c, ' ' | '\t' | '\n' | '\\' | '#');
    let escaped = |c: char| {
        if plain(c) {
            c.to_string()
        } else {
            format!("\\{:03o}", u32::from(c))
        }
    };
    text.chars().map(escaped).collect()
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    PathBuf::from(name).display().to_string()
}
