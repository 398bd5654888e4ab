// SPDX-License-Identifier: Apache-2.0
//! How many volumes this machine can have: what is attached, and what its bus has room for.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::device::{list_disks, serials, upper};
use crate::timing::TIMING;
use crate::{Host, Machine, MountError, MountTable, mountinfo};

/// More volumes than this are never promised: the limit that the Go driver documents, and what a SCSI controller of a
/// hypervisor is given.
pub const MOST_VOLUMES: u32 = 256;
/// Slots of a conventional PCI bus; the first one of the root bus is the host bridge's.
const SLOTS_OF_A_BUS: usize = 32;

/// How volumes reach this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bus {
    /// virtio-blk: each volume is a PCI device and takes a slot.
    Virtio,
    /// SCSI: volumes share controllers.
    Scsi,
    /// NVMe: volumes share controllers, or each has one.
    Nvme,
}

/// Room for volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeSlots {
    /// How volumes reach this machine; nothing where no disk tells.
    pub bus: Option<Bus>,
    /// Volumes that are attached now and may be CSI's: disks with a UUID for a serial. One that has partitions, is mounted or is
    /// held by another block device counts only where CSI shows it, so that the one that the machine booted from, and one that
    /// holds etcd, are not among them.
    pub attached: u32,
    /// How many more fit.
    pub free: u32,
}

impl VolumeSlots {
    /// How many volumes there can be in all; never more than [`MOST_VOLUMES`].
    pub fn volumes(self) -> u32 {
        self.attached.saturating_add(self.free).min(MOST_VOLUMES)
    }
}

impl Host {
    /// Counts. Bounded by 10 s, and by as much for the list of mounts. Dropping the future changes nothing.
    pub async fn volume_slots(&self) -> Result<VolumeSlots, MountError> {
        let mounts = self.mounts().await?;
        let (machine, sys) = (self.inner.machine.clone(), self.inner.paths.sys.clone());
        let count = move || count(&*machine, &sys, &mounts);
        Ok(self
            .inner
            .calls
            .run_local("counting disks and slots", TIMING.slots_timeout, count)
            .await?)
    }
}

struct CountedDisk {
    bus: Bus,
    /// The multipath device that the disk is a path of, else the disk.
    upper: String,
    is_volume: bool,
}

fn count(machine: &dyn Machine, sys: &Path, mounts: &MountTable) -> VolumeSlots {
    let disks: Vec<CountedDisk> = list_disks(machine, sys)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|name| disk(machine, sys, mounts, &name))
        .collect();
    let volumes = || disks.iter().filter(|disk| disk.is_volume);
    // Further volumes come on the bus of the attached ones. Before the first one, a disk of the hypervisor's bus decides: Nova may also
    // pass local NVMe disks through.
    let bus = volumes().next().map(|disk| disk.bus);
    let bus = bus.or_else(|| disks.iter().map(|disk| disk.bus).min());
    let on = |bus: Bus| disks.iter().filter(|disk| disk.bus == bus).count();
    let free = match bus {
        Some(Bus::Virtio) => free_slots(machine, sys),
        Some(bus @ (Bus::Scsi | Bus::Nvme)) => Some((MOST_VOLUMES as usize).saturating_sub(on(bus))),
        None => None,
    };
    let attached: BTreeSet<&str> = volumes().map(|disk| disk.upper.as_str()).collect();
    VolumeSlots {
        bus,
        attached: u32::try_from(attached.len()).unwrap_or(MOST_VOLUMES),
        free: free.map_or(MOST_VOLUMES, |free| u32::try_from(free).unwrap_or(MOST_VOLUMES)),
    }
}

/// Names in a directory, sorted; none where it cannot be read.
pub(crate) fn names(machine: &dyn Machine, dir: &Path) -> Vec<String> {
    let names = machine.list(dir).unwrap_or_default();
    names.into_iter().filter_map(|name| name.into_string().ok()).collect()
}

fn disk(machine: &dyn Machine, sys: &Path, mounts: &MountTable, name: &str) -> Option<CountedDisk> {
    let bus = [("vd", Bus::Virtio), ("sd", Bus::Scsi), ("nvme", Bus::Nvme)]
        .into_iter()
        .find_map(|(prefix, bus)| name.starts_with(prefix).then_some(bus))?;
    let used = upper(machine, sys, name);
    // What nothing uses yet is most likely about to be staged.
    let is_volume = is_volume(machine, sys, name)
        && (!is_in_use(machine, sys, &used) || is_shown_by_csi(machine, sys, mounts, &used));
    Some(CountedDisk {
        bus,
        upper: used,
        is_volume,
    })
}

/// Whether a disk has partitions, bears a mounted file system, or is a part of another block device. sysfs shows that for the whole
/// machine, also where this process has a mount namespace of its own; and unlike a claim it keeps no one from using the disk.
fn is_in_use(machine: &dyn Machine, sys: &Path, name: &str) -> bool {
    let disk = sys.join("block").join(name);
    let has_partitions = || {
        names(machine, &disk)
            .iter()
            .any(|entry| entry.starts_with(name) && machine.exists(&disk.join(entry).join("partition")))
    };
    let is_held = || !names(machine, &disk.join("holders")).is_empty();
    let kinds = sys.join("fs");
    let is_mounted = || {
        let of_btrfs = names(machine, &kinds.join("btrfs"));
        let of_btrfs = of_btrfs
            .iter()
            .map(|uuid| Path::new("btrfs").join(uuid).join("devices"));
        let of_others = names(machine, &kinds).into_iter().map(PathBuf::from);
        of_others
            .chain(of_btrfs)
            .any(|kind| machine.exists(&kinds.join(kind).join(name)))
    };
    has_partitions() || is_held() || is_mounted()
}

/// Whether a disk, or its file system, is at a place that the kubelet gives to CSI drivers, below whatever root directory.
fn is_shown_by_csi(machine: &dyn Machine, sys: &Path, mounts: &MountTable, name: &str) -> bool {
    let number = number(machine, sys, name);
    mounts
        .iter()
        .filter(|mount| mount.target.to_string_lossy().contains("/kubernetes.io/csi/"))
        .any(|mount| mount.shows(name, number))
}

/// Major and minor number of a disk, as sysfs has them.
pub(crate) fn number(machine: &dyn Machine, sys: &Path, name: &str) -> Option<(u32, u32)> {
    let text = machine.read_to_string(&sys.join("block").join(name).join("dev")).ok()?;
    mountinfo::device_number(text.trim().as_bytes())
}

/// Whether a disk shows the id of a volume.
pub(crate) fn is_volume(machine: &dyn Machine, sys: &Path, name: &str) -> bool {
    serials(machine, sys, name).iter().any(|serial| is_id(serial))
}

/// Whether a text is a whole UUID with dashes.
pub(crate) fn is_uuid(text: &str) -> bool {
    text.len() == 36 && is_id(text)
}

/// Whether a serial is a UUID, whole, without its dashes, or cut at 20 characters.
fn is_id(serial: &str) -> bool {
    let dashed = |serial: &str| {
        serial.char_indices().all(|(at, c)| {
            if matches!(at, 8 | 13 | 18 | 23) {
                c == '-'
            } else {
                c.is_ascii_hexdigit()
            }
        })
    };
    match serial.len() {
        20 | 36 => dashed(serial),
        32 => serial.chars().all(|c| c.is_ascii_hexdigit()),
        _ => false,
    }
}

/// PCI slots into which a disk can be plugged; nothing where there is no PCI.
///
/// With PCI Express each root port takes one device, and the root bus none while the machine runs. Without it, a bus has
/// 32 slots, and so has each bridge.
fn free_slots(machine: &dyn Machine, sys: &Path) -> Option<usize> {
    let devices: Vec<PathBuf> = names(machine, &sys.join("bus/pci/devices"))
        .into_iter()
        .filter_map(|name| machine.canonicalize(&sys.join("bus/pci/devices").join(name)).ok())
        .collect();
    if devices.is_empty() {
        return None;
    }
    // Slots in use directly below a bridge or the root: functions of one device share theirs.
    let used = |parent: &Path| {
        devices
            .iter()
            .filter(|device| device.parent() == Some(parent))
            .filter_map(|device| {
                device
                    .file_name()?
                    .to_str()?
                    .rsplit_once('.')
                    .map(|(slot, _)| slot.to_owned())
            })
            .collect::<BTreeSet<_>>()
            .len()
    };
    let is_bridge = |device: &&PathBuf| {
        machine
            .read_to_string(&device.join("class"))
            .is_ok_and(|class| class.trim().starts_with("0x0604"))
    };
    let (ports, bridges): (Vec<&PathBuf>, Vec<&PathBuf>) = devices
        .iter()
        .filter(is_bridge)
        .partition(|device| machine.exists(&device.join("max_link_speed")));
    let behind_ports = ports.iter().filter(|port| used(port) == 0).count();
    let behind_bridges: usize = bridges
        .iter()
        .map(|bridge| (SLOTS_OF_A_BUS - 1).saturating_sub(used(bridge)))
        .sum();
    let on_root = if ports.is_empty() {
        let root = devices.iter().find_map(|device| {
            let parent = device.parent()?;
            let name = parent.file_name()?.to_str()?;
            name.starts_with("pci").then(|| parent.to_owned())
        });
        root.map_or(0, |root| SLOTS_OF_A_BUS.saturating_sub(used(&root)))
    } else {
        0
    };
    Some(behind_ports + behind_bridges + on_root)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rstest::rstest;
    use tempfile::TempDir;

    use super::*;
    use crate::Linux;

    const VOLUME: &str = "0cf2a1d9-6b1c-4c3e-9";

    struct Machine(TempDir);

    impl Machine {
        fn new() -> Self {
            Self(tempfile::tempdir().expect("a temporary directory"))
        }

        fn file(&self, path: &str, content: &str) -> &Self {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().expect("it has a parent")).expect("a directory");
            fs::write(path, content).expect("a file");
            self
        }

        /// A PCI device: where it is in the tree, and its class.
        fn pci(&self, place: &str, class: &str) -> &Self {
            let dir = format!("devices/pci0000:00/{place}");
            self.file(&format!("{dir}/class"), class);
            let links = self.0.path().join("bus/pci/devices");
            fs::create_dir_all(&links).expect("a directory");
            let name = Path::new(place).file_name().expect("it has a name");
            symlink(self.0.path().join(dir), links.join(name)).expect("a link");
            self
        }

        fn slots(&self) -> VolumeSlots {
            self.slots_with("")
        }

        /// The same where this is mounted, as `/proc/self/mountinfo` has it.
        fn slots_with(&self, mounts: &str) -> VolumeSlots {
            let mounts = MountTable::parse(mounts.as_bytes()).expect("it is well-formed");
            count(&Linux::default(), self.0.path(), &mounts)
        }
    }

    #[test]
    fn a_machine_with_conventional_pci_has_what_is_left_of_32_slots_issue_572() {
        let machine = Machine::new();
        machine
            .file("block/vda/vda1/partition", "1")
            .file("block/vda/serial", VOLUME);
        machine.file("block/vdb/serial", VOLUME).file("block/loop0/size", "1");
        for slot in ["00.0", "01.0", "01.1", "01.3", "02.0", "03.0", "04.0", "05.0"] {
            machine.pci(&format!("0000:00:{slot}"), "0x010000");
        }
        let slots = machine.slots();
        assert_eq!((slots.bus, slots.attached, slots.free), (Some(Bus::Virtio), 1, 26));
        assert_eq!(slots.volumes(), 27);
    }

    #[test]
    fn a_machine_with_pci_express_has_its_empty_ports() {
        let machine = Machine::new();
        machine.file("block/vda/vda1/partition", "1");
        machine.pci("0000:00:00.0", "0x060000");
        for port in 0..16 {
            let place = format!("0000:00:{:02x}.0", 2 + port);
            machine.pci(&place, "0x060400");
            machine.file(&format!("devices/pci0000:00/{place}/max_link_speed"), "16");
            if port < 3 {
                machine.pci(&format!("{place}/0000:0{}:00.0", port + 1), "0x010000");
            }
        }
        assert_eq!(machine.slots().volumes(), 13);
    }

    #[test]
    fn disks_that_are_no_volumes_take_room_from_a_scsi_machine() {
        let machine = Machine::new();
        machine.file("block/sda/sda1/partition", "1");
        machine.file("block/sdb/device/vpd_pg80", &format!("\0\u{1}\0\u{24}{VOLUME}"));
        machine.file("block/sdc/device/vpd_pg80", "\0\u{1}\0\u{4}disk");
        let slots = machine.slots();
        assert_eq!((slots.bus, slots.attached, slots.volumes()), (Some(Bus::Scsi), 1, 254));
    }

    const STAGED: &str = "/var/lib/kubelet/plugins/kubernetes.io/csi/cinder.csi.openstack.org/1/globalmount";

    /// A machine with two free PCI Express ports and a disk `vdb` that is a volume.
    fn with_a_volume() -> Machine {
        let machine = Machine::new();
        machine.file("block/vda/vda1/partition", "1");
        machine
            .file("block/vdb/serial", VOLUME)
            .file("block/vdb/dev", "252:16\n");
        for port in 0..2 {
            let place = format!("0000:00:0{}.0", 2 + port);
            machine.pci(&place, "0x060400");
            machine.file(&format!("devices/pci0000:00/{place}/max_link_speed"), "16");
        }
        machine
    }

    #[rstest]
    // etcd's disk, in the mount namespace of the node alone; and the disk of the kubelet's own directory.
    #[case(&["fs/ext4/vdb/errors_count"], "")]
    #[case(&["fs/xfs/vdb/stats/stats"], "1 0 252:16 / /var/lib/kubelet rw - xfs /dev/vdb rw\n")]
    // A local volume: the kubelet's, and not of a CSI driver.
    #[case(
        &["fs/ext4/vdb/errors_count"],
        "1 0 252:16 /data /var/lib/kubelet/pods/1/volumes/kubernetes.io~local-volume/pv rw - ext4 /dev/vdb rw\n"
    )]
    #[case(&["fs/btrfs/9a1b/devices/vdb"], "")]
    #[case(&["block/vdb/holders/dm-0"], "")]
    #[case(&["block/vdb/vdb1/partition"], "")]
    fn a_volume_that_is_used_for_something_else_is_no_room(#[case] files: &[&str], #[case] mounts: &str) {
        let machine = with_a_volume();
        assert_eq!(machine.slots().volumes(), 3, "it may be about to be staged");
        for file in files {
            machine.file(file, "1");
        }
        let slots = machine.slots_with(mounts);
        assert_eq!((slots.attached, slots.volumes()), (0, 2));
    }

    #[rstest]
    #[case(&["fs/ext4/vdb/errors_count"], &format!("1 0 252:16 / {STAGED} rw - ext4 /dev/vdb rw\n"))]
    #[case(&["fs/btrfs/9a1b/devices/vdb"], &format!("1 0 0:50 / {STAGED} rw - btrfs /dev/vdb rw\n"))]
    // Given to a pod as a device, which has put partitions and a volume group on it.
    #[case(
        &["block/vdb/vdb1/partition", "block/vdb/holders/dm-0"],
        "1 0 0:6 /vdb /srv/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pv/1 rw - devtmpfs udev rw\n"
    )]
    fn a_volume_that_csi_uses_is_counted(#[case] files: &[&str], #[case] mounts: &str) {
        let machine = with_a_volume();
        for file in files {
            machine.file(file, "1");
        }
        assert_eq!(machine.slots_with(mounts).volumes(), 3);
    }

    #[test]
    fn a_volume_with_several_paths_is_known_by_its_multipath_device() {
        let machine = with_a_volume();
        machine
            .file("block/vdb/holders/dm-0", "")
            .file("block/dm-0/dm/uuid", "mpath-3600\n");
        machine.file("block/dm-0/dev", "253:0\n");
        assert_eq!(machine.slots().volumes(), 3, "it is not in use");
        machine.file("fs/ext4/dm-0/errors_count", "0");
        assert_eq!(machine.slots().volumes(), 2);
        let staged = format!("1 0 253:0 / {STAGED} rw - ext4 /dev/mapper/mpatha rw\n");
        assert_eq!(machine.slots_with(&staged).volumes(), 3);
    }

    #[test]
    fn where_nothing_tells_the_limit_is_the_documented_one_and_not_none_issue_594() {
        assert_eq!(Machine::new().slots().volumes(), MOST_VOLUMES);
    }
}
