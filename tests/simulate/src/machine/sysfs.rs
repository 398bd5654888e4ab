// SPDX-License-Identifier: Apache-2.0
//! sysfs, to the extent that the driver reads it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use csi_host::FsType;

use super::hardware::{DiskPath, Hardware, LOCAL_SECTORS};
use super::state::{Disk, State};

/// PCI slots in use besides those of disks: host bridge, ISA bridge, graphics, network.
const FIXED_SLOTS: u32 = 4;
/// Slots of the local NVMe disk and of the first virtio disk.
const NVME_SLOT: u32 = 4;
const VIRTIO_SLOT: u32 = 5;
/// Number of slots of a conventional PCI bus, and maximum number of SCSI and NVMe disks.
const SLOTS: usize = 32;
const MOST_DISKS: usize = 256;

/// An entry of sysfs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Directory(BTreeSet<String>),
    File(Vec<u8>),
}

/// Files below one directory, by path; `None` is an empty directory.
type Files = Vec<(String, Option<Vec<u8>>)>;

impl State {
    /// Returns the names in `/sys/block`: disks, their paths, and devices on top of them.
    fn block_names(&self) -> BTreeSet<String> {
        let locals = self.hardware.local_disks().iter().map(|disk| disk.name.to_owned());
        let plugged = || self.disks.values().filter(|disk| disk.plugged);
        let paths = plugged().flat_map(|disk| disk.paths().into_iter().map(|path| path.name));
        let layers = plugged().filter_map(|disk| disk.layer().map(|(name, _)| name));
        let disks = plugged().filter(|disk| disk.is_shown()).map(Disk::name);
        locals.chain(paths).chain(layers).chain(disks).collect()
    }

    /// Returns the names with a node in `/dev`.
    pub(super) fn device_names(&self) -> BTreeSet<String> {
        let mut names = self.block_names();
        if !self.hardware.shows_paths() {
            names.retain(|name| self.path_named(name).is_none());
        }
        names
    }

    /// Returns the target of a block device's link in `/sys/block`, without `/sys/`.
    pub(super) fn block_directory(&self, name: &str) -> Option<String> {
        let local = self.hardware.local_disks().iter().find(|disk| disk.name == name);
        if let Some(local) = local {
            return Some(local.directory.to_owned());
        }
        if let Some((_, disk)) = self.disk_named(name) {
            return Some(self.hardware.directory(disk.index));
        }
        if let Some((id, path)) = self.path_named(name) {
            let disk = self.disks.get(&id)?;
            return Some(self.hardware.directory_of_path(disk.index, &path));
        }
        self.layer_named(name)?;
        Some(format!("devices/virtual/block/{name}"))
    }

    fn layer_named(&self, name: &str) -> Option<&Disk> {
        let is_layer = |disk: &&Disk| disk.layer().is_some_and(|(layer, _)| layer == name);
        self.disks.values().find(is_layer)
    }

    fn block_files(&self, name: &str) -> Option<Files> {
        let local = self.hardware.local_disks().iter().find(|disk| disk.name == name);
        if let Some(local) = local {
            let mut files = basic_files(local.number, LOCAL_SECTORS, false);
            files.extend(local.partition.map(|name| file(&format!("{name}/partition"), "1")));
            if name.starts_with("nvme") {
                files.push(file("device/serial", "LOCAL0001"));
            }
            return Some(files);
        }
        if let Some((_, disk)) = self.disk_named(name) {
            return Some(disk_files(disk));
        }
        if let Some((id, path)) = self.path_named(name) {
            return Some(path_files(self.disks.get(&id)?, &path));
        }
        let disk = self.layer_named(name)?;
        let (_, number) = disk.layer()?;
        let mut files = basic_files((253, number), disk.size() / 512, false);
        files.push(file("dm/name", "tenant-data"));
        files.push(file("dm/uuid", "LVM-tenant"));
        files.push((format!("slaves/{}", disk.name()), None));
        Some(files)
    }

    /// Returns the mounted file systems of a type in any mount namespace, as names of file system and disk.
    fn mounted(&self, kind: &str) -> impl Iterator<Item = (String, String)> {
        self.superblocks.values().filter_map(move |found| {
            let disk = self.disks.get(&found.disk)?.name();
            let (of, title) = match found.fs_type {
                FsType::Btrfs => ("btrfs", format!("{:032x}", u128::from_be_bytes(found.uuid))),
                FsType::Xfs => ("xfs", disk.clone()),
                FsType::Ext2 | FsType::Ext3 | FsType::Ext4 => ("ext4", disk.clone()),
            };
            (of == kind).then_some((title, disk))
        })
    }

    fn filesystem_files(&self) -> Files {
        let mut files: Files = ["btrfs", "ext4", "xfs"].map(|kind| (kind.to_owned(), None)).into();
        for kind in ["ext4", "xfs"] {
            files.extend(self.mounted(kind).map(|(title, _)| (format!("{kind}/{title}"), None)));
        }
        let btrfs = self.mounted("btrfs");
        files.extend(btrfs.map(|(uuid, disk)| (format!("btrfs/{uuid}/devices/{disk}"), None)));
        files
    }

    /// Returns the PCI slots in use.
    fn slots(&self) -> BTreeSet<u32> {
        let mut slots: BTreeSet<u32> = (0..FIXED_SLOTS).collect();
        if self.hardware == Hardware::VirtioWithLocalNvme || self.hardware == Hardware::NvmeMultipath {
            slots.insert(NVME_SLOT);
        }
        if self.hardware.is_virtio() {
            slots.insert(VIRTIO_SLOT);
            let plugged = self.disks.values().filter(|disk| disk.plugged);
            slots.extend(plugged.map(|disk| VIRTIO_SLOT + disk.index));
        }
        slots
    }

    /// Returns the maximum number of volumes of the node.
    pub(super) fn room(&self) -> usize {
        let volumes = self.disks.values().filter(|disk| disk.plugged).count();
        let free = match self.hardware {
            Hardware::Virtio | Hardware::VirtioWithLocalNvme => SLOTS.saturating_sub(self.slots().len()),
            // The driver counts paths, so its reported limit is lower.
            Hardware::NvmeMultipath | Hardware::ScsiMultipath => MOST_DISKS - volumes - 1,
        };
        volumes + free
    }

    pub(super) fn sysfs(&self, path: &Path) -> Option<Entry> {
        let words = path.strip_prefix("/sys").ok()?.to_str()?;
        let words: Vec<&str> = words.split('/').filter(|word| !word.is_empty()).collect();
        let directory = |names: &[&str]| Some(Entry::Directory(names.iter().map(|&name| name.to_owned()).collect()));
        match words.as_slice() {
            [] => directory(&["block", "bus", "dev", "devices", "fs"]),
            ["fs", rest @ ..] => entry(&self.filesystem_files(), &rest.join("/")),
            ["block"] => Some(Entry::Directory(self.block_names())),
            ["block", name, rest @ ..] => entry(&self.block_files(name)?, &rest.join("/")),
            ["dev", "block", number] => {
                let (major, minor) = number.split_once(':')?;
                let disk = self.disk_numbered((major.parse().ok()?, minor.parse().ok()?));
                disk.and_then(|_| directory(&[]))
            }
            ["bus", "pci", "devices"] => Some(Entry::Directory(self.slots().into_iter().map(slot).collect())),
            ["bus", "pci", "devices", name, rest @ ..] | ["devices", "pci0000:00", name, rest @ ..] => {
                self.slots().into_iter().find(|number| slot(*number) == **name)?;
                entry(&vec![file("class", "0x010000")], &rest.join("/"))
            }
            _ => None,
        }
    }

    /// Returns the target of a link in `/sys/block`.
    pub(super) fn block_link(&self, path: &Path) -> Option<PathBuf> {
        let name = path.strip_prefix("/sys/block").ok()?.to_str()?;
        Some(Path::new("..").join(self.block_directory(name)?))
    }
}

/// Returns a file with one line.
fn file(name: &str, line: &str) -> (String, Option<Vec<u8>>) {
    (name.to_owned(), Some(format!("{line}\n").into()))
}

fn basic_files((major, minor): (u32, u32), sectors: u64, read_only: bool) -> Files {
    vec![
        file("dev", &format!("{major}:{minor}")),
        file("size", &sectors.to_string()),
        file("ro", if read_only { "1" } else { "0" }),
        ("holders".into(), None),
    ]
}

fn disk_files(disk: &Disk) -> Files {
    let mut files = basic_files(disk.number(), disk.size() / 512, disk.read_only);
    files.extend(disk.layer().map(|(layer, _)| (format!("holders/{layer}"), None)));
    let identity = || {
        let (name, content) = disk.hardware.identity(disk);
        (name.to_owned(), Some(content))
    };
    match disk.hardware {
        Hardware::Virtio | Hardware::VirtioWithLocalNvme => files.push(identity()),
        Hardware::NvmeMultipath => files.extend([identity(), file("hidden", "0")]),
        Hardware::ScsiMultipath => {
            let plain = disk.volume_id.replace('-', "");
            files.push(file("dm/name", &format!("mpath{}", disk.index)));
            files.push(file("dm/uuid", &format!("mpath-3{plain}")));
            files.extend(
                disk.paths()
                    .into_iter()
                    .map(|path| (format!("slaves/{}", path.name), None)),
            );
        }
    }
    files
}

fn path_files(disk: &Disk, path: &DiskPath) -> Files {
    let scsi = disk.hardware == Hardware::ScsiMultipath;
    let bytes = if scsi {
        disk.path_bytes.get(path.index).copied().unwrap_or_default()
    } else {
        disk.size()
    };
    let mut files = basic_files(path.number, bytes / 512, disk.read_only);
    let (name, content) = disk.hardware.identity(disk);
    files.push((name.to_owned(), Some(content)));
    if scsi {
        files.push(("device/rescan".into(), Some(Vec::new())));
        files.extend(disk.is_shown().then(|| (format!("holders/{}", disk.name()), None)));
    } else {
        files.push(file("hidden", "1"));
    }
    files
}

/// Returns the entry at a path.
fn entry(files: &Files, path: &str) -> Option<Entry> {
    if let Some((_, Some(content))) = files.iter().find(|(file, _)| file == path) {
        return Some(Entry::File(content.clone()));
    }
    let below = |file: &str| {
        let rest = if path.is_empty() {
            file
        } else {
            file.strip_prefix(path)?.strip_prefix('/')?
        };
        Some(rest.split('/').next()?.to_owned())
    };
    let names: BTreeSet<String> = files.iter().filter_map(|(file, _)| below(file)).collect();
    let is_directory = path.is_empty() || !names.is_empty() || files.iter().any(|(file, _)| file == path);
    is_directory.then_some(Entry::Directory(names))
}

/// Returns the name of a PCI slot.
fn slot(number: u32) -> String {
    format!("0000:00:{number:02x}.0")
}
