//! How many volumes this machine can have: what is attached, and what its bus has room for.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::device::serials;
use crate::{Host, Machine, OffloadError};

const LIMIT: Duration = Duration::from_secs(10);

/// More volumes than this are never promised: the limit that the Go driver documents, and what a SCSI controller of a
/// hypervisor is given.
pub const MOST_VOLUMES: u32 = 256;
/// Slots of a conventional PCI bus; the first one of the root bus is the host bridge's.
const SLOTS_OF_A_BUS: usize = 32;

/// How volumes reach this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
pub struct Room {
    /// How volumes reach this machine; nothing where no disk tells.
    pub bus: Option<Bus>,
    /// Volumes that are attached now: disks with a UUID for a serial and without partitions, so that the one that the
    /// machine booted from is not among them.
    pub attached: u32,
    /// How many more fit.
    pub free: u32,
}

impl Room {
    /// How many volumes there can be in all; never more than [`MOST_VOLUMES`].
    pub fn volumes(self) -> u32 {
        self.attached.saturating_add(self.free).min(MOST_VOLUMES)
    }
}

impl Host {
    /// Counts. Bounded by 10 s.
    pub async fn room_for_volumes(&self) -> Result<Room, OffloadError> {
        let (machine, sys) = (self.inner.machine.clone(), self.inner.paths.sys.clone());
        self.inner
            .calls
            .run("counting disks and slots", LIMIT, move || count(&*machine, &sys))
            .await
    }
}

struct Disk {
    bus: Bus,
    is_volume: bool,
}

fn count(machine: &dyn Machine, sys: &Path) -> Room {
    let disks: Vec<Disk> = names(machine, &sys.join("block"))
        .into_iter()
        .filter_map(|name| disk(machine, sys, &name))
        .collect();
    let volumes = || disks.iter().filter(|disk| disk.is_volume);
    // Further volumes come as those before them did; before the first one, as the disk that the machine booted from did.
    let bus = volumes().chain(&disks).next().map(|disk| disk.bus);
    let on = |bus: Bus| disks.iter().filter(|disk| disk.bus == bus).count();
    let free = match bus {
        Some(Bus::Virtio) => free_slots(machine, sys),
        Some(bus @ (Bus::Scsi | Bus::Nvme)) => Some((MOST_VOLUMES as usize).saturating_sub(on(bus))),
        None => None,
    };
    Room {
        bus,
        attached: u32::try_from(volumes().count()).unwrap_or(MOST_VOLUMES),
        free: free.map_or(MOST_VOLUMES, |free| u32::try_from(free).unwrap_or(MOST_VOLUMES)),
    }
}

/// Names in a directory, sorted; none where it cannot be read.
pub(crate) fn names(machine: &dyn Machine, dir: &Path) -> Vec<String> {
    let names = machine.list(dir).unwrap_or_default();
    names.into_iter().filter_map(|name| name.into_string().ok()).collect()
}

fn disk(machine: &dyn Machine, sys: &Path, name: &str) -> Option<Disk> {
    let bus = [("vd", Bus::Virtio), ("sd", Bus::Scsi), ("nvme", Bus::Nvme)]
        .into_iter()
        .find_map(|(prefix, bus)| name.starts_with(prefix).then_some(bus))?;
    let dir = sys.join("block").join(name);
    let has_partitions = names(machine, &dir)
        .iter()
        .any(|entry| entry.starts_with(name) && machine.exists(&dir.join(entry).join("partition")));
    let is_volume = !has_partitions && is_volume(machine, sys, name);
    Some(Disk { bus, is_volume })
}

/// Whether a disk shows the id of a volume.
pub(crate) fn is_volume(machine: &dyn Machine, sys: &Path, name: &str) -> bool {
    serials(machine, sys, name).iter().any(|serial| is_id(serial))
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

        fn room(&self) -> Room {
            count(&Linux::default(), self.0.path())
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
        let room = machine.room();
        assert_eq!((room.bus, room.attached, room.free), (Some(Bus::Virtio), 1, 26));
        assert_eq!(room.volumes(), 27);
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
        assert_eq!(machine.room().volumes(), 13);
    }

    #[test]
    fn disks_that_are_no_volumes_take_room_from_a_scsi_machine() {
        let machine = Machine::new();
        machine.file("block/sda/sda1/partition", "1");
        machine.file("block/sdb/device/vpd_pg80", &format!("\0\u{1}\0\u{24}{VOLUME}"));
        machine.file("block/sdc/device/vpd_pg80", "\0\u{1}\0\u{4}disk");
        let room = machine.room();
        assert_eq!((room.bus, room.attached, room.volumes()), (Some(Bus::Scsi), 1, 254));
    }

    #[test]
    fn where_nothing_tells_the_limit_is_the_documented_one_and_not_none_issue_594() {
        assert_eq!(Machine::new().room().volumes(), MOST_VOLUMES);
    }
}
