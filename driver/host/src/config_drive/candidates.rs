// SPDX-License-Identifier: Apache-2.0
//! Selects the devices that may be a config drive: CD-ROMs and plain disks that only the cloud writes.

use std::path::Path;

use crate::device::list_disks;
use crate::slots::{is_remote, is_volume, list_names};
use crate::{HostPaths, Machine};

/// The label of Nova's config drives.
pub(super) const LABEL: &str = "config-2";

const CD_ROM: &str = "sr";
/// Prefixes of the kernel's names for disks of the machine. Excludes dm, md, loop, bcache and zram, which the node
/// itself creates, and nbd, rbd and drbd, which are volumes of other storage systems.
const PLAIN_DISKS: [&str; 5] = ["vd", "sd", "xvd", "nvme", "mmcblk"];
/// Limit of the device size. Nova's drives have at most 64 MiB.
const LARGEST: u64 = 128 << 20;

/// Lists the CD-ROMs, and the plain disks and partitions that are small enough or have the label in `/dev/disk`.
pub(super) fn list(machine: &dyn Machine, paths: &HostPaths) -> (Vec<String>, Vec<String>) {
    let labelled = list_labelled(machine, &paths.dev);
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
        let partitions = list_names(machine, &entry)
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

/// Lists the devices that udev reports with the label. udev creates only one link per spelling, even for several
/// devices.
fn list_labelled(machine: &dyn Machine, dev: &Path) -> Vec<String> {
    let links = [LABEL, "CONFIG-2"].map(|label| dev.join("disk/by-label").join(label));
    let nodes = links.iter().filter_map(|link| machine.canonicalize(link).ok());
    nodes
        .filter_map(|node| Some(node.file_name()?.to_str()?.to_owned()))
        .collect()
}

/// Whether a disk belongs to the server and is neither a volume nor part of another device.
fn is_own_disk(machine: &dyn Machine, sys: &Path, disk: &str) -> bool {
    let is_known = disk.starts_with(CD_ROM) || PLAIN_DISKS.iter().any(|prefix| disk.starts_with(prefix));
    is_known
        && !has_holders(machine, &sys.join("block").join(disk))
        // Other CSI drivers attach disks over a network. An unknown disk counts as one of them.
        && is_remote(machine, sys, disk) == Some(false)
        && !is_volume(machine, sys, disk)
}

/// Whether a device is part of another device, such as a multipath device, a volume group or a RAID.
fn has_holders(machine: &dyn Machine, entry: &Path) -> bool {
    let holders = entry.join("holders");
    match machine.list(&holders) {
        Ok(holders) => !holders.is_empty(),
        Err(_) => machine.exists(&holders),
    }
}

fn is_small(machine: &dyn Machine, entry: &Path) -> bool {
    let sectors = machine.read_to_string(&entry.join("size")).ok();
    let sectors: Option<u64> = sectors.and_then(|text| text.trim().parse().ok());
    sectors.is_some_and(|sectors| sectors > 0 && sectors <= LARGEST / 512)
}
