// SPDX-License-Identifier: Apache-2.0
//! Finds users of a device other than the driver: block devices on top of it, mounts in all namespaces, and open files.
//!
//! NodeStageVolume, NodeUnstageVolume and NodeExpandVolume all use [`Host::holders`]. sysfs and the driver's own list
//! of mounts determine whether the kernel has the file system in use. procfs provides the names of processes that are
//! visible to the driver.

mod holder;
mod processes;

use std::path::Path;

use super::Device;
use crate::machine::Machine;
use crate::mountinfo::MountTable;
use crate::timing::TIMING;
use crate::{Host, HostPaths, OffloadError};
pub use holder::{Holder, Holders, Layer};
use holder::{MOST_NAMED, list_names};

/// Limit of layers of one disk that are examined.
const MOST_LAYERS: usize = 64;
impl Host {
    /// Lists the partitions of a device, and the block devices on top of either. Bounded by 10 s. Dropping the future
    /// changes nothing.
    pub async fn layers(&self, device: &Device) -> Result<Vec<Layer>, OffloadError> {
        let (machine, sys) = (self.inner.machine.clone(), self.inner.paths.sys.clone());
        let what = format!("looking what is made of {}", device.name);
        let name = device.name.clone();
        self.inner
            .calls
            .run_local(what, TIMING.device_search_timeout, move || {
                find_layers(&*machine, &sys, &name)
            })
            .await
    }

    /// Finds the users of a device other than the driver, and names some of them. Bounded by 20 s. Dropping the future
    /// changes nothing.
    ///
    /// The result omits unreadable entries. An empty result therefore does not prove that the device is idle; only an
    /// exclusive open proves that.
    pub async fn holders(&self, device: &Device) -> Result<Holders, OffloadError> {
        let (machine, paths) = (self.inner.machine.clone(), self.inner.paths.clone());
        let what = format!("finding the users of {}", device.name);
        let examined = device.clone();
        let find = move || find_holders(&*machine, &paths, &examined);
        let holders = self
            .inner
            .calls
            .run_local(what, TIMING.device_search_timeout, find)
            .await?;
        if !matches!(holders.first(), None | Some(Holder::Filesystem { .. })) {
            return Ok(holders);
        }
        // Ignores a failure of this search, because it only adds names. A file of a dead network file system can block
        // it.
        let (machine, paths) = (self.inner.machine.clone(), self.inner.paths.clone());
        let (examined, known) = (device.clone(), holders.clone());
        let search = move || add_open_files(&*machine, &paths, &examined, known);
        let what = "a search for processes with open files";
        let named = self
            .inner
            .calls
            .run_local(what, TIMING.device_search_timeout, search)
            .await;
        Ok(named.unwrap_or_else(|error| {
            tracing::debug!(device = device.name, %error, "the processes that use a device are not named");
            holders
        }))
    }
}

fn find_layers(machine: &dyn Machine, sys: &Path, disk: &str) -> Vec<Layer> {
    let block = sys.join("block");
    let is_partition = |directory: &Path| machine.exists(&directory.join("partition"));
    let mut layers: Vec<Layer> = Vec::new();
    let mut pending = vec![(disk.to_owned(), block.join(disk))];
    while let Some((below, directory)) = pending.pop() {
        let partitions = list_names(machine, &directory)
            .into_iter()
            .filter(|name| name.starts_with(&below))
            .map(|name| directory.join(name))
            .filter(|directory| is_partition(directory));
        let holders = list_names(machine, &directory.join("holders"));
        for directory in partitions.chain(holders.iter().map(|name| block.join(name))) {
            let Some(name) = directory.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            if layers.len() == MOST_LAYERS || layers.iter().any(|layer| layer.name == name) {
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
            layers.push(Layer {
                name: name.to_owned(),
                title: read("dm/name"),
                below: below.clone(),
                is_partition: is_partition(&directory),
                number,
            });
            pending.push((name.to_owned(), directory.clone()));
        }
    }
    layers
}

fn find_holders(machine: &dyn Machine, paths: &HostPaths, device: &Device) -> Holders {
    let layers = find_layers(machine, &paths.sys, &device.name);
    let is_block_device = |layer: &&Layer| !layer.is_partition;
    let mut named: Vec<Holder> = layers
        .iter()
        .filter(is_block_device)
        .cloned()
        .map(Holder::Layer)
        .collect();
    if !named.is_empty() {
        named.truncate(MOST_NAMED);
        return Holders {
            named,
            has_filesystem: false,
        };
    }
    let own_mounts = MountTable::read(machine, &paths.proc).unwrap_or_default();
    let mounts = processes::find_mounts(machine, &paths.proc, device, &layers);
    let is_in_use = has_filesystem_in_use(machine, &paths.sys, &device.name);
    let has_filesystem =
        is_in_use || own_mounts.of_device(device).next().is_some() || mounts.iter().any(|found| found.is_of_device);
    named.extend(mounts.into_iter().map(|found| found.holder));
    if named.is_empty() {
        let used = std::iter::once(&device.name)
            .chain(layers.iter().map(|layer| &layer.name))
            .filter(|name| has_filesystem_in_use(machine, &paths.sys, name));
        named = used.cloned().map(|name| Holder::Filesystem { name }).collect();
    }
    named.truncate(MOST_NAMED);
    Holders { named, has_filesystem }
}

/// Adds the processes with open files to the holders.
fn add_open_files(machine: &dyn Machine, paths: &HostPaths, device: &Device, known: Holders) -> Holders {
    let layers = find_layers(machine, &paths.sys, &device.name);
    let users = processes::find_open_files(machine, &paths.proc, device, &layers);
    let has_filesystem = known.has_filesystem || users.iter().any(|users| users.is_of_device);
    let mut named: Vec<Holder> = users.into_iter().map(|users| users.holder).collect();
    let is_explained = named.iter().any(|holder| matches!(holder, Holder::OpenFile { .. }));
    if !is_explained {
        named.splice(..0, known.named);
    }
    named.truncate(MOST_NAMED);
    Holders { named, has_filesystem }
}

/// Whether the kernel reports a file system of a device in use, in any mount namespace. Each type has a directory in
/// sysfs.
fn has_filesystem_in_use(machine: &dyn Machine, sys: &Path, name: &str) -> bool {
    let kinds = sys.join("fs");
    let btrfs = kinds.join("btrfs");
    machine.exists(&kinds.join("ext4").join(name))
        || machine.exists(&kinds.join("xfs").join(name))
        || list_names(machine, &btrfs)
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

    /// sysfs and procfs in files, with a disk `vdb` that has a partition.
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

        /// Adds a volume group of LVM on the partition, and a logical volume.
        fn group(&self) {
            self.file("sys/block/vdb/vdb1/holders/dm-0/dev", "");
            self.file("sys/block/dm-0/dev", "253:0\n");
            self.file("sys/block/dm-0/dm/name", "group-volume\n");
        }

        fn process_mounts(&self, process: &str, mounts: &str) {
            self.file(&format!("proc/{process}/mountinfo"), mounts);
        }

        fn paths(&self) -> HostPaths {
            HostPaths {
                sys: self.0.path().join("sys"),
                dev: self.0.path().join("dev"),
                proc: self.0.path().join("proc"),
            }
        }

        fn holders(&self) -> Holders {
            find_holders(&Linux::default(), &self.paths(), &device())
        }

        /// Searches for processes with open files.
        fn search(&self, device: &Device) -> Holders {
            add_open_files(&Linux::default(), &self.paths(), device, Holders::default())
        }

        fn layers(&self) -> Vec<Layer> {
            find_layers(&Linux::default(), &self.0.path().join("sys"), "vdb")
        }
    }

    fn device() -> Device {
        Device {
            path: "/dev/vdb".into(),
            name: "vdb".into(),
            size_bytes: 1 << 30,
            number: (252, 16),
            read_only: false,
            volume_id: "volume-1".into(),
        }
    }

    #[test]
    fn names_volume_group_on_partition() {
        let files = Files::new();
        files.group();
        let holders = files.holders();
        assert_eq!(holders.kind(), "device");
        let named = "the block device dm-0 (group-volume) is made of vdb1";
        assert_eq!(holders.to_string(), named);
    }

    #[test]
    fn partition_alone_is_not_a_holder() {
        let files = Files::new();
        let layers = files.layers();
        assert!(layers.iter().all(|layer| layer.is_partition), "{layers:?}");
        assert_eq!(files.holders().kind(), "unknown");
    }

    #[rstest]
    #[case::the_disk("36 35 252:16 / /host/staging rw - ext4 /dev/vdb rw\n")]
    #[case::a_partition("36 35 252:17 / /host/staging rw - xfs /dev/vdb1 rw\n")]
    #[case::a_btrfs("36 35 0:50 / /host/staging rw - btrfs /dev/vdb rw\n")]
    fn names_mount_of_other_namespace_once(#[case] mounts: &str) {
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
    fn names_file_system_used_by_invisible_process(#[case] file: &str) {
        let files = Files::new();
        files.file(file, "0");
        let holders = files.holders();
        assert_eq!(holders.kind(), "mount");
        assert!(holders.to_string().contains("cannot see"), "{holders}");
    }

    /// Adds a process in this mount namespace with a link, such as `fd/3`.
    fn link(files: &Files, process: &str, link: &str, target: &Path) {
        files.process(process, 1, "");
        let link = files.0.path().join("proc").join(process).join(link);
        fs::create_dir_all(link.parent().expect("it has a parent")).expect("a directory");
        symlink(target, link).expect("a link");
    }

    /// Returns the device of the file system that contains these files.
    fn own_device(files: &Files) -> Device {
        let number = Linux::default().stat(files.0.path()).expect("it exists").filesystem;
        Device { number, ..device() }
    }

    #[rstest]
    #[case::file("fd/3")]
    #[case::directory("cwd")]
    #[case::program("exe")]
    fn open_file_is_named_without_mount(#[case] link_name: &str) {
        let files = Files::new();
        files.file("data\u{1b}[2J", "");
        let file = files.0.path().join("data\u{1b}[2J");
        link(&files, "7", "fd/1", Path::new("pipe:[1]"));
        link(&files, "8", link_name, &file);
        let device = own_device(&files);
        let holders = files.search(&device);
        assert!(holders.has_filesystem());
        assert_eq!(holders.kind(), "file");
        let named = holders.to_string();
        assert!(named.starts_with("process 8 (agent) has /"), "{named}");
        assert!(named.ends_with(r"data\u{1b}[2J of its file system open"), "{named}");
    }

    #[test]
    fn file_on_remote_mount_is_not_examined() {
        let files = Files::new();
        let file = files.0.path().join("data");
        files.file("data", "");
        link(&files, "8", "fd/3", &file);
        files.file("proc/8/fdinfo/3", "pos:\t0\nmnt_id:\t36\n");
        files.process_mounts("8", "36 35 0:50 / /mnt rw - nfs4 server:/ rw\n");
        let device = own_device(&files);
        assert_eq!(files.search(&device).first(), None);
    }

    #[test]
    fn layered_device_has_no_file_system() {
        let files = Files::new();
        files.group();
        files.file("sys/fs/ext4/vdb/errors_count", "0");
        assert!(!files.holders().has_filesystem());
    }

    #[rstest]
    #[case::of_the_disk("sys/fs/xfs/vdb/stats", true)]
    #[case::of_a_partition("sys/fs/xfs/vdb1/stats", false)]
    #[case::of_another_disk("sys/fs/ext4/vdc/errors_count", false)]
    fn superblock_in_sysfs_proves_file_system_use(#[case] file: &str, #[case] is_in_use: bool) {
        let files = Files::new();
        files.file(file, "0");
        assert_eq!(files.holders().has_filesystem(), is_in_use);
    }

    #[rstest]
    #[case::of_the_disk("36 35 252:16 / /host/staging rw - ext4 /dev/vdb rw\n", true)]
    #[case::of_a_partition("36 35 252:17 / /host/staging rw - ext4 /dev/vdb1 rw\n", false)]
    #[case::unreadable("not a line of it\n", false)]
    fn mount_proves_a_file_system_in_use(#[case] mounts: &str, #[case] is_in_use: bool) {
        let elsewhere = Files::new();
        elsewhere.process("8", 2, mounts);
        assert_eq!(elsewhere.holders().has_filesystem(), is_in_use);
        let here = Files::new();
        here.process_mounts("self", mounts);
        assert_eq!(here.holders().has_filesystem(), is_in_use);
    }

    #[test]
    fn layer_matches_mount_by_number_or_btrfs_name() {
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
