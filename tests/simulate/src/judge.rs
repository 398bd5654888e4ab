// SPDX-License-Identifier: Apache-2.0
//! Checks the clouds after each step, and each response of a driver.

mod refusals;
mod snapshots;

use std::collections::BTreeMap;
use std::sync::Arc;

use cinder_cloud::metadata_keys;
use cinder_csi_driver::parameters::{PUBLISH_SIZE, TOPOLOGY_ZONE};
use csi_proto::csi::v1::TopologyRequirement;
use openstack_sim::{AttachmentStatus, CloudState, GroupStatus, Snapshot, VolumeStatus};
use tonic::Code;

use crate::clouds::{Clouds, ENCRYPTED};
use crate::ledger::{Ledger, ResourceState};
use crate::schedule::Schedule;
pub use refusals::StuckResource;

/// Compares the clouds with the records of the clients. Clones share the same state.
#[derive(Debug, Clone)]
pub struct Judge {
    clouds: Arc<Clouds>,
    ledger: Ledger,
    schedule: Schedule,
}

/// Whether a client treats a code as the end of CreateVolume. It then forgets the request, and a created volume would
/// leak.
///
/// As in external-provisioner's `checkError`, the volume may still be created after the other codes.
pub fn ends_creation(code: Code) -> bool {
    !matches!(
        code,
        Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted
    )
}

/// Whether a client treats a code as the end of CreateSnapshot or CreateVolumeGroupSnapshot: `isCSIFinalError` of
/// external-snapshotter.
pub fn ends_snapshot(code: Code) -> bool {
    ends_creation(code) && code != Code::ResourceExhausted
}

impl Judge {
    /// Creates a judge of these clouds.
    pub fn new(clouds: Arc<Clouds>, ledger: Ledger, schedule: Schedule) -> Self {
        Self {
            clouds,
            ledger,
            schedule,
        }
    }

    /// Checks the invariants of every moment.
    pub fn check(&self) {
        if let Some(trespass) = self.clouds.trespass() {
            return self.wrong(&trespass);
        }
        let state = self.clouds.state();
        let book = self.ledger.book().clone();
        for volume in &state.volumes {
            let name = volume.name.as_deref().unwrap_or_default();
            let known = book.volumes.get(name);
            let is_known = match known {
                Some(ResourceState::Asked) => true,
                Some(ResourceState::Made(id) | ResourceState::Deleting(id)) => *id == volume.id,
                None => false,
            };
            if !is_known {
                let why = known.map_or("none has asked for it".to_owned(), |known| {
                    format!("its claim has {:?}", known.id())
                });
                return self.wrong(&format!(
                    "volume {} ({name}, {}) is known to no caller: {why}",
                    volume.id, volume.status
                ));
            }
        }
        for snapshot in &state.snapshots {
            let name = snapshot.name.as_deref().unwrap_or_default();
            let group = snapshot.group_snapshot_id.as_ref();
            let is_known = group.is_some()
                || book
                    .snapshots
                    .get(name)
                    .is_some_and(|known| known.id().is_none_or(|id| id == snapshot.id) || freezes(snapshot));
            if !is_known {
                return self.wrong(&format!(
                    "snapshot {} ({name}, {}) is known to no caller",
                    snapshot.id, snapshot.status
                ));
            }
        }
        for backup in &state.backups {
            let name = backup.name.as_deref().unwrap_or_default();
            let known = book.snapshots.get(name);
            if known.is_none_or(|known| known.id().is_some_and(|id| id != backup.id)) {
                return self.wrong(&format!(
                    "backup {} ({name}, {}) is known to no caller",
                    backup.id, backup.status
                ));
            }
        }
        for snapshot in &state.group_snapshots {
            let name = snapshot.name.as_deref().unwrap_or_default();
            let known = book.group_snapshots.get(name);
            if known.is_none_or(|known| known.id().is_some_and(|id| id != snapshot.id)) {
                return self.wrong(&format!(
                    "group snapshot {} ({name}) is known to no caller",
                    snapshot.id
                ));
            }
        }
        for snapshot in &state.group_snapshots {
            let name = snapshot.name.as_deref().unwrap_or_default();
            if book.contested.contains(name) {
                continue;
            }
            let is_taken = |volume: &String| {
                let mut members = state.snapshots.iter();
                members.any(|one| one.group_snapshot_id.as_ref() == Some(&snapshot.id) && one.volume_id == *volume)
            };
            // A volume may be deleted until it is a member of the group.
            let was_free = |volume: &String| {
                let is_free = |found: &openstack_sim::Volume| {
                    found.group_id.is_none() && matches!(found.status, VolumeStatus::Available | VolumeStatus::InUse)
                };
                state.volume(volume).is_some_and(is_free)
            };
            let mut requested = book.members.get(name).into_iter().flatten();
            if let Some(missing) = requested.find(|volume| was_free(volume) && !is_taken(volume))
                && snapshot.status == GroupStatus::Creating
            {
                return self.wrong(&format!(
                    "group snapshot {} ({name}) is taken without volume {missing}",
                    snapshot.id
                ));
            }
        }
        for group in &state.groups {
            if book.group_snapshots.is_empty() {
                return self.wrong(&format!(
                    "group {} ({}) is known to no caller",
                    group.id,
                    group.name.as_deref().unwrap_or_default()
                ));
            }
        }
        for attachment in &state.attachments {
            let server = attachment.server_id.clone().unwrap_or_default();
            let pair = (attachment.volume_id.clone(), server);
            if !book.attachments.contains_key(&pair) && !book.touched.contains_key(&pair.0) {
                return self.wrong(&format!(
                    "attachment {} of volume {} to server {} is known to no caller",
                    attachment.id, pair.0, pair.1
                ));
            }
        }
    }

    /// Checks that nothing remains after all clients have ended.
    pub fn check_rest(&self) {
        self.check();
        let state = self.clouds.state();
        let remaining = [
            ("volumes", state.volumes.len()),
            ("snapshots", state.snapshots.len()),
            ("backups", state.backups.len()),
            ("group snapshots", state.group_snapshots.len()),
            ("groups", state.groups.len()),
            ("attachments", state.attachments.len()),
            ("mappings", state.mappings.len()),
        ];
        for (what, count) in remaining {
            if count > 0 {
                self.wrong(&format!("{count} {what} are left when all callers are done"));
            }
        }
    }

    /// Checks an OK of CreateVolume.
    pub fn created(&self, name: &str, answer: &csi_proto::csi::v1::Volume, requirement: Option<&TopologyRequirement>) {
        let state = self.clouds.state();
        let (id, bytes) = (answer.volume_id.as_str(), answer.capacity_bytes);
        let Some(volume) = state.volume(id) else {
            return self.wrong(&format!(
                "CreateVolume of {name} answered OK with volume {id}, which does not exist"
            ));
        };
        let is_usable = matches!(volume.status, VolumeStatus::Available | VolumeStatus::InUse) || self.is_touched(id);
        if volume.name.as_deref() != Some(name) || !is_usable {
            self.wrong(&format!(
                "CreateVolume of {name} answered OK with volume {id}, which is {} and {:?}",
                volume.status, volume.name
            ));
        }
        let is_required = |zone: &str| {
            let topologies = requirement.into_iter().flat_map(|required| &required.requisite);
            let mut zones = topologies
                .filter_map(|topology| topology.segments.get(TOPOLOGY_ZONE))
                .peekable();
            zones.peek().is_none() || zones.any(|required| required == zone)
        };
        if !is_required(&volume.availability_zone) {
            self.wrong(&format!(
                "CreateVolume of {name} answered OK with volume {id} in zone {}, and required is {requirement:?}",
                volume.availability_zone
            ));
        }
        if bytes != gib(volume.size) {
            self.wrong(&format!(
                "CreateVolume of {name} answered {bytes} bytes, and volume {id} has {} GiB",
                volume.size
            ));
        }
    }

    /// Checks a final error of CreateVolume.
    pub fn refused_volume(&self, name: &str, code: Code, message: &str) {
        let state = self.clouds.state();
        if let Some(volume) = state.volumes.iter().find(|volume| volume.name.as_deref() == Some(name)) {
            self.wrong(&format!(
                "CreateVolume of {name} ended with {code:?}, and volume {} of that name is {}: {message}",
                volume.id, volume.status
            ));
        }
        self.unchanged("CreateVolume", name, code, message);
    }

    /// Checks an OK of DeleteVolume.
    pub fn deleted(&self, id: &str) {
        if let Some(volume) = self.clouds.state().volume(id) {
            self.wrong(&format!(
                "DeleteVolume of {id} answered OK, and the volume is {}",
                volume.status
            ));
        }
    }

    /// Checks that a repeated request is not reported as a different one.
    fn unchanged(&self, call: &str, name: &str, code: Code, message: &str) {
        let is_foreign = self.clouds.foreign_names().contains(&name);
        if code == Code::AlreadyExists && !is_foreign {
            self.wrong(&format!(
                "{call} of {name} answered ALREADY_EXISTS, and the request has never changed: {message}"
            ));
        }
    }

    /// Checks an OK of ControllerPublishVolume. An encrypted volume is smaller in the guest than in Cinder, so its
    /// context has no size.
    pub fn published(&self, volume: &str, server: &str, context: &BTreeMap<String, String>) {
        let state = self.clouds.state();
        if self.is_touched(volume) {
            return;
        }
        if !is_attached(&state, volume, server) {
            return self.wrong(&format!(
                "ControllerPublishVolume of {volume} to {server} answered OK, and it is not attached"
            ));
        }
        let existing = state.volume(volume);
        if existing.is_some_and(|existing| existing.volume_type == ENCRYPTED) && context.contains_key(PUBLISH_SIZE) {
            self.wrong(&format!(
                "ControllerPublishVolume of {volume} to {server} told the size of an encrypted volume"
            ));
        }
    }

    /// Checks an OK of ControllerUnpublishVolume.
    pub fn unpublished(&self, volume: &str, server: &str) {
        let state = self.clouds.state();
        let mapped = state
            .mappings
            .iter()
            .any(|mapping| mapping.volume_id == volume && mapping.server_id == server);
        let of_pair = |server_id: &Option<String>| server_id.as_deref() == Some(server);
        let recorded = state
            .attachments
            .iter()
            .any(|attachment| attachment.volume_id == volume && of_pair(&attachment.server_id));
        if mapped || recorded {
            let what = match (mapped, recorded) {
                (true, true) => "Nova and Cinder have it",
                (true, false) => "Nova has it",
                _ => "Cinder has it",
            };
            let status = state.volume(volume).map(|volume| volume.status.to_string());
            self.wrong(&format!(
                "ControllerUnpublishVolume of {volume} from {server} answered OK, and {what}; the volume is {}",
                status.unwrap_or_default()
            ));
        }
    }

    /// Checks NOT_FOUND for a volume, and for a server if the call names one.
    pub fn not_found(&self, call: &str, volume: &str, server: Option<&str>, message: &str) {
        let state = self.clouds.state();
        let server_is_there = server.is_none_or(|server| state.servers.iter().any(|known| known.spec.id == server));
        // An API node with a lagging database does not find a new volume.
        let now = self.schedule.sources().now();
        let is_new = |created: jiff::Timestamp| now.duration_since(created) < jiff::SignedDuration::from_secs(3);
        let is_there = state.volume(volume).is_some_and(|volume| !is_new(volume.created_at));
        if is_there && server_is_there {
            self.wrong(&format!(
                "{call} of {volume} answered NOT_FOUND, and all is there: {message}"
            ));
        }
    }

    /// Checks an OK of ControllerExpandVolume.
    pub fn expanded(&self, volume: &str, required: i64, answered: i64) {
        let state = self.clouds.state();
        let Some(size) = state.volume(volume).map(|volume| gib(volume.size)) else {
            return self.wrong(&format!(
                "ControllerExpandVolume of {volume} answered OK, and there is no such volume"
            ));
        };
        if answered != size || size < required {
            self.wrong(&format!(
                "ControllerExpandVolume of {volume} to {required} answered {answered}, and it has {size} bytes"
            ));
        }
    }

    /// Checks an OK of ControllerModifyVolume.
    pub fn modified(&self, volume: &str, volume_type: &str) {
        let state = self.clouds.state();
        let actual = state.volume(volume).map(|actual| actual.volume_type.clone());
        if actual.as_deref() != Some(volume_type) && !self.is_touched(volume) {
            self.wrong(&format!(
                "ControllerModifyVolume of {volume} to type {volume_type} answered OK, and its type is {actual:?}"
            ));
        }
    }

    fn is_touched(&self, volume: &str) -> bool {
        self.ledger.book().touched.contains_key(volume)
    }

    fn wrong(&self, what: &str) {
        self.schedule.violation(what);
    }
}

/// Whether a snapshot is only the temporary source of a backup.
fn freezes(snapshot: &Snapshot) -> bool {
    snapshot.metadata.contains_key(metadata_keys::TEMPORARY_FOR)
}

/// Whether Nova and Cinder agree that a volume is attached to a server.
pub fn is_attached(state: &CloudState, volume: &str, server: &str) -> bool {
    let mapping = state
        .mappings
        .iter()
        .find(|mapping| mapping.volume_id == volume && mapping.server_id == server);
    mapping.is_some_and(|mapping| {
        let is_of = |id: &str| id == mapping.attachment_id;
        let mut records = state.attachments.iter();
        records.any(|record| is_of(&record.id) && record.status == AttachmentStatus::Attached)
    })
}

fn gib(size: u64) -> i64 {
    i64::try_from(size << 30).unwrap_or(i64::MAX)
}
