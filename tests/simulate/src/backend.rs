// SPDX-License-Identifier: Apache-2.0
//! The storage behind the cloud: contents of volumes, snapshots and backups, disks of nodes, and the data that pods
//! must read.
//!
//! It follows the state of the cloud. A node has a disk while Nova has a record and Cinder's status is attached. A copy
//! is taken when Cinder takes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openstack_sim::{AttachmentStatus, BackupStatus, CloudState, SnapshotStatus, Volume, VolumeStatus};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::sleep;

use crate::cluster::VolumeMode;
use crate::machine::{Medium, SimMachine};
use crate::schedule::Schedule;

/// Maximum time from Nova's attach until a guest sees the disk: usually, and in slow cases.
const PLUG: Duration = Duration::from_millis(1_500);
const SLOW_PLUG: Duration = Duration::from_secs(20);
/// Maximum time from Cinder's extension until a guest sees the new size.
const RESIZE: Duration = Duration::from_secs(10);
/// Size of the LUKS header in an encrypted volume.
const LUKS_HEADER: u64 = 2 << 20;

/// The storage behind the cloud. Clones share the same storage.
#[derive(Debug, Clone)]
pub struct Backend {
    schedule: Schedule,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// By the id of a volume, a snapshot or a backup.
    contents: BTreeMap<String, Contents>,
    /// Machines that are powered on, by server.
    machines: BTreeMap<String, SimMachine>,
    /// By server and volume.
    disks: BTreeMap<(String, String), Disk>,
    /// Size of each volume when it was attached, by attachment.
    first_bytes: BTreeMap<String, u64>,
    /// Number of removals of a disk, by server and volume.
    removals: BTreeMap<(String, String), u64>,
    last_key: u64,
}

#[derive(Debug, Default)]
struct Contents {
    medium: Arc<Medium>,
    mode: VolumeMode,
    /// Keys that pods have written durably. Later pods must read them.
    durable: BTreeSet<u64>,
    /// Keys that later pods may read in addition.
    possible: BTreeSet<u64>,
    /// Source of an unfinished copy.
    source: Option<String>,
}

#[derive(Debug)]
struct Disk {
    attachment: String,
    bytes: u64,
    is_plugged: bool,
}

impl Contents {
    fn copy(&self) -> Self {
        Self {
            medium: self.medium.copy(),
            mode: self.mode,
            durable: self.durable.clone(),
            possible: self.possible.clone(),
            source: None,
        }
    }
}

impl Backend {
    /// Creates an empty backend.
    pub fn new(schedule: Schedule) -> Self {
        Self {
            schedule,
            state: Arc::default(),
        }
    }

    /// Powers on a server's machine. The next [`Backend::follow`] adds its disks.
    pub fn power_on(&self, server: &str, machine: SimMachine) {
        self.state().machines.insert(server.to_owned(), machine);
    }

    /// Powers off a server's machine, which removes its disks until [`Backend::power_on`].
    pub fn power_off(&self, server: &str) {
        let state = &mut *self.state();
        let pairs: Vec<_> = (state.disks.keys().filter(|(of, _)| of == server)).cloned().collect();
        for pair in &pairs {
            state.unplug(pair);
        }
        state.machines.remove(server);
    }

    /// Updates contents and disks to the state of the cloud. Callers call this after each change.
    pub fn follow(&self, cloud: &CloudState) {
        let state = &mut *self.state();
        for snapshot in &cloud.snapshots {
            let is_made = snapshot.status != SnapshotStatus::Creating;
            // A group snapshot is consistent, so its members have the data of the time of the request.
            let is_late = snapshot.group_snapshot_id.is_none();
            self.copy(state, &snapshot.id, Some(&snapshot.volume_id), is_made, is_late);
        }
        for backup in &cloud.backups {
            let source = backup.snapshot_id.as_ref().unwrap_or(&backup.volume_id);
            self.copy(
                state,
                &backup.id,
                Some(source),
                backup.status != BackupStatus::Creating,
                true,
            );
        }
        for volume in &cloud.volumes {
            let source = [&volume.snapshot_id, &volume.source_volume_id, &volume.backup_id];
            let source = source.into_iter().flatten().next();
            let is_made = volume.status != VolumeStatus::Creating;
            self.copy(state, &volume.id, source.map(String::as_str), is_made, true);
        }
        let is_there =
            |id: &String| cloud.volume(id).is_some() || cloud.snapshot(id).is_some() || cloud.backup(id).is_some();
        state.contents.retain(|id, _| is_there(id));
        self.connect(state, cloud);
    }

    /// Adds contents for new resources. A copy has the data of the start or of the end of the operation.
    fn copy(&self, state: &mut State, id: &str, source: Option<&str>, is_made: bool, is_late: bool) {
        let copied = source.and_then(|source| state.contents.get(source)).map(Contents::copy);
        match state.contents.get_mut(id) {
            None => {
                let mut contents = copied.unwrap_or_default();
                contents.source = (!is_made && is_late && self.schedule.chance(500))
                    .then(|| source.map(str::to_owned))
                    .flatten();
                state.contents.insert(id.to_owned(), contents);
            }
            // If the source is deleted, the copy retains the data of its start.
            Some(contents) if is_made => {
                if let (Some(_), Some(copied)) = (contents.source.take(), copied) {
                    *contents = copied;
                }
            }
            Some(_) => {}
        }
    }

    fn connect(&self, state: &mut State, cloud: &CloudState) {
        let mut desired = BTreeMap::new();
        for mapping in &cloud.mappings {
            let mut records = cloud.attachments.iter();
            let is_attached =
                records.any(|record| record.id == mapping.attachment_id && record.status == AttachmentStatus::Attached);
            let Some(volume) = cloud.volume(&mapping.volume_id).filter(|_| is_attached) else {
                continue;
            };
            let (attachment, bytes) = (mapping.attachment_id.clone(), bytes_of(volume));
            state.first_bytes.entry(attachment.clone()).or_insert(bytes);
            if state.machines.contains_key(&mapping.server_id) {
                let pair = (mapping.server_id.clone(), mapping.volume_id.clone());
                desired.insert(pair, (attachment, bytes));
            }
        }
        let is_known = |id: &String| cloud.attachments.iter().any(|record| record.id == *id);
        state.first_bytes.retain(|attachment, _| is_known(attachment));
        let is_wanted =
            |pair: &(String, String), disk: &Disk| desired.get(pair).is_some_and(|(of, _)| *of == disk.attachment);
        let disks = state.disks.iter();
        let removed: Vec<_> = disks
            .filter(|(pair, disk)| !is_wanted(pair, disk))
            .map(|(pair, _)| pair.clone())
            .collect();
        for pair in &removed {
            state.unplug(pair);
        }
        for (pair, (attachment, bytes)) in desired {
            match state.disks.get_mut(&pair) {
                None => {
                    let disk = Disk {
                        attachment: attachment.clone(),
                        bytes,
                        is_plugged: false,
                    };
                    state.disks.insert(pair.clone(), disk);
                    let longest = if self.schedule.chance(30) { SLOW_PLUG } else { PLUG };
                    self.later(longest, pair, attachment);
                }
                Some(disk) if disk.bytes != bytes => {
                    disk.bytes = bytes;
                    // Cinder's event to Nova may be lost. The guest then sees the size only after the next attach.
                    if !self.schedule.chance(20) {
                        self.later(RESIZE, pair, attachment);
                    }
                }
                Some(_) => {}
            }
        }
    }

    /// Shows a disk or its new size to the node after a delay.
    fn later(&self, longest: Duration, pair: (String, String), attachment: String) {
        let (backend, time) = (self.clone(), self.schedule.between(Duration::ZERO, longest));
        tokio::spawn(async move {
            sleep(time).await;
            let state = &mut *backend.state();
            let disk = state.disks.get_mut(&pair).filter(|disk| disk.attachment == attachment);
            let (server, volume) = &pair;
            let parts = (disk, state.machines.get(server), state.contents.get(volume));
            if let (Some(disk), Some(machine), Some(contents)) = parts {
                if !disk.is_plugged {
                    disk.is_plugged = true;
                    // The controller may report the size at the time of the attach.
                    let first = state.first_bytes.get(&attachment).copied().unwrap_or(disk.bytes);
                    machine.plug(volume, contents.medium.clone(), first);
                }
                machine.resize(volume, disk.bytes);
            }
        });
    }

    /// Returns the number of removals of this volume's disk from this server.
    pub fn removals(&self, server: &str, volume: &str) -> u64 {
        let pair = (server.to_owned(), volume.to_owned());
        self.state().removals.get(&pair).copied().unwrap_or_default()
    }

    /// Returns the mode of a volume, a snapshot or a backup; `None` if it does not exist.
    pub fn mode(&self, id: &str) -> Option<VolumeMode> {
        self.state().contents.get(id).map(|contents| contents.mode)
    }

    /// Sets the mode of a volume.
    pub fn set_mode(&self, volume: &str, mode: VolumeMode) {
        if let Some(contents) = self.state().contents.get_mut(volume) {
            contents.mode = mode;
        }
    }

    /// Whether a node can mount the volume: it is blank or has a complete file system, not a copy of an unfinished
    /// format.
    pub fn is_mountable(&self, volume: &str) -> bool {
        let state = self.state();
        let contents = state.contents.get(volume);
        contents.is_some_and(|contents| contents.mode == VolumeMode::Block || contents.medium.is_mountable())
    }

    /// Repairs all damaged file systems, as an administrator does.
    pub fn repair(&self) {
        self.state()
            .contents
            .values()
            .for_each(|contents| contents.medium.repair());
    }

    /// Returns a new key that a pod is about to write to the volume. From now on, pods may read it.
    pub fn key(&self, volume: &str) -> u64 {
        let state = &mut *self.state();
        state.last_key += 1;
        if let Some(contents) = state.contents.get_mut(volume) {
            contents.possible.insert(state.last_key);
        }
        state.last_key
    }

    /// Records that these keys are durable on the volume.
    pub fn record_durable(&self, volume: &str, keys: impl IntoIterator<Item = u64>) {
        if let Some(contents) = self.state().contents.get_mut(volume) {
            contents.durable.extend(keys);
        }
    }

    /// Whether pods have written to a volume or to the source of its copy.
    pub fn holds_keys(&self, volume: &str) -> bool {
        let state = self.state();
        state
            .contents
            .get(volume)
            .is_some_and(|contents| !contents.durable.is_empty())
    }

    /// Compares the keys that a pod has read with the expected ones; the error describes the difference.
    pub fn compare(&self, volume: &str, read: &BTreeSet<u64>) -> Result<(), String> {
        let state = self.state();
        let Some(contents) = state.contents.get(volume) else {
            return Ok(());
        };
        let missing: Vec<_> = contents.durable.difference(read).collect();
        let foreign: Vec<_> = (read.difference(&contents.durable))
            .filter(|key| !contents.possible.contains(key))
            .collect();
        if missing.is_empty() && foreign.is_empty() {
            return Ok(());
        }
        Err(format!("keys {missing:?} are missing, and {foreign:?} are another's"))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn unplug(&mut self, pair: &(String, String)) {
        if self.disks.remove(pair).is_some_and(|disk| disk.is_plugged) {
            *self.removals.entry(pair.clone()).or_default() += 1;
            if let Some(machine) = self.machines.get(&pair.0) {
                machine.unplug(&pair.1);
            }
        }
    }
}

/// Returns the size of a volume in a guest.
fn bytes_of(volume: &Volume) -> u64 {
    let header = if volume.encrypted { LUKS_HEADER } else { 0 };
    (volume.size << 30).saturating_sub(header)
}
