// SPDX-License-Identifier: Apache-2.0
//! Devices that may be a config drive: CD-ROMs and plain disks that only the cloud writes.

use std::path::{Path, PathBuf};

use crate::device::list_disks;
use crate::slots::{is_volume, names};
use crate::{HostPaths, Machine};

/// Nova's label.
pub(super) const LABEL: &str = "config-2";

const CD_ROM: &str = "sr";
/// Names that the kernel gives to disks of the machine. The node itself creates dm, md, loop, bcache and zram devices; nbd, rbd
/// and drbd are volumes of other storage systems.
const PLAIN_DISKS: [&str; 5] = ["vd", "sd", "xvd", "nvme", "mmcblk"];
/// Nova's drives have at most 64 MiB.
const LARGEST: u64 = 128 << 20;

/// Names of the CD-ROMs, and of the plain disks and partitions that are small enough or have the label in `/dev/disk`.
pub(super) fn list(machine: &dyn Machine, paths: &HostPaths) -> (Vec<String>, Vec<String>) {
    let labelled = labelled(machine, &paths.dev);
    let block = paths.sys.join("block");
    let disks: Vec<String> = list_disks(machine, &paths.sys)
        .unwrap_or_default()
        .into_iter()
        .filter(|disk| is_own_disk(machine, &paths.sys, disk))
        .collect();
    let (cd_roms, disks): (Vec<String>, Vec<String>) = disks.into_iter().partition(|disk| disk.starts_with(CD_ROM));
    let mut plain = Vec::new();
    for disk in disks {
        let entry = block.join(&disk);
        let partitions = names(machine, &entry)
            .into_iter()
            .map(|name| (entry.join(&name), name))
            .filter(|(partition, _)| machine.exists(&partition.join("partition")) && !has_holders(machine, partition));
        let devices = [(entry.clone(), disk)].into_iter().chain(partitions);
        plain.extend(
            devices
                .filter(|(entry, name)| labelled.contains(name) || is_small(machine, entry))
                .map(|(_, name)| name),
        );
    }
    (cd_roms, plain)
}

/// Names of the devices that udev reports with the label. There is one link for each spelling, whatever the number of devices.
fn labelled(machine: &dyn Machine, dev: &Path) -> Vec<String> {
    let links = [LABEL, "CONFIG-2"].map(|label| dev.join("disk/by-label").join(label));
    let nodes = links.iter().filter_map(|link| machine.canonicalize(link).ok());
    nodes
        .filter_map(|node| Some(node.file_name()?.to_str()?.to_owned()))
        .collect()
}

/// Whether a disk is one that the cloud gave to this server, and neither a volume nor a part of another device.
fn is_own_disk(machine: &dyn Machine, sys: &Path, disk: &str) -> bool {
    let is_known = disk.starts_with(CD_ROM) || PLAIN_DISKS.iter().any(|prefix| disk.starts_with(prefix));
    is_known
        && !has_holders(machine, &sys.join("block").join(disk))
        && !is_remote(machine, sys, disk)
        && !is_volume(machine, sys, disk)
}

/// Whether a device is a part of another one: a multipath device, a volume group, a RAID.
fn has_holders(machine: &dyn Machine, entry: &Path) -> bool {
    let holders = entry.join("holders");
    match machine.list(&holders) {
        Ok(holders) => !holders.is_empty(),
        Err(_) => machine.exists(&holders),
    }
}

/// Whether this node reaches a disk over a storage network: iSCSI, Fibre Channel or NVMe over fabrics. Other CSI drivers attach
/// such disks, with a serial that is not a UUID.
fn is_remote(machine: &dyn Machine, sys: &Path, disk: &str) -> bool {
    let entry = sys.join("block").join(disk);
    if disk.starts_with("nvme") {
        let transports = transports(machine, &entry.join("device"));
        return transports.is_empty() || transports.iter().any(|transport| transport != "pcie");
    }
    let Ok(path) = machine.canonicalize(&entry) else {
        return true;
    };
    path.iter().filter_map(|part| part.to_str()).any(|part| {
        let session = part.strip_prefix("session").unwrap_or_default();
        part.starts_with("rport-") || session.starts_with(|c: char| c.is_ascii_digit())
    })
}

/// Transports of the NVMe controllers of a disk: of one controller, or of each path.
fn transports(machine: &dyn Machine, device: &Path) -> Vec<String> {
    let controllers = names(machine, device)
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

fn is_small(machine: &dyn Machine, entry: &Path) -> bool {
    let sectors = machine.read_to_string(&entry.join("size")).ok();
    let sectors: Option<u64> = sectors.and_then(|text| text.trim().parse().ok());
    sectors.is_some_and(|sectors| sectors > 0 && sectors <= LARGEST / 512)
}
