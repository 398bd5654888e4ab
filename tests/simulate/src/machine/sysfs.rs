// SPDX-License-Identifier: Apache-2.0
//! sysfs, as far as the driver reads it.

use std::collections::BTreeSet;
use std::path::Path;

use csi_host::FsType;

use super::disks::serial;
use super::state::{Disk, State};

/// The disk that the node booted from.
const ROOT_DISK: &str = "vda";
pub(super) const ROOT_SECTORS: u64 = 20 << 21;
/// Slots in use beside those of disks: the host bridge, the ISA bridge, graphics, network.
pub(super) const FIXED_SLOTS: u32 = 4;

/// Something in sysfs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Directory(BTreeSet<String>),
    File(String),
}

impl State {
    /// The place of a disk among all.
    pub(super) fn index_of(&self, name: &str) -> Option<u32> {
        match name {
            ROOT_DISK => Some(0),
            _ => self.disk_named(name).map(|(_, disk)| disk.index),
        }
    }

    pub(super) fn disk_names(&self) -> BTreeSet<String> {
        let plugged = self.disks.values().filter(|disk| disk.plugged);
        plugged.map(Disk::name).chain([ROOT_DISK.to_owned()]).collect()
    }

    /// The file systems of a kind that are mounted in whatever mount namespace: the name of each, and that of its disk.
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

    pub(super) fn sysfs(&self, path: &Path) -> Option<Entry> {
        let words = path.strip_prefix("/sys").ok()?.to_str()?;
        let words: Vec<&str> = words.split('/').filter(|word| !word.is_empty()).collect();
        let directory = |names: &[&str]| Some(Entry::Directory(names.iter().map(|&name| name.to_owned()).collect()));
        let slots = || {
            let disks = self.disk_names();
            let disks = disks.iter().filter_map(|name| Some(FIXED_SLOTS + self.index_of(name)?));
            (0..FIXED_SLOTS).chain(disks).map(slot).collect::<BTreeSet<_>>()
        };
        match words.as_slice() {
            [] => directory(&["block", "bus", "dev", "devices", "fs"]),
            ["fs"] => directory(&["btrfs", "ext4", "xfs"]),
            ["fs", kind] => Some(Entry::Directory(self.mounted(kind).map(|(title, _)| title).collect())),
            ["fs", "btrfs", uuid, rest @ ..] => {
                let (_, disk) = self.mounted("btrfs").find(|(title, _)| title == uuid)?;
                match rest {
                    [] => directory(&["devices"]),
                    ["devices"] => directory(&[&disk]),
                    ["devices", name] => (*name == disk).then(|| Entry::Directory(BTreeSet::new())),
                    _ => None,
                }
            }
            ["fs", kind, name] => {
                let mut mounted = self.mounted(kind);
                mounted
                    .any(|(title, _)| title == *name)
                    .then(|| Entry::Directory(BTreeSet::new()))
            }
            ["block"] => Some(Entry::Directory(self.disk_names())),
            ["block", ROOT_DISK] => directory(&["dev", "holders", "ro", "size", "vda1"]),
            ["block", ROOT_DISK, "vda1"] => directory(&["partition"]),
            ["block", ROOT_DISK, file] => match *file {
                "size" => Some(Entry::File(format!("{ROOT_SECTORS}\n"))),
                "dev" => Some(Entry::File("252:0\n".into())),
                "ro" => Some(Entry::File("0\n".into())),
                "holders" => directory(&[]),
                _ => None,
            },
            ["block", ROOT_DISK, "vda1", "partition"] => Some(Entry::File("1\n".into())),
            ["block", name] => self
                .disk_named(name)
                .and_then(|_| directory(&["dev", "holders", "ro", "serial", "size"])),
            ["block", name, file] => {
                let (_, disk) = self.disk_named(name)?;
                let (major, minor) = disk.number();
                match *file {
                    // The one file of these that the kernel writes without an end of line.
                    "serial" => Some(Entry::File(serial(&disk.volume_id).to_owned())),
                    "size" => Some(Entry::File(format!("{}\n", disk.size() / 512))),
                    "dev" => Some(Entry::File(format!("{major}:{minor}\n"))),
                    "ro" => Some(Entry::File(format!("{}\n", u8::from(disk.read_only)))),
                    "holders" => directory(&[]),
                    _ => None,
                }
            }
            ["dev", "block", number] => {
                let (major, minor) = number.split_once(':')?;
                let disk = self.disk_numbered((major.parse().ok()?, minor.parse().ok()?));
                disk.and_then(|_| directory(&[]))
            }
            ["bus", "pci", "devices"] => Some(Entry::Directory(slots())),
            ["bus", "pci", "devices", name] | ["devices", "pci0000:00", name] => {
                slots().contains(*name).then_some(())?;
                directory(&["class"])
            }
            ["devices", "pci0000:00", name, "class"] => {
                slots().contains(*name).then(|| Entry::File("0x010000\n".into()))
            }
            _ => None,
        }
    }
}

/// The name of a PCI slot.
pub(super) fn slot(number: u32) -> String {
    format!("0000:00:{number:02x}.0")
}
