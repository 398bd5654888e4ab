// SPDX-License-Identifier: Apache-2.0
//! Finds processes in procfs that use the file system of a device. A container without the host's process namespace
//! sees few of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{Device, Holder, Layer, MOST_NAMED, list_names};
use crate::Mount;
use crate::machine::{Kind, Machine, Stat};
use crate::mountinfo::MountTable;

/// Limits of mount namespaces, processes, open files and mounts that one search examines.
const MOST_NAMESPACES: usize = 1_024;
const MOST_PROCESSES: usize = 65_536;
const MOST_FILES: usize = 262_144;
const MOST_MOUNTS: usize = 256;

/// File systems with a server that may not respond. Their files are not examined.
const REMOTE: [&str; 9] = ["nfs", "cifs", "smb", "ceph", "9p", "fuse", "gluster", "lustre", "afs"];

/// A process that uses a device.
pub(super) struct DetectedHolder {
    pub(super) holder: Holder,
    /// Whether the process uses the file system of the device itself, and not that of a partition.
    pub(super) is_of_device: bool,
}

/// Finds the mounts of a device and its partitions in other mount namespaces. Examines each namespace once.
pub(super) fn find_mounts(
    machine: &dyn Machine,
    proc: &Path,
    device: &Device,
    layers: &[Layer],
) -> Vec<DetectedHolder> {
    let mut seen: BTreeSet<PathBuf> = read_namespace(machine, proc, "self").into_iter().collect();
    let mut holders = Vec::new();
    for process in list_processes(machine, proc) {
        let is_new =
            read_namespace(machine, proc, &process.to_string()).is_some_and(|namespace| seen.insert(namespace));
        if !is_new {
            continue;
        }
        if seen.len() > MOST_NAMESPACES || holders.len() >= MOST_NAMED {
            break;
        }
        let table = read_mount_table(machine, proc, process);
        let uses = |mount: &&Mount| mount.is_of(device) || layers.iter().any(|layer| layer.bears(mount));
        if let Some(mount) = table.iter().find(uses) {
            holders.push(DetectedHolder {
                is_of_device: table.iter().any(|mount| mount.is_of(device)),
                holder: Holder::Mount {
                    process,
                    command: read_command(machine, proc, process),
                    target: mount.target.clone(),
                },
            });
        }
    }
    holders
}

/// Finds the processes that have the device or a file of its file system open. Names each process once.
///
/// The device number of an open file identifies its file system even after an unmount. A btrfs gives its files a number
/// of its own, so that they are not recognized.
pub(super) fn find_open_files(
    machine: &dyn Machine,
    proc: &Path,
    device: &Device,
    layers: &[Layer],
) -> Vec<DetectedHolder> {
    let own = machine.read_link(&proc.join("self")).ok();
    let own = own.and_then(|link| link.to_str()?.parse::<u32>().ok());
    let mut remote_mounts: BTreeMap<PathBuf, RemoteMounts> = BTreeMap::new();
    let (mut holders, mut files) = (Vec::new(), 0);
    for process in list_processes(machine, proc).filter(|process| Some(*process) != own) {
        let Some(namespace) = read_namespace(machine, proc, &process.to_string()) else {
            continue;
        };
        if remote_mounts.len() >= MOST_NAMESPACES && !remote_mounts.contains_key(&namespace) {
            continue;
        }
        let remote = remote_mounts
            .entry(namespace)
            .or_insert_with(|| RemoteMounts::from_table(&read_mount_table(machine, proc, process)));
        let directory = proc.join(process.to_string());
        for link in list_links(machine, &directory) {
            files += 1;
            if files > MOST_FILES || holders.len() >= MOST_NAMED {
                return holders;
            }
            if let Some(user) = examine(machine, &directory, &link, remote, device, layers) {
                let command = read_command(machine, proc, process);
                holders.push(DetectedHolder {
                    is_of_device: user.is_of_device,
                    holder: match user.path {
                        Some(path) => Holder::OpenFile { process, command, path },
                        None => Holder::Opening { process, command },
                    },
                });
                break;
            }
        }
    }
    holders
}

/// Device use through one link of a process.
struct FileUse {
    is_of_device: bool,
    /// Path of a file in the file system; `None` for the device itself.
    path: Option<PathBuf>,
}

fn examine(
    machine: &dyn Machine,
    directory: &Path,
    link: &Path,
    remote: &RemoteMounts,
    device: &Device,
    layers: &[Layer],
) -> Option<FileUse> {
    let target = machine.read_link(&directory.join(link)).ok()?;
    if !target.is_absolute() || remote.contains_target(machine, directory, link, &target) {
        return None;
    }
    let Stat {
        kind,
        number,
        filesystem,
        ..
    } = machine.stat(&directory.join(link)).ok()?;
    if kind == Kind::BlockDevice && number == device.number {
        return Some(FileUse {
            is_of_device: false,
            path: None,
        });
    }
    let is_of_device = filesystem == device.number;
    (is_of_device || layers.iter().any(|layer| layer.number == Some(filesystem))).then_some(FileUse {
        is_of_device,
        path: Some(target),
    })
}

/// Mounts of a namespace with a server that may not respond: mount id and target of each.
struct RemoteMounts(Vec<(u64, PathBuf)>);

impl RemoteMounts {
    fn from_table(table: &MountTable) -> Self {
        let is_remote = |mount: &&Mount| REMOTE.iter().any(|remote| mount.fs_type.starts_with(remote));
        let mounts = table.iter().filter(is_remote).take(MOST_MOUNTS);
        Self(mounts.map(|mount| (mount.id, mount.target.clone())).collect())
    }

    /// Whether the target of a link is on a remote mount, so that examining it could block.
    fn contains_target(&self, machine: &dyn Machine, directory: &Path, link: &Path, target: &Path) -> bool {
        let id = link.strip_prefix("fd").ok().and_then(|descriptor| {
            let text = machine
                .read_to_string(&directory.join("fdinfo").join(descriptor))
                .ok()?;
            let number = text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
            number.trim().parse::<u64>().ok()
        });
        match id {
            Some(id) => self.0.iter().any(|(remote, _)| *remote == id),
            None => self.0.iter().any(|(_, remote)| target.starts_with(remote)),
        }
    }
}

/// Lists the links of a process that occupy a file system.
fn list_links(machine: &dyn Machine, directory: &Path) -> impl Iterator<Item = PathBuf> {
    let descriptors = list_names(machine, &directory.join("fd"));
    let descriptors = descriptors.into_iter().map(|name| Path::new("fd").join(name));
    ["cwd", "root", "exe"].map(PathBuf::from).into_iter().chain(descriptors)
}

fn list_processes(machine: &dyn Machine, proc: &Path) -> impl Iterator<Item = u32> {
    let numbers = list_names(machine, proc)
        .into_iter()
        .filter_map(|name| name.parse().ok());
    numbers.take(MOST_PROCESSES)
}

fn read_namespace(machine: &dyn Machine, proc: &Path, process: &str) -> Option<PathBuf> {
    machine.read_link(&proc.join(process).join("ns/mnt")).ok()
}

fn read_mount_table(machine: &dyn Machine, proc: &Path, process: u32) -> MountTable {
    // Ignores errors, because the process may have ended.
    let text = machine.read(&proc.join(process.to_string()).join("mountinfo"));
    MountTable::parse(&text.unwrap_or_default()).unwrap_or_default()
}

fn read_command(machine: &dyn Machine, proc: &Path, process: u32) -> String {
    let text = machine.read_to_string(&proc.join(process.to_string()).join("comm"));
    text.unwrap_or_default().trim().to_owned()
}
