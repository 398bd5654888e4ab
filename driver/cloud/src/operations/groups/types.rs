// SPDX-License-Identifier: Apache-2.0
//! Group snapshots and requests for them.

use std::collections::BTreeSet;

use super::own::expected_members;
use crate::api::block_storage::{GroupSnapshotRecord, Snapshot};
use crate::error::text::names_text;
use crate::error::{CloudError, ObjectKind};
use crate::ids::{GroupSnapshotId, VolumeId};

/// The maximum number of volumes of one group snapshot. One request contains all of their ids.
const MOST_VOLUMES: usize = 100;

#[derive(Debug, Clone, PartialEq)]
pub struct GroupSnapshot {
    pub id: GroupSnapshotId,
    /// The time of its creation, UTC without a time zone, as Cinder writes it.
    pub created_at: String,
    /// The snapshots of its volumes.
    pub snapshots: Vec<Snapshot>,
    /// The cluster for which it was taken, if this driver took it.
    pub cluster: Option<String>,
}

impl GroupSnapshot {
    pub(super) fn sources(&self) -> BTreeSet<&VolumeId> {
        self.snapshots.iter().map(|snapshot| &snapshot.volume_id).collect()
    }

    /// Whether volumes are missing for which it was created, and all others are requested.
    pub(super) fn lacks_volumes(&self, record: &GroupSnapshotRecord, new: &NewGroupSnapshot) -> bool {
        expected_members(record).is_some_and(|wanted| self.snapshots.len() < wanted)
            && self.sources().into_iter().all(|source| new.volumes.contains(source))
    }

    /// Returns the group snapshot if its members are exactly the snapshots of the requested volumes.
    pub(super) fn of_all(self, new: &NewGroupSnapshot) -> Result<Self, CloudError> {
        let sources = self.sources();
        if sources == new.volumes.iter().collect() {
            return Ok(self);
        }
        let wanted = names_text(new.volumes.iter().map(VolumeId::to_string));
        let found = names_text(sources.into_iter().map(VolumeId::to_string));
        Err(CloudError::SnapshotExists {
            kind: ObjectKind::GroupSnapshot,
            name: new.name.clone(),
            difference: format!("volumes {wanted} are requested, it has {found}"),
            id: self.id.to_string(),
        })
    }
}

/// The request for a new group snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewGroupSnapshot {
    /// The name, by which a repeated creation finds an earlier one.
    pub name: String,
    pub volumes: BTreeSet<VolumeId>,
    /// The type of the group, by name or id. `None`: the first type that Cinder shows to be consistent.
    pub group_type: Option<String>,
    /// The cluster for which it is taken; empty for none.
    pub cluster: String,
}

impl NewGroupSnapshot {
    /// Checks the ids and the number of the volumes. Sends no request.
    pub fn check_volumes(&self) -> Result<(), CloudError> {
        if let Some(volume) = self.volumes.iter().find(|volume| !volume.is_uuid()) {
            return Err(CloudError::no_volume(volume));
        }
        if self.volumes.len() > MOST_VOLUMES {
            return Err(self.impossible_error(format!(
                "it has {} volumes, and {MOST_VOLUMES} are the most",
                self.volumes.len()
            )));
        }
        Ok(())
    }

    /// The error about a request that cannot be carried out.
    pub(super) fn impossible_error(&self, reason: impl Into<String>) -> CloudError {
        CloudError::CannotGroup {
            name: self.name.clone(),
            reason: reason.into(),
        }
    }

    /// The error about a failed creation, of which something may remain.
    pub(super) fn failed_error(&self, status: &str, message: &str) -> CloudError {
        CloudError::SnapshotFailed {
            kind: ObjectKind::GroupSnapshot,
            id: self.name.clone(),
            status: status.to_owned(),
            message: message.to_owned(),
            removed: false,
        }
    }
}
