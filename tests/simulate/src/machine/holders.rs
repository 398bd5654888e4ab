// SPDX-License-Identifier: Apache-2.0
//! Agents on a node that use a volume too: by a private mount namespace, an open file, an open device, or a block
//! device on top of it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use csi_host::FsType;

use super::SimMachine;
use super::filesystem::Filesystem;
use super::state::{Disk, Opener, Opening, Root, Superblock};

/// How an agent uses a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// A private mount namespace has a copy of the mounts, until their directories are removed.
    Mounts,
    /// A file is open. The device is in use even without a mount.
    File,
    /// The device is open, without an exclusive claim.
    Device,
    /// A block device is on top of a device without a file system.
    Layer,
}

impl Holder {
    pub const ALL: [Self; 4] = [Self::Mounts, Self::File, Self::Device, Self::Layer];
}

impl SimMachine {
    /// Lets an agent use a volume until [`SimMachine::release_elsewhere`] or a reboot. Has no effect without a mount,
    /// or if another user excludes the agent.
    pub fn hold_elsewhere(&self, volume_id: &str, holder: Holder) {
        match holder {
            Holder::Mounts => self.change_superblocks(volume_id, |found, targets| found.copies.extend(targets)),
            Holder::File => self.change_superblocks(volume_id, |found, _| found.is_open = true),
            Holder::Device => self.open_elsewhere(volume_id),
            Holder::Layer => self.layer_elsewhere(volume_id),
        }
    }

    fn open_elsewhere(&self, volume_id: &str) {
        let mut state = self.node.state();
        let Some(disk) = state.disk_of_volume(volume_id) else {
            return;
        };
        let number = state.disks.get(&disk).map(Disk::number).unwrap_or_default();
        let (id, by, alone) = (state.number(), Opener::Agent, false);
        state.openings.insert(
            id,
            Opening {
                disk,
                by,
                number,
                alone,
            },
        );
    }

    fn layer_elsewhere(&self, volume_id: &str) {
        let mut state = self.node.state();
        let Some(id) = state.disk_of_volume(volume_id).filter(|id| !state.is_claimed(*id)) else {
            return;
        };
        if let Some(disk) = state.disks.get_mut(&id) {
            // Only if a tenant may have created LVM volumes.
            disk.has_layer = disk.medium.holds_data() && Filesystem::detect(disk).is_none();
        }
    }

    /// Ends all uses of the volume by agents.
    pub fn release_elsewhere(&self, volume_id: &str) {
        self.change_superblocks(volume_id, |found, _| {
            found.copies.clear();
            found.is_open = false;
        });
        let mut state = self.node.state();
        let is_of_volume = |disk: &Disk| disk.volume_id == volume_id;
        let disks: BTreeSet<u64> = {
            let disks = state.disks.iter_mut().filter(|(_, disk)| is_of_volume(disk));
            let release = |(id, disk): (&u64, &mut Disk)| {
                disk.has_layer = false;
                *id
            };
            disks.map(release).collect()
        };
        let openings = &mut state.openings;
        openings.retain(|_, opening| opening.by != Opener::Agent || !disks.contains(&opening.disk));
        state.write_unused();
    }

    /// Ends all uses of volumes by agents. With `keep_harmless`, skips file systems that a pod can still use.
    pub fn release_all_elsewhere(&self, keep_harmless: bool) {
        let volumes: BTreeSet<String> = {
            let state = self.node.state();
            let is_harmless = |id: u64| {
                let superblock = state.superblock_of(id).and_then(|id| state.superblocks.get(&id));
                // A btrfs of an unplugged disk cannot be mounted again while it is in use.
                superblock.is_none_or(|superblock| superblock.fs_type != FsType::Btrfs && !superblock.read_only)
            };
            let disks = state
                .disks
                .iter()
                .filter(|(id, _)| !keep_harmless || !is_harmless(**id));
            disks.map(|(_, disk)| disk.volume_id.clone()).collect()
        };
        for volume in volumes {
            self.release_elsewhere(&volume);
        }
    }

    /// Changes the superblocks of a volume. The second argument of `change` has the targets of the mounts.
    fn change_superblocks(&self, volume_id: &str, change: impl Fn(&mut Superblock, Vec<PathBuf>)) {
        let mut state = self.node.state();
        let disks = state.disks.iter().filter(|(_, disk)| disk.volume_id == volume_id);
        let disks: BTreeSet<u64> = disks.map(|(id, _)| *id).collect();
        let superblocks = state
            .superblocks
            .iter()
            .filter(|(_, found)| disks.contains(&found.disk));
        for superblock in superblocks.map(|(id, _)| *id).collect::<Vec<u64>>() {
            let mounts = state
                .mounts
                .iter()
                .filter(|mount| mount.root == Root::Volume(superblock));
            let targets = mounts.map(|mount| mount.target.clone()).collect();
            if let Some(found) = state.superblocks.get_mut(&superblock) {
                change(found, targets);
            }
            self.node.release(&mut state, superblock);
        }
    }
}
