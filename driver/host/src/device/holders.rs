// SPDX-License-Identifier: Apache-2.0
//! What else on this node has a device.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use super::Device;
use crate::machine::Machine;
use crate::mountinfo::MountTable;
use crate::timing::TIMING;
use crate::{FsType, Host, HostPaths, Mount, OffloadError};

/// More devices than these on one disk are not looked at.
const MOST_LAYERS: usize = 64;
/// More mount namespaces than these are not looked at, and no more processes to find them.
const MOST_NAMESPACES: usize = 1_024;
const MOST_PROCESSES: usize = 65_536;
/// So many holders are named.
const MOST_NAMED: usize = 4;

/// A partition of a disk, or a block device that is made of a disk or of a partition: of the device mapper, of a RAID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// The kernel's name.
    pub name: String,
    /// The name of the device mapper, such as `group-volume`.
    pub title: Option<String>,
    /// The kernel's name of what it is on.
    pub below: String,
    /// Whether it is a partition: one without a mount and without another layer on it keeps nothing from using the disk.
    pub is_partition: bool,
    number: Option<(u32, u32)>,
}

impl Layer {
    /// Whether this is the file system of this layer.
    pub fn bears(&self, mount: &Mount) -> bool {
        // The files of a btrfs have a number of their own.
        let source = mount.source.file_name().and_then(|name| name.to_str());
        let is_named = || source.is_some_and(|name| name == self.name || self.title.as_deref() == Some(name));
        Some(mount.device) == self.number || (mount.fs_type == FsType::Btrfs.name() && is_named())
    }
}

/// One thing that has a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// A block device that is made of it.
    Layer(Layer),
    /// A mount in a mount namespace that is not this process's.
    Mount {
        /// A process of that namespace, by its number in procfs.
        process: u32,
        /// That process's own name.
        command: String,
        /// Where it is mounted for that process.
        target: PathBuf,
    },
    /// A file system that is in use, by a mount which procfs does not show.
    Filesystem {
        /// The kernel's name of the device or layer that bears it.
        name: String,
    },
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layer(layer) => {
                write!(f, "the block device {}", layer.name)?;
                if let Some(title) = &layer.title {
                    write!(f, " ({title})")?;
                }
                write!(f, " is made of {}", layer.below)
            }
            Self::Mount {
                process,
                command,
                target,
            } => write!(
                f,
                "process {process} ({command}) has it mounted at {} in a mount namespace of its own",
                target.display()
            ),
            Self::Filesystem { name } => write!(
                f,
                "the file system of {name} is still mounted in a mount namespace that this process cannot see"
            ),
        }
    }
}

/// What has a device, as far as sysfs and procfs show it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holders(Vec<Holder>);

impl Holders {
    /// One of them; of devices that are made of it and mounts, a device. Nothing where none is shown.
    pub fn first(&self) -> Option<&Holder> {
        self.0.first()
    }

    /// The kind of the first: `device`, `mount`, or `unknown` where nothing is shown.
    pub fn kind(&self) -> &'static str {
        match self.first() {
            Some(Holder::Layer(_)) => "device",
            Some(Holder::Mount { .. } | Holder::Filesystem { .. }) => "mount",
            None => "unknown",
        }
    }
}

impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((first, others)) = self.0.split_first() else {
            return f
                .write_str("a program that has it open for itself alone, or one that neither sysfs nor procfs shows");
        };
        write!(f, "{first}")?;
        others.iter().try_for_each(|other| write!(f, "; {other}"))
    }
}

impl Host {
    /// The partitions of a device and the block devices that are made of it or of them. Bounded by 10 s. Dropping the future changes
    /// nothing.
    pub async fn layers(&self, device: &Device) -> Result<Vec<Layer>, OffloadError> {
        let (machine, sys) = (self.inner.machine.clone(), self.inner.paths.sys.clone());
        let what = format!("looking what is made of {}", device.name);
        let name = device.name.clone();
        self.inner
            .calls
            .run(what, TIMING.device_look_timeout, move || layers(&*machine, &sys, &name))
            .await
    }

    /// What has a device beside this process, some of it by name. What cannot be looked at is left out. Bounded by 10 s. Dropping the
    /// future changes nothing.
    pub async fn holders(&self, device: &Device) -> Result<Holders, OffloadError> {
        let (machine, paths) = (self.inner.machine.clone(), self.inner.paths.clone());
        let what = format!("looking who has {}", device.name);
        let device = device.clone();
        let look = move || holders(&*machine, &paths, &device);
        self.inner.calls.run(what, TIMING.device_look_timeout, look).await
    }
}

fn names(machine: &dyn Machine, directory: &Path) -> Vec<String> {
    let names = machine.list(directory).unwrap_or_default();
    names.into_iter().filter_map(|name| name.into_string().ok()).collect()
}

fn layers(machine: &dyn Machine, sys: &Path, disk: &str) -> Vec<Layer> {
    let block = sys.join("block");
    let is_partition = |directory: &Path| machine.exists(&directory.join("partition"));
    let mut found: Vec<Layer> = Vec::new();
    let mut left = vec![(disk.to_owned(), block.join(disk))];
    while let Some((below, directory)) = left.pop() {
        let partitions = names(machine, &directory)
            .into_iter()
            .filter(|name| name.starts_with(&below))
            .map(|name| directory.join(name))
            .filter(|directory| is_partition(directory));
        let holders = names(machine, &directory.join("holders"));
        for directory in partitions.chain(holders.iter().map(|name| block.join(name))) {
            let Some(name) = directory.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            if found.len() == MOST_LAYERS || found.iter().any(|layer| layer.name == name) {
                continue;
            }
            let read = |file: &str| {
                let text = machine.read_to_string(&directory.join(file)).ok()?;
                Some(text.trim().to_owned())
            };
            let number = read("dev").and_then(|number| {
                let (major, minor) = number.split_once(':')?;
                Some((major.parse().ok()?, minor.parse().ok()?))
            });
            found.push(Layer {
                name: name.to_owned(),
                title: read("dm/name"),
                below: below.clone(),
                is_partition: is_partition(&directory),
                number,
            });
            left.push((name.to_owned(), directory.clone()));
        }
    }
    found
}

fn holders(machine: &dyn Machine, paths: &HostPaths, device: &Device) -> Holders {
    let layers = layers(machine, &paths.sys, &device.name);
    let made_of_it = layers.iter().filter(|layer| !layer.is_partition);
    let mut holders: Vec<Holder> = made_of_it.cloned().map(Holder::Layer).collect();
    if holders.is_empty() {
        holders = mounts(machine, &paths.proc, device, &layers);
    }
    if holders.is_empty() {
        let names = layers.iter().map(|layer| &layer.name);
        let mounted = std::iter::once(&device.name)
            .chain(names)
            .filter(|name| has_filesystem_in_use(machine, &paths.sys, name));
        holders = mounted.cloned().map(|name| Holder::Filesystem { name }).collect();
    }
    holders.truncate(MOST_NAMED);
    Holders(holders)
}

/// The mounts of a device, and of what is made of it, in other mount namespaces. Each namespace is looked at once.
fn mounts(machine: &dyn Machine, proc: &Path, device: &Device, layers: &[Layer]) -> Vec<Holder> {
    let namespace = |process: &str| machine.read_link(&proc.join(process).join("ns/mnt")).ok();
    let mut seen: BTreeSet<PathBuf> = namespace("self").into_iter().collect();
    let mut found = Vec::new();
    let processes = names(machine, proc)
        .into_iter()
        .filter_map(|name| name.parse::<u32>().ok());
    for process in processes.take(MOST_PROCESSES) {
        let directory = proc.join(process.to_string());
        let is_new = namespace(&process.to_string()).is_some_and(|namespace| seen.insert(namespace));
        if !is_new {
            continue;
        }
        if seen.len() > MOST_NAMESPACES || found.len() >= MOST_NAMED {
            break;
        }
        // The process may have ended since.
        let text = machine.read(&directory.join("mountinfo")).unwrap_or_default();
        let table = MountTable::parse(&text).unwrap_or_default();
        let mut mounts = table.iter();
        if let Some(mount) = mounts.find(|mount| mount.is_of(device) || layers.iter().any(|layer| layer.bears(mount))) {
            let command = machine.read_to_string(&directory.join("comm")).unwrap_or_default();
            found.push(Holder::Mount {
                process,
                command: command.trim().to_owned(),
                target: mount.target.clone(),
            });
        }
    }
    found
}

/// Whether the kernel shows a file system in use on a device, in whatever mount namespace: each kind has a directory of these.
fn has_filesystem_in_use(machine: &dyn Machine, sys: &Path, name: &str) -> bool {
    let kinds = sys.join("fs");
    let btrfs = kinds.join("btrfs");
    machine.exists(&kinds.join("ext4").join(name))
        || machine.exists(&kinds.join("xfs").join(name))
        || names(machine, &btrfs)
            .iter()
            .any(|uuid| machine.exists(&btrfs.join(uuid).join("devices").join(name)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rstest::rstest;
    use tempfile::TempDir;

    use super::*;
    use crate::Linux;

    /// sysfs and procfs in files, and the disk `vdb` with a partition.
    struct Files(TempDir);

    impl Files {
        fn new() -> Self {
            let files = Self(tempfile::tempdir().expect("a temporary directory"));
            files.file("sys/block/vdb/dev", "252:16\n");
            files.file("sys/block/vdb/vdb1/dev", "252:17\n");
            files.file("sys/block/vdb/vdb1/partition", "1\n");
            files.process("self", 1, "");
            files
        }

        fn file(&self, path: &str, content: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().expect("it has a parent")).expect("a directory");
            fs::write(path, content).expect("a file");
        }

        fn process(&self, process: &str, namespace: u32, mounts: &str) {
            self.file(&format!("proc/{process}/mountinfo"), mounts);
            self.file(&format!("proc/{process}/comm"), "agent\n");
            fs::create_dir_all(self.0.path().join(format!("proc/{process}/ns"))).expect("a directory");
            let link = self.0.path().join(format!("proc/{process}/ns/mnt"));
            symlink(format!("mnt:[{namespace}]"), link).expect("a link");
        }

        /// A group of LVM on the partition, and a volume of it.
        fn group(&self) {
            self.file("sys/block/vdb/vdb1/holders/dm-0/dev", "");
            self.file("sys/block/dm-0/dev", "253:0\n");
            self.file("sys/block/dm-0/dm/name", "group-volume\n");
        }

        fn holders(&self) -> Holders {
            let paths = HostPaths {
                sys: self.0.path().join("sys"),
                dev: self.0.path().join("dev"),
                proc: self.0.path().join("proc"),
            };
            let device = Device {
                path: "/dev/vdb".into(),
                name: "vdb".into(),
                size_bytes: 1 << 30,
                number: (252, 16),
                read_only: false,
                volume_id: "volume-1".into(),
            };
            holders(&Linux::default(), &paths, &device)
        }

        fn layers(&self) -> Vec<Layer> {
            layers(&Linux::default(), &self.0.path().join("sys"), "vdb")
        }
    }

    #[test]
    fn a_volume_group_on_a_partition_is_named() {
        let files = Files::new();
        files.group();
        let holders = files.holders();
        assert_eq!(holders.kind(), "device");
        let named = "the block device dm-0 (group-volume) is made of vdb1";
        assert_eq!(holders.to_string(), named);
    }

    #[test]
    fn a_partition_alone_holds_nothing() {
        let files = Files::new();
        let layers = files.layers();
        assert!(layers.iter().all(|layer| layer.is_partition), "{layers:?}");
        assert_eq!(files.holders().kind(), "unknown");
    }

    #[rstest]
    #[case::the_disk("36 35 252:16 / /host/staging rw - ext4 /dev/vdb rw\n")]
    #[case::a_partition("36 35 252:17 / /host/staging rw - xfs /dev/vdb1 rw\n")]
    #[case::a_btrfs("36 35 0:50 / /host/staging rw - btrfs /dev/vdb rw\n")]
    fn a_mount_of_another_namespace_is_named_by_one_of_its_processes(#[case] mounts: &str) {
        let files = Files::new();
        files.process("7", 1, mounts);
        files.process("8", 2, mounts);
        files.process("9", 2, mounts);
        files.process("10", 3, "36 35 252:32 / /host/staging rw - ext4 /dev/vdc rw\n");
        files.process("11", 4, "not a line of it\n");
        let holders = files.holders();
        assert_eq!(holders.kind(), "mount");
        assert!(
            holders.to_string().contains("(agent) has it mounted at /host/staging"),
            "{holders}"
        );
        assert!(
            !holders.to_string().contains(';'),
            "the namespace is named once: {holders}"
        );
        assert!(
            !holders.to_string().contains("process 7 "),
            "this one is no other: {holders}"
        );
    }

    #[rstest]
    #[case("sys/fs/ext4/vdb/errors_count")]
    #[case("sys/fs/xfs/vdb1/stats/stats")]
    #[case("sys/fs/btrfs/9a1b/devices/vdb")]
    fn a_file_system_in_use_is_named_where_no_process_is_seen(#[case] file: &str) {
        let files = Files::new();
        files.file(file, "0");
        let holders = files.holders();
        assert_eq!(holders.kind(), "mount");
        assert!(holders.to_string().contains("cannot see"), "{holders}");
    }

    #[test]
    fn the_file_system_of_a_layer_is_known_by_number_and_a_btrfs_by_name() {
        let files = Files::new();
        files.group();
        let layers = files.layers();
        let bears = |line: &str| {
            let table = MountTable::parse(line.as_bytes()).expect("it is well-formed");
            table.iter().any(|mount| layers.iter().any(|layer| layer.bears(mount)))
        };
        assert!(bears("1 0 253:0 / /a rw - ext4 /dev/mapper/group-volume rw\n"));
        assert!(bears("1 0 0:50 / /a rw - btrfs /dev/mapper/group-volume rw\n"));
        assert!(bears("1 0 252:17 / /a rw - xfs /dev/vdb1 rw\n"));
        assert!(
            !bears("1 0 252:33 / /a rw - xfs /dev/vdb1 rw\n"),
            "another disk had the name"
        );
        assert!(!bears("1 0 0:50 / /a rw - tmpfs /dev/vdb1 rw\n"));
    }
}
