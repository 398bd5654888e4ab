// SPDX-License-Identifier: Apache-2.0
//! Counts the volumes that this machine can have: the attached ones and the free slots of its bus.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::device::{find_multipath_device, list_disks, read_serials};
use crate::timing::TIMING;
use crate::{Host, Machine, MountError, MountTable, mountinfo};

/// Limit of volumes per node, as documented by the Go driver. It is also the limit of a hypervisor's SCSI controller.
pub const MOST_VOLUMES: u32 = 256;
/// Slots of a conventional PCI bus. The host bridge occupies the first slot of the root bus.
const SLOTS_OF_A_BUS: usize = 32;

/// Bus through which the hypervisor attaches volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bus {
    /// virtio-blk: each volume is a PCI device and occupies a slot.
    Virtio,
    /// SCSI: volumes share controllers.
    Scsi,
    /// NVMe: volumes share controllers, or each has one.
    Nvme,
}

/// Capacity of this machine for volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeSlots {
    /// `None` if no disk indicates the bus.
    pub bus: Option<Bus>,
    /// Number of attached volumes that CSI uses or may use: disks with a UUID as serial.
    ///
    /// A disk that has partitions, is mounted or is part of another block device counts only if CSI has published it.
    /// This excludes the boot disk and a disk of etcd.
    pub attached: u32,
    /// Number of further volumes that fit.
    pub free: u32,
}

impl VolumeSlots {
    /// Returns the total number of volumes, at most [`MOST_VOLUMES`].
    pub fn volumes(self) -> u32 {
        self.attached.saturating_add(self.free).min(MOST_VOLUMES)
    }
}

impl Host {
    /// Counts the disks and slots. Bounded by 20 s, including the list of mounts. Dropping the future changes nothing.
    pub async fn volume_slots(&self) -> Result<VolumeSlots, MountError> {
        let mounts = self.mounts().await?;
        let (machine, sys) = (self.inner.machine.clone(), self.inner.paths.sys.clone());
        let count = move || count_slots(&*machine, &sys, &mounts);
        Ok(self
            .inner
            .calls
            .run_local("counting disks and slots", TIMING.slots_timeout, count)
            .await?)
    }
}

struct CountedDisk {
    bus: Bus,
    /// The multipath device above the disk, or the disk itself.
    upper: String,
    is_volume: bool,
}

fn count_slots(machine: &dyn Machine, sys: &Path, mounts: &MountTable) -> VolumeSlots {
    let disks: Vec<CountedDisk> = list_disks(machine, sys)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|name| inspect_disk(machine, sys, mounts, &name))
        .collect();
    let volumes = || disks.iter().filter(|disk| disk.is_volume);
    // Further volumes use the bus of the attached ones. Before the first volume, a disk on the bus of the hypervisor
    // decides, because Nova may also pass local NVMe disks through.
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

/// Lists the names in a directory, sorted; empty if it cannot be read.
pub(crate) fn list_names(machine: &dyn Machine, dir: &Path) -> Vec<String> {
    let names = machine.list(dir).unwrap_or_default();
    names.into_iter().filter_map(|name| name.into_string().ok()).collect()
}

fn inspect_disk(machine: &dyn Machine, sys: &Path, mounts: &MountTable, name: &str) -> Option<CountedDisk> {
    let bus = [("vd", Bus::Virtio), ("sd", Bus::Scsi), ("nvme", Bus::Nvme)]
        .into_iter()
        .find_map(|(prefix, bus)| name.starts_with(prefix).then_some(bus))?;
    // Nova attaches volumes through the hypervisor. A disk of a storage network needs no slot.
    if is_remote(machine, sys, name) == Some(true) {
        return None;
    }
    let used = find_multipath_device(machine, sys, name);
    // An unused volume is most likely about to be staged.
    let is_volume = is_volume(machine, sys, name)
        && (!is_in_use(machine, sys, &used) || is_shown_by_csi(machine, sys, mounts, &used));
    Some(CountedDisk {
        bus,
        upper: used,
        is_volume,
    })
}

/// Whether a disk has partitions, has a mounted file system, or is part of another block device.
///
/// sysfs shows this for the whole machine, even if this process has its own mount namespace. Unlike an exclusive open,
/// reading it does not prevent other processes from using the disk.
fn is_in_use(machine: &dyn Machine, sys: &Path, name: &str) -> bool {
    let disk = sys.join("block").join(name);
    let has_partitions = || {
        list_names(machine, &disk)
            .iter()
            .any(|entry| entry.starts_with(name) && machine.exists(&disk.join(entry).join("partition")))
    };
    let is_held = || !list_names(machine, &disk.join("holders")).is_empty();
    let kinds = sys.join("fs");
    let is_mounted = || {
        let of_btrfs = list_names(machine, &kinds.join("btrfs"));
        let of_btrfs = of_btrfs
            .iter()
            .map(|uuid| Path::new("btrfs").join(uuid).join("devices"));
        let of_others = list_names(machine, &kinds).into_iter().map(PathBuf::from);
        of_others
            .chain(of_btrfs)
            .any(|kind| machine.exists(&kinds.join(kind).join(name)))
    };
    has_partitions() || is_held() || is_mounted()
}

/// Whether a disk or its file system is mounted at a CSI path of the kubelet, below any root directory.
fn is_shown_by_csi(machine: &dyn Machine, sys: &Path, mounts: &MountTable, name: &str) -> bool {
    let number = read_device_number(machine, sys, name);
    mounts
        .iter()
        .filter(|mount| mount.target.to_string_lossy().contains("/kubernetes.io/csi/"))
        .any(|mount| mount.shows(name, number))
}

/// Whether this node accesses a disk over a storage network: iSCSI, Fibre Channel or NVMe over fabrics. `None`: sysfs
/// does not show it.
///
/// Other CSI drivers attach such disks. Their serial may be a UUID, which is the default of Linux' iSCSI target.
pub(crate) fn is_remote(machine: &dyn Machine, sys: &Path, disk: &str) -> Option<bool> {
    let entry = sys.join("block").join(disk);
    if disk.starts_with("nvme") {
        let transports = read_transports(machine, &entry.join("device"));
        return (!transports.is_empty()).then(|| transports.iter().any(|transport| transport != "pcie"));
    }
    let path = machine.canonicalize(&entry).ok()?;
    let mut parts = path.iter().filter_map(|part| part.to_str());
    Some(parts.any(|part| {
        let session = part.strip_prefix("session").unwrap_or_default();
        part.starts_with("rport-") || session.starts_with(|c: char| c.is_ascii_digit())
    }))
}

/// Reads the transports of the NVMe controllers of a disk: one controller, or one for each path.
fn read_transports(machine: &dyn Machine, device: &Path) -> Vec<String> {
    let controllers = list_names(machine, device)
        .into_iter()
        .filter(|name| name.starts_with("nvme"));
    let files = controllers.map(|name| device.join(name).join("transport"));
    [device.join("transport")]
        .into_iter()
        .chain(files)
        .filter_map(|file: PathBuf| machine.read_to_string(&file).ok())
        .map(|text| text.trim().to_owned())
        .collect()
}

/// Returns the major and minor number of a disk from sysfs.
pub(crate) fn read_device_number(machine: &dyn Machine, sys: &Path, name: &str) -> Option<(u32, u32)> {
    let text = machine.read_to_string(&sys.join("block").join(name).join("dev")).ok()?;
    mountinfo::parse_device_number(text.trim().as_bytes())
}

/// Whether a serial of the disk is the id of a volume.
pub(crate) fn is_volume(machine: &dyn Machine, sys: &Path, name: &str) -> bool {
    read_serials(machine, sys, name)
        .iter()
        .any(|serial| is_volume_serial(serial))
}

/// Whether a text is a complete UUID with dashes.
pub(crate) fn is_uuid(text: &str) -> bool {
    text.len() == 36 && is_volume_serial(text)
}

/// Whether a serial is a UUID: complete, without its dashes, or truncated to 20 characters.
fn is_volume_serial(serial: &str) -> bool {
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

/// Counts the PCI slots into which a disk can be plugged; `None` without PCI.
///
/// With PCI Express each root port accepts one device, and the root bus none while the machine runs. Without PCI
/// Express, the root bus and each bridge have 32 slots.
fn free_slots(machine: &dyn Machine, sys: &Path) -> Option<usize> {
    let devices: Vec<PathBuf> = list_names(machine, &sys.join("bus/pci/devices"))
        .into_iter()
        .filter_map(|name| machine.canonicalize(&sys.join("bus/pci/devices").join(name)).ok())
        .collect();
    if devices.is_empty() {
        return None;
    }
    // Occupied slots directly below a bridge or the root. Functions of one device share a slot.
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

        /// Adds a PCI device at a path of the tree, with its class.
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

        /// Counts slots with these mounts, in the format of `/proc/self/mountinfo`.
        fn slots_with(&self, mounts: &str) -> VolumeSlots {
            let mounts = MountTable::parse(mounts.as_bytes()).expect("it is well-formed");
            count_slots(&Linux::default(), self.0.path(), &mounts)
        }
    }

    #[test]
    fn counts_free_conventional_pci_slots_issue_572() {
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
    fn counts_empty_pci_express_ports() {
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
    fn other_scsi_disks_reduce_capacity() {
        let machine = Machine::new();
        machine.file("block/sda/sda1/partition", "1");
        machine.file("block/sdb/device/vpd_pg80", &format!("\0\u{1}\0\u{24}{VOLUME}"));
        machine.file("block/sdc/device/vpd_pg80", "\0\u{1}\0\u{4}disk");
        let slots = machine.slots();
        assert_eq!((slots.bus, slots.attached, slots.volumes()), (Some(Bus::Scsi), 1, 254));
    }

    const STAGED: &str = "/var/lib/kubelet/plugins/kubernetes.io/csi/cinder.csi.openstack.org/1/globalmount";

    /// Creates a machine with two free PCI Express ports and a volume `vdb`.
    fn machine_with_volume() -> Machine {
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
    // The disk of etcd, mounted in the mount namespace of the node alone, and the disk of the kubelet's directory.
    #[case(&["fs/ext4/vdb/errors_count"], "")]
    #[case(&["fs/xfs/vdb/stats/stats"], "1 0 252:16 / /var/lib/kubelet rw - xfs /dev/vdb rw\n")]
    // A local volume, which the kubelet mounts without a CSI driver.
    #[case(
        &["fs/ext4/vdb/errors_count"],
        "1 0 252:16 /data /var/lib/kubelet/pods/1/volumes/kubernetes.io~local-volume/pv rw - ext4 /dev/vdb rw\n"
    )]
    #[case(&["fs/btrfs/9a1b/devices/vdb"], "")]
    #[case(&["block/vdb/holders/dm-0"], "")]
    #[case(&["block/vdb/vdb1/partition"], "")]
    fn excludes_volume_in_other_use(#[case] files: &[&str], #[case] mounts: &str) {
        let machine = machine_with_volume();
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
    // A raw block volume of a pod, which has created partitions and a volume group on it.
    #[case(
        &["block/vdb/vdb1/partition", "block/vdb/holders/dm-0"],
        "1 0 0:6 /vdb /srv/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pv/1 rw - devtmpfs udev rw\n"
    )]
    fn counts_volume_in_use_by_csi(#[case] files: &[&str], #[case] mounts: &str) {
        let machine = machine_with_volume();
        for file in files {
            machine.file(file, "1");
        }
        assert_eq!(machine.slots_with(mounts).volumes(), 3);
    }

    #[test]
    fn identifies_multipath_volume_by_map() {
        let machine = machine_with_volume();
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
    fn unknown_bus_has_documented_limit_issue_594() {
        assert_eq!(Machine::new().slots().volumes(), MOST_VOLUMES);
    }
}
