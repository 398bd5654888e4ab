// SPDX-License-Identifier: Apache-2.0
//! Snapshots: create, delete.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::World;
use crate::api::Fault;
use crate::state::{Snapshot, SnapshotStatus, VolumeStatus};

/// Parameters of a new snapshot.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSnapshot {
    pub(crate) volume_id: String,
    #[serde(alias = "display_name")]
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) force: Option<bool>,
    pub(crate) metadata: Option<BTreeMap<String, String>>,
}

impl World {
    pub(crate) fn snapshot(&self, id: &str) -> Result<&Snapshot, Fault> {
        self.snapshots
            .get(id)
            .ok_or_else(|| Fault::not_found(format!("Snapshot {id} could not be found.")))
    }

    /// Accepts a create call: the snapshot becomes `creating`. `in_use` allows attached volumes, by `force` or by the
    /// microversion.
    pub(crate) fn begin_snapshot(&mut self, new: NewSnapshot, in_use: bool) -> Result<Snapshot, Fault> {
        let now = self.sources.now();
        let volume = self.volume(&new.volume_id)?;
        let allowed: &[VolumeStatus] = if in_use {
            &[VolumeStatus::Available, VolumeStatus::InUse]
        } else {
            &[VolumeStatus::Available]
        };
        let refusal = if volume.backend.is_none() {
            Some("volume is not assigned to a host")
        } else if volume.status == VolumeStatus::Maintenance {
            Some("The snapshot cannot be created when the volume is in maintenance mode.")
        } else if volume.is_migrating() {
            Some("Snapshot cannot be created while volume is migrating.")
        } else if volume.status == VolumeStatus::Error {
            Some("The snapshot cannot be created when the volume is in error status.")
        } else {
            None
        };
        if let Some(reason) = refusal {
            return Err(Fault::bad_request(format!("Invalid volume: {reason}")));
        }
        if !allowed.contains(&volume.status) {
            let names: Vec<_> = allowed.iter().map(|status| status.as_str()).collect();
            return Err(Fault::bad_request(format!(
                "Invalid volume: Volume {} status must be {}, but current status is: {}.",
                volume.id,
                names.join(", "),
                volume.status
            )));
        }
        let (size, volume_type) = (volume.size, volume.volume_type.clone());
        self.check_snapshot_quota(&volume_type, 1)?;
        self.check_quota(&volume_type, false, size, size)?;
        let snapshot = Snapshot {
            id: self.new_id(),
            name: new.name,
            description: new.description,
            status: SnapshotStatus::Creating,
            volume_id: new.volume_id,
            size,
            volume_type,
            metadata: new.metadata.unwrap_or_default(),
            group_snapshot_id: None,
            created_at: now,
            updated_at: None,
        };
        self.snapshots.insert(snapshot.id.clone(), snapshot.clone());
        Ok(snapshot)
    }

    /// Ends `creating` with `available` or `error`.
    pub(crate) fn end_snapshot(&mut self, id: &str, failed: bool) {
        if self
            .snapshots
            .get(id)
            .is_some_and(|known| known.status == SnapshotStatus::Creating)
        {
            let end = if failed {
                SnapshotStatus::Error
            } else {
                SnapshotStatus::Available
            };
            self.set_snapshot_status(id, end);
        }
    }

    /// Accepts a delete call: the snapshot becomes `deleting`.
    pub(crate) fn begin_delete_snapshot(&mut self, id: &str) -> Result<(), Fault> {
        let snapshot = self.snapshot(id)?;
        let deletable = matches!(snapshot.status, SnapshotStatus::Available | SnapshotStatus::Error);
        if !deletable || snapshot.group_snapshot_id.is_some() {
            return Err(Fault::bad_request(
                "Invalid snapshot: Snapshot status must be available or error and must not be part of a group.",
            ));
        }
        self.set_snapshot_status(id, SnapshotStatus::Deleting);
        Ok(())
    }

    /// Whether volumes created from this volume or snapshot prevent its deletion, as clones do on some backends.
    pub(crate) fn is_held_by_clones(&self, id: &str) -> bool {
        self.rules.clones_hold_sources
            && self.volumes.values().any(|volume| {
                volume.snapshot_id.as_deref() == Some(id) || volume.source_volume_id.as_deref() == Some(id)
            })
    }

    /// Ends `deleting` with the removal or `error_deleting`.
    pub(crate) fn end_delete_snapshot(&mut self, id: &str, failed: bool) {
        if failed {
            self.set_snapshot_status(id, SnapshotStatus::ErrorDeleting);
        } else {
            self.snapshots.remove(id);
        }
    }

    /// Sets the status unconditionally. Returns false if the snapshot does not exist.
    pub(crate) fn set_snapshot_status(&mut self, id: &str, status: SnapshotStatus) -> bool {
        let now = self.sources.now();
        let Some(snapshot) = self.snapshots.get_mut(id) else {
            return false;
        };
        snapshot.status = status;
        snapshot.updated_at = Some(now);
        true
    }
}
