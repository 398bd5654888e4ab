//! Snapshots: create, delete.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

use super::World;
use crate::api::{Fault, new_id};
use crate::state::{Snapshot, SnapshotStatus, VolumeStatus};

/// What a snapshot is asked for with.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct NewSnapshot {
    pub(crate) volume_id: String,
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    #[serde(default)]
    pub(crate) force: bool,
    pub(crate) metadata: Option<BTreeMap<String, String>>,
}

impl World {
    pub(crate) fn snapshot(&self, id: &str) -> Result<&Snapshot, Fault> {
        self.snapshots
            .get(id)
            .ok_or_else(|| Fault::not_found(format!("Snapshot {id} could not be found.")))
    }

    /// Cinder's answer to a create call: the snapshot is `creating`.
    pub(crate) fn begin_snapshot(&mut self, new: NewSnapshot) -> Result<Snapshot, Fault> {
        let volume = self.volume(&new.volume_id)?;
        let allowed: &[VolumeStatus] = if new.force {
            &[VolumeStatus::Available, VolumeStatus::InUse]
        } else {
            &[VolumeStatus::Available]
        };
        if !allowed.contains(&volume.status) {
            let names: Vec<_> = allowed.iter().map(|status| status.as_str()).collect();
            return Err(Fault::bad_request(format!(
                "Invalid volume: Volume {} status must be {}, but current status is: {}.",
                volume.id,
                names.join(", "),
                volume.status
            )));
        }
        let size = volume.size;
        let allowed = self.rules.quota.snapshots;
        if allowed >= 0 && i64::try_from(self.snapshots.len()).unwrap_or(i64::MAX) >= allowed {
            return Err(Fault::over_quota(
                "SnapshotLimitExceeded",
                &format!("Maximum number of snapshots allowed ({allowed}) exceeded for quota 'snapshots'."),
            ));
        }
        self.check_quota(0, size, size)?;
        let snapshot = Snapshot {
            id: new_id(),
            name: new.name,
            description: new.description,
            status: SnapshotStatus::Creating,
            volume_id: new.volume_id,
            size,
            metadata: new.metadata.unwrap_or_default(),
            created_at: Timestamp::now(),
            updated_at: None,
        };
        self.snapshots.insert(snapshot.id.clone(), snapshot.clone());
        Ok(snapshot)
    }

    /// `creating` to `available`, or to `error`.
    pub(crate) fn end_snapshot(&mut self, id: &str, failed: bool) {
        if let Some(snapshot) = self.snapshots.get_mut(id) {
            snapshot.status = if failed {
                SnapshotStatus::Error
            } else {
                SnapshotStatus::Available
            };
            snapshot.updated_at = Some(Timestamp::now());
        }
    }

    /// Cinder's answer to a delete call: the snapshot is `deleting`.
    pub(crate) fn begin_delete_snapshot(&mut self, id: &str) -> Result<(), Fault> {
        let status = self.snapshot(id)?.status;
        if !matches!(status, SnapshotStatus::Available | SnapshotStatus::Error) {
            return Err(Fault::bad_request(
                "Invalid snapshot: Snapshot status must be available or error and must not be part of a group.",
            ));
        }
        if let Some(snapshot) = self.snapshots.get_mut(id) {
            snapshot.status = SnapshotStatus::Deleting;
            snapshot.updated_at = Some(Timestamp::now());
        }
        Ok(())
    }

    /// `deleting` to gone.
    pub(crate) fn end_delete_snapshot(&mut self, id: &str) {
        self.snapshots.remove(id);
    }
}
