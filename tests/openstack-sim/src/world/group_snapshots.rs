// SPDX-License-Identifier: Apache-2.0
//! Snapshots of groups: create, delete.

use serde::Deserialize;

use super::World;
use crate::api::Fault;
use crate::state::{GroupSnapshot, GroupStatus, Snapshot, SnapshotStatus, VolumeStatus};

/// Parameters of a new group snapshot.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewGroupSnapshot {
    pub(crate) group_id: String,
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
}

impl World {
    pub(crate) fn group_snapshot(&self, id: &str) -> Result<&GroupSnapshot, Fault> {
        self.group_snapshots
            .get(id)
            .ok_or_else(|| Fault::not_found(format!("GroupSnapshot {id} could not be found.")))
    }

    pub(crate) fn snapshots_in_group<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a Snapshot> {
        self.snapshots
            .values()
            .filter(move |snapshot| snapshot.group_snapshot_id.as_deref() == Some(id))
    }

    /// Accepts a create call: the group snapshot and a snapshot of each member become `creating`.
    pub(crate) fn begin_group_snapshot(&mut self, new: NewGroupSnapshot) -> Result<GroupSnapshot, Fault> {
        let now = self.sources.now();
        let group = self.group(&new.group_id)?;
        let id = self.new_id();
        let members: Vec<_> = self.volumes_in_group(&new.group_id).cloned().collect();
        for volume in &members {
            if volume.status == VolumeStatus::Error {
                return Err(Fault::bad_request(
                    "Invalid volume: The snapshot cannot be created when the volume is in error status.",
                ));
            }
            self.check_quota(&volume.volume_type, false, volume.size, volume.size)?;
        }
        if let Some(first) = members.first() {
            self.check_snapshot_quota(&first.volume_type, members.len() as u64)?;
        }
        let snapshot = GroupSnapshot {
            id: id.clone(),
            name: new.name,
            description: new.description,
            status: GroupStatus::Creating,
            group_type: group.group_type.clone(),
            group_id: new.group_id,
            created_at: now,
            updated_at: None,
        };
        for volume in members {
            let member = Snapshot {
                id: self.new_id(),
                name: snapshot.name.clone(),
                description: snapshot.description.clone(),
                status: SnapshotStatus::Creating,
                volume_id: volume.id,
                size: volume.size,
                volume_type: volume.volume_type,
                metadata: std::collections::BTreeMap::new(),
                group_snapshot_id: Some(id.clone()),
                created_at: now,
                updated_at: None,
            };
            self.snapshots.insert(member.id.clone(), member);
        }
        self.group_snapshots.insert(id, snapshot.clone());
        Ok(snapshot)
    }

    /// Ends `creating` with `available` or `error`, including the members.
    pub(crate) fn end_group_snapshot(&mut self, id: &str, failed: bool) {
        let members: Vec<String> = self.snapshots_in_group(id).map(|known| known.id.clone()).collect();
        for member in members {
            self.end_snapshot(&member, failed);
        }
        let end = if failed {
            GroupStatus::Error
        } else {
            GroupStatus::Available
        };
        self.set_group_snapshot_status(id, end);
    }

    /// Accepts a delete call: the group snapshot and its members become `deleting`. Returns the members.
    pub(crate) fn begin_delete_group_snapshot(&mut self, id: &str) -> Result<Vec<String>, Fault> {
        if !matches!(
            self.group_snapshot(id)?.status,
            GroupStatus::Available | GroupStatus::Error
        ) {
            return Err(Fault::bad_request(
                "Invalid GroupSnapshot: GroupSnapshot status must be available or error, and no Group can be currently \
                 using it as source for its creation.",
            ));
        }
        let members: Vec<String> = self.snapshots_in_group(id).map(|known| known.id.clone()).collect();
        for member in &members {
            self.set_snapshot_status(member, SnapshotStatus::Deleting);
        }
        self.set_group_snapshot_status(id, GroupStatus::Deleting);
        Ok(members)
    }

    /// Ends `deleting` with the removal or `error`, including the members.
    pub(crate) fn end_delete_group_snapshot(&mut self, id: &str, failed: bool) {
        if failed {
            let members: Vec<String> = self.snapshots_in_group(id).map(|known| known.id.clone()).collect();
            for member in members {
                self.set_snapshot_status(&member, SnapshotStatus::Error);
            }
            self.set_group_snapshot_status(id, GroupStatus::Error);
        } else {
            self.snapshots
                .retain(|_, snapshot| snapshot.group_snapshot_id.as_deref() != Some(id));
            self.group_snapshots.remove(id);
        }
    }

    pub(crate) fn set_group_snapshot_status(&mut self, id: &str, status: GroupStatus) -> bool {
        let now = self.sources.now();
        let Some(snapshot) = self.group_snapshots.get_mut(id) else {
            return false;
        };
        snapshot.status = status;
        snapshot.updated_at = Some(now);
        true
    }
}
