// SPDX-License-Identifier: Apache-2.0
//! Searches sysfs and the by-id links once.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::stale_links::StaleLinks;
use super::{Device, DeviceError};
use crate::machine::Kind;
use crate::{HostPaths, Machine};

/// Length to which virtio-blk and NVMe truncate a serial.
const TRUNCATED_LENGTH: usize = 20;

/// Prefixes of the serial in the links of QEMU's disks.
const QEMU_PREFIXES: [&str; 5] = [
    "virtio-",
    "scsi-0QEMU_QEMU_HARDDISK_",
    "scsi-SQEMU_QEMU_HARDDISK_",
    "scsi-1ATA_QEMU_HARDDISK_",
    "ata-QEMU_HARDDISK_",
];

/// Unit of sizes in sysfs, independent of the disk's sector size.
const SECTOR: u64 = 512;

/// Searches once. Blocks until sysfs and the directory of links respond.
pub(super) fn search_disks(
    machine: &dyn Machine,
    paths: &HostPaths,
    stale_links: &StaleLinks,
    volume_id: &str,
    expected_size: Option<u64>,
) -> Result<Device, DeviceError> {
    let disks = read_disk_list(machine, &paths.sys)?;
    let links = paths.dev.join("disk/by-id");
    // The kernel's name of each candidate, with the sources of its identity.
    let mut candidates: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in disks.iter().filter(|name| has_bus(machine, &paths.sys, name)) {
        if has_volume_id(machine, &paths.sys, name, volume_id) {
            candidates
                .entry(find_multipath_device(machine, &paths.sys, name))
                .or_default()
                .push(format!("serial of {name}"));
        }
    }
    let mut stale = None;
    for link in list_links(machine, &links, volume_id)? {
        // udev is about to remove a dangling link.
        let Ok(target) = machine.canonicalize(&link) else {
            continue;
        };
        let Some(name) = target.file_name().and_then(OsStr::to_str).map(str::to_owned) else {
            continue;
        };
        let entry = machine.stat(&paths.sys.join("block").join(&name));
        if !entry.is_ok_and(|entry| entry.kind == Kind::Directory) {
            // The target is a partition, or a disk that the kernel has already removed.
            continue;
        }
        if is_assembled(machine, &paths.sys, &name) {
            continue;
        }
        let serials = read_serials(machine, &paths.sys, &name);
        if let Some(serial) = serials.first()
            && !has_volume_id(machine, &paths.sys, &name, volume_id)
        {
            // The disk is certainly another volume, and therefore not a candidate.
            stale.get_or_insert_with(|| DeviceError::Stale {
                volume_id: volume_id.to_owned(),
                link,
                device: name,
                serial: serial.clone(),
                unidentified: find_unidentified(machine, &paths.sys, &disks),
            });
            continue;
        }
        candidates
            .entry(find_multipath_device(machine, &paths.sys, &name))
            .or_default()
            .push(link.display().to_string());
    }
    if candidates.len() > 1 {
        let candidates = candidates
            .into_iter()
            .map(|(name, from)| format!("{name} by {}", from.join(" and ")))
            .collect();
        return Err(DeviceError::Ambiguous {
            volume_id: volume_id.to_owned(),
            candidates,
        });
    }
    let Some((name, _)) = candidates.pop_first() else {
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
    let device = read_device(machine, paths, volume_id, &name)?;
    if device.size_bytes == 0 {
        return Err(DeviceError::NoSize {
            volume_id: volume_id.to_owned(),
            device: name,
        });
    }
    match expected_size {
        Some(expected) if device.size_bytes < expected => Err(DeviceError::TooSmall {
            volume_id: volume_id.to_owned(),
            map: find_stale_map(machine, paths, volume_id, &device),
            device: name,
            expected,
            actual: device.size_bytes,
        }),
        _ => Ok(device),
    }
}

fn read_disk_list(machine: &dyn Machine, sys: &Path) -> Result<Vec<String>, DeviceError> {
    list_disks(machine, sys).map_err(|source| DeviceError::Access {
        what: "list",
        path: sys.join("block"),
        source,
    })
}

/// Lists all disks, without partitions. Excludes hidden disks: each is a path of a multipath NVMe disk and has no node
/// in /dev.
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

/// Whether a disk may have its own serial. Virtual devices of the kernel (loop, RAM, device mapper) have none, and a
/// node may have hundreds of them.
fn has_bus(machine: &dyn Machine, sys: &Path, name: &str) -> bool {
    let target = machine.read_link(&sys.join("block").join(name)).unwrap_or_default();
    !target.to_string_lossy().contains("/devices/virtual/block/")
}

/// Returns a disk that may be any volume, because the kernel cannot read its serial.
///
/// A disk with an empty serial is not a volume, since udev derives the links from the same data. Removable media, such
/// as the config drive in a CD-ROM drive, are not volumes either.
fn find_unidentified(machine: &dyn Machine, sys: &Path, disks: &[String]) -> Option<String> {
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

/// Whether a serial or world-wide name of the disk is the id of the volume.
pub(crate) fn has_volume_id(machine: &dyn Machine, sys: &Path, name: &str, volume_id: &str) -> bool {
    find_identifying_disks(machine, sys, name).iter().any(|disk| {
        read_disk_serials(machine, sys, disk)
            .iter()
            .chain(&read_world_wide_names(machine, sys, disk))
            .any(|serial| is_serial_of(serial, volume_id))
    })
}

/// Returns the disks that have the serial of a device: the paths of a multipath map, or the disk itself.
fn find_identifying_disks(machine: &dyn Machine, sys: &Path, name: &str) -> Vec<String> {
    let paths = list_path_disks(machine, sys, name);
    if paths.is_empty() { vec![name.to_owned()] } else { paths }
}

/// Returns the parts of a disk's world-wide names that may contain an id from the hypervisor.
///
/// These are `uuid.…` and `eui.…` of NVMe, `naa.…` of SCSI (ESXi), and the last field of `t10.…`. A disk may also have
/// a name of its own, so that a different name proves nothing.
fn read_world_wide_names(machine: &dyn Machine, sys: &Path, name: &str) -> Vec<String> {
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

/// Requests that the kernel reads the size of a disk again, or of each path of a device-mapper device. Returns whether
/// one could be rescanned. Blocks until the disks respond.
pub(super) fn rescan(machine: &dyn Machine, sys: &Path, name: &str) -> Result<bool, DeviceError> {
    let paths = list_path_disks(machine, sys, name);
    if paths.is_empty() {
        return rescan_disk(machine, sys, name);
    }
    let mut rescans = paths.iter().map(|path| rescan_disk(machine, sys, path));
    rescans.try_fold(false, |any, rescanned| Ok(any | rescanned?))
}

/// Lists the disks below a device-mapper device.
fn list_path_disks(machine: &dyn Machine, sys: &Path, name: &str) -> Vec<String> {
    let slaves = machine.list(&sys.join("block").join(name).join("slaves"));
    let slaves = slaves.unwrap_or_default().into_iter();
    slaves.filter_map(|slave| slave.into_string().ok()).collect()
}

/// Returns the name of the multipath map if all its paths are larger than the map.
fn find_stale_map(machine: &dyn Machine, paths: &HostPaths, volume_id: &str, device: &Device) -> Option<String> {
    let disks = list_path_disks(machine, &paths.sys, &device.name);
    let sizes = disks
        .iter()
        .map(|disk| read_device(machine, paths, volume_id, disk).map(|disk| disk.size_bytes));
    let smallest = sizes.collect::<Result<Vec<u64>, _>>().ok()?.into_iter().min()?;
    if smallest <= device.size_bytes {
        return None;
    }
    let map = paths.sys.join("block").join(&device.name).join("dm/name");
    Some(machine.read_to_string(&map).ok()?.trim().to_owned())
}

/// Rescans one SCSI or NVMe disk. The kernel learns the size of a virtio disk without a rescan.
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

/// Returns all serials of a disk, or of the paths of a multipath map, which has no serial itself.
pub(crate) fn read_serials(machine: &dyn Machine, sys: &Path, name: &str) -> Vec<String> {
    let disks = find_identifying_disks(machine, sys, name).into_iter();
    disks.flat_map(|disk| read_disk_serials(machine, sys, &disk)).collect()
}

fn read_disk_serials(machine: &dyn Machine, sys: &Path, name: &str) -> Vec<String> {
    let disk = sys.join("block").join(name);
    // Reads the serial of virtio-blk, of NVMe, and of SCSI's page 0x80 («unit serial number»: a header of four bytes,
    // then the serial).
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

/// Whether a serial matches the volume: the complete id, the id without its dashes, or its first 20 characters if the
/// bus truncates it.
fn is_serial_of(serial: &str, volume_id: &str) -> bool {
    serial.eq_ignore_ascii_case(volume_id)
        || serial.eq_ignore_ascii_case(&volume_id.replace('-', ""))
        || truncate_id(volume_id).is_some_and(|cut| serial.eq_ignore_ascii_case(cut))
}

/// Returns the first 20 characters of a longer id.
fn truncate_id(volume_id: &str) -> Option<&str> {
    if volume_id.len() > TRUNCATED_LENGTH {
        volume_id.get(..TRUNCATED_LENGTH)
    } else {
        None
    }
}

/// Lists the existing links of the volume, by the names that udev uses.
fn list_links(machine: &dyn Machine, dir: &Path, volume_id: &str) -> Result<Vec<PathBuf>, DeviceError> {
    let ids: Vec<&str> = [Some(volume_id), truncate_id(volume_id)]
        .into_iter()
        .flatten()
        .collect();
    // ESXi derives a world-wide name from the id, and scsi_id adds the prefix 3.
    let plain = volume_id.replace('-', "");
    let mut exact = vec![format!("wwn-0x{plain}"), format!("scsi-3{plain}")];
    for id in &ids {
        exact.extend(QEMU_PREFIXES.map(|kind| format!("{kind}{id}")));
    }
    let names = match machine.list(dir) {
        Ok(names) => names,
        // udev creates the directory with the first link.
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
        // NVMe: `nvme-<model>_<serial>` and `nvme-<model>_<serial>_<namespace>`. The hypervisor chooses the model.
        let namespace = |name: &str| {
            let (prefix, number) = name.rsplit_once('_')?;
            number.bytes().all(|byte| byte.is_ascii_digit()).then_some(prefix.len())
        };
        let ends_with = |name: &str, id: &str| {
            let prefix = name.strip_suffix(id);
            prefix.is_some_and(|prefix| prefix.ends_with('_') || prefix.ends_with("uuid."))
        };
        let is_nvme = name.starts_with("nvme-")
            && ids.iter().any(|id| {
                ends_with(name, id)
                    || namespace(name).is_some_and(|end| ends_with(name.get(..end).unwrap_or_default(), id))
            });
        // A complete UUID at the end identifies the volume, with any bus and model in front of it.
        let is_whole = volume_id.len() > TRUNCATED_LENGTH
            && name
                .strip_suffix(volume_id)
                .is_some_and(|prefix| prefix.ends_with(['-', '_']));
        if is_nvme || is_whole || exact.iter().any(|exact| exact == name) {
            links.push(dir.join(name));
        }
    }
    Ok(links)
}

/// Returns the multipath device above a disk, or the disk itself.
pub(crate) fn find_multipath_device(machine: &dyn Machine, sys: &Path, name: &str) -> String {
    let holders = machine.list(&sys.join("block").join(name).join("holders"));
    for holder in holders.unwrap_or_default() {
        let holder = holder.to_string_lossy().into_owned();
        if is_multipath(machine, sys, &holder) {
            return holder;
        }
    }
    name.to_owned()
}

/// Whether the node assembled a device from metadata on disks, such as a RAID or a logical volume. The user of these
/// disks chooses the name in its link.
fn is_assembled(machine: &dyn Machine, sys: &Path, name: &str) -> bool {
    name.starts_with("md") || (name.starts_with("dm-") && !is_multipath(machine, sys, name))
}

fn is_multipath(machine: &dyn Machine, sys: &Path, name: &str) -> bool {
    let uuid = machine.read_to_string(&sys.join("block").join(name).join("dm/uuid"));
    uuid.is_ok_and(|uuid| uuid.starts_with("mpath-"))
}

fn read_device(machine: &dyn Machine, paths: &HostPaths, volume_id: &str, name: &str) -> Result<Device, DeviceError> {
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
