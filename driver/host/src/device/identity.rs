// SPDX-License-Identifier: Apache-2.0
//! One look at sysfs and the by-id links.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::stale_links::StaleLinks;
use super::{Device, DeviceError};
use crate::machine::Kind;
use crate::{HostPaths, Machine};

/// Where virtio-blk and NVMe cut a serial.
const CUT: usize = 20;

/// What stands before a serial, cut or not, in the links of QEMU's disks.
const QEMU: [&str; 5] = [
    "virtio-",
    "scsi-0QEMU_QEMU_HARDDISK_",
    "scsi-SQEMU_QEMU_HARDDISK_",
    "scsi-1ATA_QEMU_HARDDISK_",
    "ata-QEMU_HARDDISK_",
];

/// sysfs counts sizes in sectors of 512 bytes, whatever the disk's own sectors are.
const SECTOR: u64 = 512;

/// Looks once. Blocks for as long as sysfs and the directory of links take to answer.
pub(super) fn look(
    machine: &dyn Machine,
    paths: &HostPaths,
    stale_links: &StaleLinks,
    volume_id: &str,
    expected_size: Option<u64>,
) -> Result<Device, DeviceError> {
    let disks = disks(machine, &paths.sys)?;
    let links = paths.dev.join("disk/by-id");
    // The kernel's name of each candidate, with where it was found.
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in disks.iter().filter(|name| has_bus(machine, &paths.sys, name)) {
        if is_named(machine, &paths.sys, name, volume_id) {
            found
                .entry(upper(machine, &paths.sys, name))
                .or_default()
                .push(format!("serial of {name}"));
        }
    }
    let mut stale = None;
    for link in links_of(machine, &links, volume_id)? {
        // A dangling link is one that udev is about to remove.
        let Ok(target) = machine.canonicalize(&link) else {
            continue;
        };
        let Some(name) = target.file_name().and_then(OsStr::to_str).map(str::to_owned) else {
            continue;
        };
        let entry = machine.stat(&paths.sys.join("block").join(&name));
        if !entry.is_ok_and(|entry| entry.kind == Kind::Directory) {
            // A partition, or a disk that the kernel has already dropped.
            continue;
        }
        if is_assembled(machine, &paths.sys, &name) {
            continue;
        }
        let serials = serials(machine, &paths.sys, &name);
        if let Some(serial) = serials.first()
            && !is_named(machine, &paths.sys, &name, volume_id)
        {
            // It is surely not about this volume, so it is no candidate beside those that are.
            stale.get_or_insert_with(|| DeviceError::Stale {
                volume_id: volume_id.to_owned(),
                link,
                device: name,
                serial: serial.clone(),
                unidentified: unidentified(machine, &paths.sys, &disks),
            });
            continue;
        }
        found
            .entry(upper(machine, &paths.sys, &name))
            .or_default()
            .push(link.display().to_string());
    }
    if found.len() > 1 {
        let candidates = found
            .into_iter()
            .map(|(name, from)| format!("{name} by {}", from.join(" and ")))
            .collect();
        return Err(DeviceError::Ambiguous {
            volume_id: volume_id.to_owned(),
            candidates,
        });
    }
    let Some((name, _)) = found.pop_first() else {
        return Err(stale.unwrap_or(DeviceError::NotFound {
            volume_id: volume_id.to_owned(),
            looked_at: disks.len(),
            links,
            waited: std::time::Duration::ZERO,
        }));
    };
    if let Some(stale) = &stale {
        stale_links.report(stale);
    }
    let device = describe(machine, paths, volume_id, &name)?;
    if device.size_bytes == 0 {
        return Err(DeviceError::NoSize {
            volume_id: volume_id.to_owned(),
            device: name,
        });
    }
    match expected_size {
        Some(expected) if device.size_bytes < expected => Err(DeviceError::TooSmall {
            volume_id: volume_id.to_owned(),
            map: stale_map(machine, paths, volume_id, &device),
            device: name,
            expected,
            actual: device.size_bytes,
        }),
        _ => Ok(device),
    }
}

fn disks(machine: &dyn Machine, sys: &Path) -> Result<Vec<String>, DeviceError> {
    list_disks(machine, sys).map_err(|source| DeviceError::Access {
        what: "list",
        path: sys.join("block"),
        source,
    })
}

/// Names of all disks, without partitions. Hidden disks are excluded: each is one path of a multipath NVMe disk and has no node in /dev.
pub(crate) fn list_disks(machine: &dyn Machine, sys: &Path) -> io::Result<Vec<String>> {
    let dir = sys.join("block");
    let names = machine
        .list(&dir)?
        .into_iter()
        .filter_map(|name| name.into_string().ok());
    let is_hidden = |name: &String| {
        let hidden = machine.read_to_string(&dir.join(name).join("hidden"));
        hidden.is_ok_and(|hidden| hidden.trim() == "1")
    };
    Ok(names.filter(|name| !is_hidden(name)).collect())
}

/// Whether a disk may have a serial of its own: what the kernel makes up itself (loop, RAM, device mapper) has none, and a node
/// may have hundreds of them.
fn has_bus(machine: &dyn Machine, sys: &Path, name: &str) -> bool {
    let target = machine.read_link(&sys.join("block").join(name)).unwrap_or_default();
    !target.to_string_lossy().contains("/devices/virtual/block/")
}

/// A disk that may be any volume, because the kernel cannot read its serial.
///
/// A disk with an empty serial is not a volume, since udev derives the links from the same data. Removable media, such as the
/// config drive in a CD-ROM drive, are not volumes either.
fn unidentified(machine: &dyn Machine, sys: &Path, disks: &[String]) -> Option<String> {
    let is_identified = |name: &str| {
        let files = ["serial", "device/serial", "device/vpd_pg80", "device/vpd_pg83"];
        let disk = sys.join("block").join(name);
        let removable = machine.read_to_string(&disk.join("removable"));
        removable.is_ok_and(|text| text.trim() == "1")
            || files.iter().any(|file| machine.read(&disk.join(file)).is_ok())
    };
    let mut disks = disks.iter().filter(|name| has_bus(machine, sys, name));
    disks.find(|name| !is_identified(name)).cloned()
}

/// Whether the kernel shows something of the disk that is the volume's id.
pub(crate) fn is_named(machine: &dyn Machine, sys: &Path, name: &str, volume_id: &str) -> bool {
    identifying_disks(machine, sys, name).iter().any(|disk| {
        disk_serials(machine, sys, disk)
            .iter()
            .chain(&world_wide_names(machine, sys, disk))
            .any(|serial| is_serial_of(serial, volume_id))
    })
}

/// The disks that have the serial of a device: the paths of a multipath map, or the disk itself.
fn identifying_disks(machine: &dyn Machine, sys: &Path, name: &str) -> Vec<String> {
    let paths = path_disks(machine, sys, name);
    if paths.is_empty() { vec![name.to_owned()] } else { paths }
}

/// The world-wide names of a disk as far as a hypervisor may have put an id into them: `uuid.…` and `eui.…` of NVMe,
/// `naa.…` of SCSI (ESXi), the last word of `t10.…`. A disk may have one of its own as well, so a name that is not the
/// volume's says nothing.
fn world_wide_names(machine: &dyn Machine, sys: &Path, name: &str) -> Vec<String> {
    let disk = sys.join("block").join(name);
    ["wwid", "device/wwid", "uuid"]
        .into_iter()
        .filter_map(|file| machine.read_to_string(&disk.join(file)).ok())
        .filter_map(|text| {
            let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
            let name = match text.split_once('.') {
                Some(("uuid" | "naa" | "eui", id)) => id,
                Some(("t10", words)) => words.split_whitespace().next_back()?,
                _ => text,
            };
            (!name.is_empty()).then(|| name.to_owned())
        })
        .collect()
}

/// Requests that the kernel reads the size of a disk again, or of each path of a device-mapper device. Returns whether one could be
/// rescanned. Blocks until the disks answer.
pub(super) fn rescan(machine: &dyn Machine, sys: &Path, name: &str) -> Result<bool, DeviceError> {
    let paths = path_disks(machine, sys, name);
    if paths.is_empty() {
        return rescan_disk(machine, sys, name);
    }
    let mut rescans = paths.iter().map(|path| rescan_disk(machine, sys, path));
    rescans.try_fold(false, |any, rescanned| Ok(any | rescanned?))
}

/// The disks below a device-mapper device.
fn path_disks(machine: &dyn Machine, sys: &Path, name: &str) -> Vec<String> {
    let slaves = machine.list(&sys.join("block").join(name).join("slaves"));
    let slaves = slaves.unwrap_or_default().into_iter();
    slaves.filter_map(|slave| slave.into_string().ok()).collect()
}

/// The multipath map whose paths are all larger than the map itself, with its name.
fn stale_map(machine: &dyn Machine, paths: &HostPaths, volume_id: &str, device: &Device) -> Option<String> {
    let disks = path_disks(machine, &paths.sys, &device.name);
    let sizes = disks
        .iter()
        .map(|disk| describe(machine, paths, volume_id, disk).map(|disk| disk.size_bytes));
    let smallest = sizes.collect::<Result<Vec<u64>, _>>().ok()?.into_iter().min()?;
    if smallest <= device.size_bytes {
        return None;
    }
    let map = paths.sys.join("block").join(&device.name).join("dm/name");
    Some(machine.read_to_string(&map).ok()?.trim().to_owned())
}

/// The same for one disk of a bus with rescans: SCSI and NVMe. The kernel learns the size of a virtio disk without one.
fn rescan_disk(machine: &dyn Machine, sys: &Path, name: &str) -> Result<bool, DeviceError> {
    for file in ["device/rescan", "device/rescan_controller"] {
        let path = sys.join("block").join(name).join(file);
        match machine.write(&path, b"1") {
            Ok(written) => {
                return written.map(|()| true).map_err(|source| DeviceError::Access {
                    what: "write to",
                    path,
                    source,
                });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => {
                return Err(DeviceError::Access {
                    what: "open",
                    path,
                    source,
                });
            }
        }
    }
    Ok(false)
}

/// Every serial that the kernel shows of a disk, or of the paths of a multipath map, which has none itself.
pub(crate) fn serials(machine: &dyn Machine, sys: &Path, name: &str) -> Vec<String> {
    let disks = identifying_disks(machine, sys, name).into_iter();
    disks.flat_map(|disk| disk_serials(machine, sys, &disk)).collect()
}

fn disk_serials(machine: &dyn Machine, sys: &Path, name: &str) -> Vec<String> {
    let disk = sys.join("block").join(name);
    // virtio-blk, then NVMe, then SCSI's page 0x80 («unit serial number»: a header of four bytes, then the serial).
    let plain = ["serial", "device/serial"].map(|file| machine.read(&disk.join(file)).ok());
    let page = machine
        .read(&disk.join("device/vpd_pg80"))
        .ok()
        .and_then(|page| page.get(4..).map(<[u8]>::to_vec));
    plain
        .into_iter()
        .chain([page])
        .flatten()
        .map(|raw| {
            String::from_utf8_lossy(&raw)
                .trim_matches(|c: char| c.is_whitespace() || c == '\0')
                .to_owned()
        })
        .filter(|serial| !serial.is_empty())
        .collect()
}

/// Whether a disk with this serial is the volume, as far as the serial tells: the whole id, the id without its dashes, or
/// its first 20 characters where the bus cut it.
fn is_serial_of(serial: &str, volume_id: &str) -> bool {
    serial.eq_ignore_ascii_case(volume_id)
        || serial.eq_ignore_ascii_case(&volume_id.replace('-', ""))
        || cut(volume_id).is_some_and(|cut| serial.eq_ignore_ascii_case(cut))
}

/// The first 20 characters of an id that is longer than that.
fn cut(volume_id: &str) -> Option<&str> {
    if volume_id.len() > CUT {
        volume_id.get(..CUT)
    } else {
        None
    }
}

/// The links that udev makes for the volume, as far as they exist.
fn links_of(machine: &dyn Machine, dir: &Path, volume_id: &str) -> Result<Vec<PathBuf>, DeviceError> {
    let ids: Vec<&str> = [Some(volume_id), cut(volume_id)].into_iter().flatten().collect();
    // ESXi makes a world-wide name of the id; scsi_id puts a 3 before it.
    let plain = volume_id.replace('-', "");
    let mut exact = vec![format!("wwn-0x{plain}"), format!("scsi-3{plain}")];
    for id in &ids {
        exact.extend(QEMU.map(|kind| format!("{kind}{id}")));
    }
    let names = match machine.list(dir) {
        Ok(names) => names,
        // udev makes the directory with the first link.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => {
            return Err(DeviceError::Access {
                what: "list",
                path: dir.to_owned(),
                source,
            });
        }
    };
    let mut links = Vec::new();
    for name in names {
        let Some(name) = name.to_str() else { continue };
        // NVMe: `nvme-<model>_<serial>` and `nvme-<model>_<serial>_<namespace>`; the model is the hypervisor's.
        let namespace = |name: &str| {
            let (before, number) = name.rsplit_once('_')?;
            number.bytes().all(|byte| byte.is_ascii_digit()).then_some(before.len())
        };
        let ends_with = |name: &str, id: &str| {
            let before = name.strip_suffix(id);
            before.is_some_and(|before| before.ends_with('_') || before.ends_with("uuid."))
        };
        let is_nvme = name.starts_with("nvme-")
            && ids.iter().any(|id| {
                ends_with(name, id)
                    || namespace(name).is_some_and(|end| ends_with(name.get(..end).unwrap_or_default(), id))
            });
        // A whole UUID at the end is nobody else's, whatever bus and model stand before it.
        let is_whole = volume_id.len() > CUT
            && name
                .strip_suffix(volume_id)
                .is_some_and(|before| before.ends_with(['-', '_']));
        if is_nvme || is_whole || exact.iter().any(|exact| exact == name) {
            links.push(dir.join(name));
        }
    }
    Ok(links)
}

/// The multipath device that a disk is a path of, else the disk itself.
pub(crate) fn upper(machine: &dyn Machine, sys: &Path, name: &str) -> String {
    let holders = machine.list(&sys.join("block").join(name).join("holders"));
    for holder in holders.unwrap_or_default() {
        let holder = holder.to_string_lossy().into_owned();
        if is_multipath(machine, sys, &holder) {
            return holder;
        }
    }
    name.to_owned()
}

/// Whether the node assembled a device from metadata on disks, such as a RAID or a logical volume. The user of these disks chose
/// the name in its link.
fn is_assembled(machine: &dyn Machine, sys: &Path, name: &str) -> bool {
    name.starts_with("md") || (name.starts_with("dm-") && !is_multipath(machine, sys, name))
}

fn is_multipath(machine: &dyn Machine, sys: &Path, name: &str) -> bool {
    let uuid = machine.read_to_string(&sys.join("block").join(name).join("dm/uuid"));
    uuid.is_ok_and(|uuid| uuid.starts_with("mpath-"))
}

fn describe(machine: &dyn Machine, paths: &HostPaths, volume_id: &str, name: &str) -> Result<Device, DeviceError> {
    let disk = paths.sys.join("block").join(name);
    let read = |file: &str| {
        let path = disk.join(file);
        machine
            .read_to_string(&path)
            .map(|text| text.trim().to_owned())
            .map_err(|source| DeviceError::Access {
                what: "read",
                path: path.clone(),
                source,
            })
            .map(|text| (path, text))
    };
    let garbled = |path: PathBuf| DeviceError::Access {
        what: "understand",
        path,
        source: io::Error::from(io::ErrorKind::InvalidData),
    };
    let (path, size) = read("size")?;
    let sectors: u64 = size.parse().map_err(|_| garbled(path))?;
    let (path, number) = read("dev")?;
    let number = number
        .split_once(':')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    Ok(Device {
        path: paths.dev.join(name),
        name: name.to_owned(),
        size_bytes: sectors * SECTOR,
        number: number.ok_or_else(|| garbled(path))?,
        read_only: read("ro")?.1 == "1",
        volume_id: volume_id.to_owned(),
    })
}
