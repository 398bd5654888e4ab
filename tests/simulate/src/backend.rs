// SPDX-License-Identifier: Apache-2.0
//! What volumes, snapshots and backups hold, which disks nodes have of them, and what pods must find there.
//!
//! It follows the cloud: a disk is at a node while Nova has the volume there and Cinder calls it attached, and a copy is made when
//! Cinder makes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openstack_sim::{AttachmentStatus, BackupStatus, CloudState, SnapshotStatus, Volume, VolumeStatus};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::sleep;

use crate::cluster::VolumeMode;
use crate::machine::{Medium, SimMachine};
use crate::schedule::Schedule;

/// How long after Nova's attachment a guest sees the disk, and where it is slow.
const PLUG: Duration = Duration::from_millis(1_500);
const SLOW_PLUG: Duration = Duration::from_secs(20);
/// How long after Cinder's extension a guest sees the size.
const RESIZE: Duration = Duration::from_secs(10);
/// What LUKS takes of an encrypted volume.
const LUKS_HEADER: u64 = 2 << 20;

/// The storage behind the cloud. Cheap to clone; clones are the same one.
#[derive(Debug, Clone)]
pub struct Backend {
    schedule: Schedule,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// By the id of a volume, a snapshot or a backup.
    contents: BTreeMap<String, Contents>,
    /// By server: those that have power.
    machines: BTreeMap<String, SimMachine>,
    /// By server and volume.
    disks: BTreeMap<(String, String), Disk>,
    /// What volumes had when they were attached, by attachment.
    first_bytes: BTreeMap<String, u64>,
    /// How often a disk was taken away, by server and volume.
    removals: BTreeMap<(String, String), u64>,
    last_key: u64,
}

#[derive(Debug, Default)]
struct Contents {
    medium: Arc<Medium>,
    mode: VolumeMode,
    /// What pods have written durably, and must find.
    durable: BTreeSet<u64>,
    /// What they may find beside it.
    possible: BTreeSet<u64>,
    /// What it is copied from, until it is made.
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
    /// A backend that holds nothing.
    pub fn new(schedule: Schedule) -> Self {
        Self {
            schedule,
            state: Arc::default(),
        }
    }

    /// Gives a server's machine power: its disks come with the next look at the cloud.
    pub fn power_on(&self, server: &str, machine: SimMachine) {
        self.state().machines.insert(server.to_owned(), machine);
    }

    /// Takes it: it has no disks until [`Backend::power_on`].
    pub fn power_off(&self, server: &str) {
        let state = &mut *self.state();
        let pairs: Vec<_> = (state.disks.keys().filter(|(of, _)| of == server)).cloned().collect();
        for pair in &pairs {
            state.unplug(pair);
        }
        state.machines.remove(server);
    }

    /// Makes everything as the cloud says that it is. To be called at each change.
    pub fn follow(&self, cloud: &CloudState) {
        let state = &mut *self.state();
        for snapshot in &cloud.snapshots {
            let is_made = snapshot.status != SnapshotStatus::Creating;
            // The members of a group are of one moment: that of the request.
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

    /// Fills what is new. A copy is of the moment when it is begun or of that when it is made.
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
            // A source that is gone left what it was at the beginning.
            Some(contents) if is_made => {
                if let (Some(_), Some(copied)) = (contents.source.take(), copied) {
                    *contents = copied;
                }
            }
            Some(_) => {}
        }
    }

    fn connect(&self, state: &mut State, cloud: &CloudState) {
        let mut wanted = BTreeMap::new();
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
                wanted.insert(pair, (attachment, bytes));
            }
        }
        let is_known = |id: &String| cloud.attachments.iter().any(|record| record.id == *id);
        state.first_bytes.retain(|attachment, _| is_known(attachment));
        let is_wanted =
            |pair: &(String, String), disk: &Disk| wanted.get(pair).is_some_and(|(of, _)| *of == disk.attachment);
        let disks = state.disks.iter();
        let gone: Vec<_> = disks
            .filter(|(pair, disk)| !is_wanted(pair, disk))
            .map(|(pair, _)| pair.clone())
            .collect();
        for pair in &gone {
            state.unplug(pair);
        }
        for (pair, (attachment, bytes)) in wanted {
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
                    // What Cinder tells Nova is lost at times: then the size is seen with the next attachment.
                    if !self.schedule.chance(20) {
                        self.later(RESIZE, pair, attachment);
                    }
                }
                Some(_) => {}
            }
        }
    }

    /// Shows a disk to its node, or its size, a while from now.
    fn later(&self, longest: Duration, pair: (String, String), attachment: String) {
        let (backend, time) = (self.clone(), self.schedule.between(Duration::ZERO, longest));
        tokio::spawn(async move {
            sleep(time).await;
            let state = &mut *backend.state();
            let disk = state.disks.get_mut(&pair).filter(|disk| disk.attachment == attachment);
            let (server, volume) = &pair;
            let found = (disk, state.machines.get(server), state.contents.get(volume));
            if let (Some(disk), Some(machine), Some(contents)) = found {
                if !disk.is_plugged {
                    disk.is_plugged = true;
                    // The controller may have told the size of then.
                    let first = state.first_bytes.get(&attachment).copied().unwrap_or(disk.bytes);
                    machine.plug(volume, contents.medium.clone(), first);
                }
                machine.resize(volume, disk.bytes);
            }
        });
    }

    /// How often this volume's disk was taken from this server.
    pub fn removals(&self, server: &str, volume: &str) -> u64 {
        let pair = (server.to_owned(), volume.to_owned());
        self.state().removals.get(&pair).copied().unwrap_or_default()
    }

    /// What a volume, a snapshot or a backup is used as; nothing where it is not there.
    pub fn mode(&self, id: &str) -> Option<VolumeMode> {
        self.state().contents.get(id).map(|contents| contents.mode)
    }

    /// A volume is used so from now on.
    pub fn set_mode(&self, volume: &str, mode: VolumeMode) {
        if let Some(contents) = self.state().contents.get_mut(volume) {
            contents.mode = mode;
        }
    }

    /// Whether a node can mount what a volume holds: it is blank or has a whole file system, and no half-made one that was copied.
    pub fn is_mountable(&self, volume: &str) -> bool {
        let state = self.state();
        let contents = state.contents.get(volume);
        contents.is_some_and(|contents| contents.mode == VolumeMode::Block || contents.medium.is_mountable())
    }

    /// An administrator repairs all damaged file systems.
    pub fn repair(&self) {
        self.state()
            .contents
            .values()
            .for_each(|contents| contents.medium.repair());
    }

    /// A key that is about to be written to a volume: from now on pods may find it.
    pub fn key(&self, volume: &str) -> u64 {
        let state = &mut *self.state();
        state.last_key += 1;
        if let Some(contents) = state.contents.get_mut(volume) {
            contents.possible.insert(state.last_key);
        }
        state.last_key
    }

    /// These are on the volume for as long as it lives.
    pub fn keep(&self, volume: &str, keys: impl IntoIterator<Item = u64>) {
        if let Some(contents) = self.state().contents.get_mut(volume) {
            contents.durable.extend(keys);
        }
    }

    /// Whether pods have written to a volume, or to what it is a copy of.
    pub fn holds_keys(&self, volume: &str) -> bool {
        let state = self.state();
        state
            .contents
            .get(volume)
            .is_some_and(|contents| !contents.durable.is_empty())
    }

    /// What is wrong with what a pod has read.
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

/// What a guest sees of a volume.
fn bytes_of(volume: &Volume) -> u64 {
    let header = if volume.encrypted { LUKS_HEADER } else { 0 };
    (volume.size << 30).saturating_sub(header)
}
