// SPDX-License-Identifier: Apache-2.0
//! A group snapshot.

use std::collections::BTreeSet;

use crate::api::block_storage::{GroupSnapshotRecord, Snapshot};
use crate::error::words::names_text;
use crate::error::{CloudError, ObjectKind};
use crate::ids::{GroupSnapshotId, VolumeId};

#[derive(Debug, Clone, PartialEq)]
pub struct GroupSnapshot {
    pub id: GroupSnapshotId,
    /// When it was made, UTC without a zone, as Cinder writes it.
    pub created_at: String,
    /// The snapshots of its volumes.
    pub snapshots: Vec<Snapshot>,
    /// The cluster that it was taken for, if this driver took it.
    pub cluster: Option<String>,
}

impl GroupSnapshot {
    pub(super) fn sources(&self) -> BTreeSet<&VolumeId> {
        self.snapshots.iter().map(|snapshot| &snapshot.volume_id).collect()
    }

    /// Whether it lacks volumes that it was made for, and has none that are not asked for.
    pub(super) fn lacks_volumes(&self, record: &GroupSnapshotRecord, new: &NewGroupSnapshot) -> bool {
        super::own::members_wanted(record).is_some_and(|wanted| self.snapshots.len() < wanted)
            && self.sources().into_iter().all(|source| new.volumes.contains(source))
    }

    /// Itself, if its members are those of the volumes asked for.
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

/// What a new group snapshot shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewGroupSnapshot {
    /// Its name, by which a repeated creation finds the first one's.
    pub name: String,
    pub volumes: BTreeSet<VolumeId>,
    /// The type of the group, by name or id. Without it the first one that Cinder shows to be consistent is taken.
    pub group_type: Option<String>,
    /// The cluster that it is taken for; empty for none.
    pub cluster: String,
}
