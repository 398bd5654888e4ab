// SPDX-License-Identifier: Apache-2.0
//! Processes in procfs that use the file system of a device. In a container without the host's processes it shows few of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{Device, Holder, Layer, MOST_NAMED, names};
use crate::Mount;
use crate::machine::{Kind, Machine, Stat};
use crate::mountinfo::MountTable;

/// Mount namespaces, processes and open files that one search examines.
const MOST_NAMESPACES: usize = 1_024;
const MOST_PROCESSES: usize = 65_536;
const MOST_FILES: usize = 262_144;
const MOST_MOUNTS: usize = 256;

/// File systems with a server that may not answer. Their files are not examined.
const REMOTE: [&str; 9] = ["nfs", "cifs", "smb", "ceph", "9p", "fuse", "gluster", "lustre", "afs"];

/// One process that uses a device.
pub(super) struct FoundHolder {
    pub(super) holder: Holder,
    /// Whether the process uses the file system of the device itself, and not that of a partition.
    pub(super) is_of_device: bool,
}

/// The mounts of a device, and of its partitions, in other mount namespaces. Each namespace is examined once.
pub(super) fn mounts(machine: &dyn Machine, proc: &Path, device: &Device, layers: &[Layer]) -> Vec<FoundHolder> {
    let mut seen: BTreeSet<PathBuf> = namespace(machine, proc, "self").into_iter().collect();
    let mut found = Vec::new();
    for process in processes(machine, proc) {
        let is_new = namespace(machine, proc, &process.to_string()).is_some_and(|namespace| seen.insert(namespace));
        if !is_new {
            continue;
        }
        if seen.len() > MOST_NAMESPACES || found.len() >= MOST_NAMED {
            break;
        }
        let table = mount_table(machine, proc, process);
        let uses = |mount: &&Mount| mount.is_of(device) || layers.iter().any(|layer| layer.bears(mount));
        if let Some(mount) = table.iter().find(uses) {
            found.push(FoundHolder {
                is_of_device: table.iter().any(|mount| mount.is_of(device)),
                holder: Holder::Mount {
                    process,
                    command: command(machine, proc, process),
                    target: mount.target.clone(),
                },
            });
        }
    }
    found
}

/// The processes that have a file of the device's file system open, or the device itself. Each process is named once.
///
/// The device number of an open file identifies its file system even after an unmount. Files of a btrfs have a number of their own
/// and are not recognized.
pub(super) fn open_files(machine: &dyn Machine, proc: &Path, device: &Device, layers: &[Layer]) -> Vec<FoundHolder> {
    let own = machine.read_link(&proc.join("self")).ok();
    let own = own.and_then(|link| link.to_str()?.parse::<u32>().ok());
    let mut remote_mounts: BTreeMap<PathBuf, RemoteMounts> = BTreeMap::new();
    let (mut found, mut files) = (Vec::new(), 0);
    for process in processes(machine, proc).filter(|process| Some(*process) != own) {
        let Some(namespace) = namespace(machine, proc, &process.to_string()) else {
            continue;
        };
        if remote_mounts.len() >= MOST_NAMESPACES && !remote_mounts.contains_key(&namespace) {
            continue;
        }
        let remote = remote_mounts
            .entry(namespace)
            .or_insert_with(|| RemoteMounts::of(&mount_table(machine, proc, process)));
        let directory = proc.join(process.to_string());
        for link in links(machine, &directory) {
            files += 1;
            if files > MOST_FILES || found.len() >= MOST_NAMED {
                return found;
            }
            if let Some(user) = examine(machine, &directory, &link, remote, device, layers) {
                let command = command(machine, proc, process);
                found.push(FoundHolder {
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
    found
}

/// How one link of a process leads to a device.
struct FileUse {
    is_of_device: bool,
    /// A file of its file system, and not the device itself.
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
    if !target.is_absolute() || remote.has(machine, directory, link, &target) {
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

/// Mounts of a namespace with a server that may not answer: number and target of each.
struct RemoteMounts(Vec<(u64, PathBuf)>);

impl RemoteMounts {
    fn of(table: &MountTable) -> Self {
        let is_remote = |mount: &&Mount| REMOTE.iter().any(|remote| mount.fs_type.starts_with(remote));
        let mounts = table.iter().filter(is_remote).take(MOST_MOUNTS);
        Self(mounts.map(|mount| (mount.id, mount.target.clone())).collect())
    }

    /// Whether the file at the end of a link of a process is on one of them, so that to examine it could block.
    fn has(&self, machine: &dyn Machine, directory: &Path, link: &Path, target: &Path) -> bool {
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

/// The links of a process that keep a file system in use.
fn links(machine: &dyn Machine, directory: &Path) -> impl Iterator<Item = PathBuf> {
    let descriptors = names(machine, &directory.join("fd"));
    let descriptors = descriptors.into_iter().map(|name| Path::new("fd").join(name));
    ["cwd", "root", "exe"].map(PathBuf::from).into_iter().chain(descriptors)
}

fn processes(machine: &dyn Machine, proc: &Path) -> impl Iterator<Item = u32> {
    let numbers = names(machine, proc).into_iter().filter_map(|name| name.parse().ok());
    numbers.take(MOST_PROCESSES)
}

fn namespace(machine: &dyn Machine, proc: &Path, process: &str) -> Option<PathBuf> {
    machine.read_link(&proc.join(process).join("ns/mnt")).ok()
}

fn mount_table(machine: &dyn Machine, proc: &Path, process: u32) -> MountTable {
    // The process may have ended since.
    let text = machine.read(&proc.join(process.to_string()).join("mountinfo"));
    MountTable::parse(&text.unwrap_or_default()).unwrap_or_default()
}

fn command(machine: &dyn Machine, proc: &Path, process: u32) -> String {
    let text = machine.read_to_string(&proc.join(process.to_string()).join("comm"));
    text.unwrap_or_default().trim().to_owned()
}
