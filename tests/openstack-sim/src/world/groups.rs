// SPDX-License-Identifier: Apache-2.0
//! Generic volume groups: create, update, delete.

use serde::Deserialize;

use super::World;
use crate::api::Fault;
use crate::state::{AttachmentStatus, Group, GroupStatus, GroupType, Volume, VolumeStatus};

/// Parameters of a new group.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewGroup {
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) group_type: String,
    pub(crate) volume_types: Vec<String>,
    pub(crate) availability_zone: Option<String>,
}

/// Changes of a group.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupChange {
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) add_volumes: Option<String>,
    pub(crate) remove_volumes: Option<String>,
}

/// Splits a comma-separated list of ids.
fn ids(text: Option<&str>) -> Vec<String> {
    text.unwrap_or_default()
        .split(',')
        .filter(|id| !id.is_empty())
        .map(str::to_owned)
        .collect()
}

fn invalid_volume(text: &str) -> Fault {
    Fault::bad_request(format!("Invalid volume: {text}"))
}

fn invalid_group(text: impl std::fmt::Display) -> Fault {
    Fault::bad_request(format!("Invalid Group: {text}"))
}

impl World {
    pub(crate) fn group(&self, id: &str) -> Result<&Group, Fault> {
        self.groups
            .get(id)
            .ok_or_else(|| Fault::not_found(format!("Group {id} could not be found.")))
    }

    /// Returns the group type with this id or name.
    pub(crate) fn group_type(&self, wanted: &str) -> Result<&GroupType, Fault> {
        let group_type = self
            .rules
            .group_types
            .iter()
            .find(|known| known.id == wanted || known.name == wanted);
        group_type.ok_or_else(|| {
            let by = if uuid::Uuid::parse_str(wanted).is_ok() {
                ""
            } else {
                "with name "
            };
            Fault::not_found(format!("Group type {by}{wanted} could not be found."))
        })
    }

    pub(crate) fn volumes_in_group<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a Volume> {
        self.volumes
            .values()
            .filter(move |volume| volume.group_id.as_deref() == Some(id))
    }

    /// Accepts a create call: the group becomes `creating`.
    pub(crate) fn begin_group(&mut self, new: NewGroup) -> Result<Group, Fault> {
        let now = self.sources.now();
        if new.volume_types.is_empty() {
            return Err(Fault::bad_request(
                "Invalid input for field/attribute volume_types. Value: []. [] should be non-empty",
            ));
        }
        let volume_types = new
            .volume_types
            .iter()
            .map(|name| self.volume_type(Some(name)).map(|known| known.id.clone()))
            .collect::<Result<Vec<_>, _>>()?;
        let group_type = self.group_type(&new.group_type)?.id.clone();
        let availability_zone = match new.availability_zone {
            Some(zone) if self.rules.zones.contains(&zone) => zone,
            Some(zone) => {
                return Err(Fault::bad_request(format!(
                    "Invalid input received: Availability zone '{zone}' is invalid."
                )));
            }
            None => self.rules.zones.first().cloned().unwrap_or_else(|| "nova".to_owned()),
        };
        self.check_group_quota()?;
        let group = Group {
            id: self.new_id(),
            name: new.name,
            description: new.description,
            status: GroupStatus::Creating,
            group_type,
            volume_types,
            availability_zone,
            backend: None,
            group_snapshot_id: None,
            source_group_id: None,
            created_at: now,
            updated_at: None,
        };
        self.groups.insert(group.id.clone(), group.clone());
        Ok(group)
    }

    /// Ends `creating` with `available`, or with `error` on failure or if the types have no common backend.
    pub(crate) fn end_group(&mut self, id: &str, failed: bool) {
        let Some(group) = self.groups.get(id) else { return };
        let backends: Vec<String> = group
            .volume_types
            .iter()
            .filter_map(|known| self.volume_type(Some(known)).ok())
            .map(|known| known.backend().to_owned())
            .collect();
        let common = backends
            .first()
            .filter(|first| backends.iter().all(|other| other == *first))
            .filter(|_| !failed)
            .cloned();
        let end = if common.is_some() {
            GroupStatus::Available
        } else {
            GroupStatus::Error
        };
        if let Some(group) = self.groups.get_mut(id) {
            group.backend = common;
        }
        self.turn_group(id, GroupStatus::Creating, end);
    }

    /// Accepts an update call. Returns true if volumes are added or removed; the group is then `updating`.
    pub(crate) fn begin_group_change(&mut self, id: &str, change: &GroupChange) -> Result<bool, Fault> {
        let now = self.sources.now();
        let group = self.group(id)?;
        let mut add = ids(change.add_volumes.as_deref());
        let remove = ids(change.remove_volumes.as_deref());
        if let Some(both) = add.iter().find(|id| remove.contains(id)) {
            return Err(invalid_volume(&format!(
                "UUIDs ['{both}'] are in both add and remove volume list."
            )));
        }
        add.retain(|volume| !self.volumes_in_group(id).any(|known| known.id == *volume));
        for volume in &add {
            self.check_member(group, volume)?;
        }
        for volume_id in &remove {
            let member = self.volumes_in_group(id).find(|known| known.id == *volume_id);
            let member = member.ok_or_else(|| {
                invalid_volume(&format!(
                    "Cannot remove volume {volume_id} from group {id} because it is not in the group."
                ))
            })?;
            let valid = ["available", "in-use", "error", "error_deleting"];
            if !valid.contains(&member.status.as_str()) {
                return Err(invalid_volume(&format!(
                    "Cannot remove volume {volume_id} from group {id} because volume is in an invalid state: {}. Valid \
                     states are: ('available', 'in-use', 'error', 'error_deleting').",
                    member.status
                )));
            }
        }
        let name = change.name.as_ref().filter(|name| Some(*name) != group.name.as_ref());
        let description = change
            .description
            .as_ref()
            .filter(|text| Some(*text) != group.description.as_ref());
        let members_change = !add.is_empty() || !remove.is_empty();
        if name.is_none() && description.is_none() && !members_change {
            return Err(invalid_group(format!(
                "Cannot update group {id} because no valid name, description, add_volumes, or remove_volumes were provided."
            )));
        }
        if members_change && group.status != GroupStatus::Available {
            return Err(invalid_group("Group status must be available."));
        }
        let (name, description) = (name.cloned(), description.cloned());
        if let Some(group) = self.groups.get_mut(id) {
            group.name = name.or(group.name.take());
            group.description = description.or(group.description.take());
            group.updated_at = Some(now);
            group.status = if members_change {
                GroupStatus::Updating
            } else {
                GroupStatus::Available
            };
        }
        Ok(members_change)
    }

    fn check_member(&self, group: &Group, volume_id: &str) -> Result<(), Fault> {
        let id = &group.id;
        let cannot = |why: String| {
            Err(invalid_volume(&format!(
                "Cannot add volume {volume_id} to group {id} because {why}"
            )))
        };
        let Some(volume) = self.volumes.get(volume_id) else {
            return cannot("volume cannot be found.".to_owned());
        };
        if let Some(other) = &volume.group_id {
            return cannot(format!("it is already in group {other}."));
        }
        let volume_type = self.volume_type(Some(&volume.volume_type))?;
        if !group.volume_types.contains(&volume_type.id) {
            return cannot(format!("volume type {} is not supported by the group.", volume_type.id));
        }
        if !matches!(volume.status, VolumeStatus::Available | VolumeStatus::InUse) {
            return cannot(format!(
                "volume is in an invalid state: {}. Valid states are: ('available', 'in-use').",
                volume.status
            ));
        }
        if volume.backend != group.backend {
            return Err(invalid_volume("Volume is not local to this node."));
        }
        Ok(())
    }

    /// Ends `updating` with `available`, or with `error` and the previous members.
    pub(crate) fn end_group_change(&mut self, id: &str, change: &GroupChange, failed: bool) {
        if !self.groups.contains_key(id) {
            return;
        }
        if !failed {
            for volume in ids(change.remove_volumes.as_deref()) {
                self.set_group_of(&volume, None);
            }
            for volume in ids(change.add_volumes.as_deref()) {
                self.set_group_of(&volume, Some(id));
            }
        }
        let end = if failed {
            GroupStatus::Error
        } else {
            GroupStatus::Available
        };
        self.turn_group(id, GroupStatus::Updating, end);
    }

    fn set_group_of(&mut self, volume_id: &str, group: Option<&str>) {
        let now = self.sources.now();
        if let Ok(volume) = self.volume_mut(volume_id) {
            volume.group_id = group.map(str::to_owned);
            volume.updated_at = Some(now);
        }
    }

    /// Accepts a delete call: the group and its volumes become `deleting`. Returns the volume ids. Returns `None` if
    /// the group had no backend and is already deleted.
    pub(crate) fn begin_delete_group(&mut self, id: &str, with_volumes: bool) -> Result<Option<Vec<String>>, Fault> {
        let group = self.group(id)?;
        if group.backend.is_none() {
            self.groups.remove(id);
            return Ok(None);
        }
        if !with_volumes && !matches!(group.status, GroupStatus::Available | GroupStatus::Error) {
            return Err(invalid_group(format!(
                "Group status must be available or error, but current status is: {}",
                group.status
            )));
        }
        if self.group_snapshots.values().any(|snapshot| snapshot.group_id == id) {
            return Err(invalid_group("Group has existing snapshots."));
        }
        let members: Vec<String> = self.volumes_in_group(id).map(|volume| volume.id.clone()).collect();
        if !members.is_empty() && !with_volumes {
            return Err(invalid_group(format!(
                "Group {id} still contains volumes. The delete-volumes flag is required to delete it."
            )));
        }
        for member in &members {
            let attached = self
                .attachments_of(member)
                .iter()
                .any(|known| known.status == AttachmentStatus::Attached);
            if attached {
                return Err(invalid_group(format!(
                    "Volume in group {id} is attached. Need to detach first."
                )));
            }
            if self.snapshots.values().any(|snapshot| snapshot.volume_id == *member) {
                return Err(invalid_group("Volume in group still has dependent snapshots."));
            }
        }
        for member in &members {
            self.set_status(member, VolumeStatus::Deleting);
        }
        self.set_group_status(id, GroupStatus::Deleting);
        Ok(Some(members))
    }

    /// Ends `deleting` with the removal or `error_deleting`, including the volumes.
    pub(crate) fn end_delete_group(&mut self, id: &str, members: &[String], failed: bool) {
        for member in members {
            self.end_delete(member, failed);
        }
        if failed {
            self.turn_group(id, GroupStatus::Deleting, GroupStatus::ErrorDeleting);
        } else {
            self.groups.remove(id);
        }
    }

    pub(crate) fn set_group_status(&mut self, id: &str, status: GroupStatus) -> bool {
        let now = self.sources.now();
        let Some(group) = self.groups.get_mut(id) else {
            return false;
        };
        group.status = status;
        group.updated_at = Some(now);
        true
    }

    fn turn_group(&mut self, id: &str, from: GroupStatus, to: GroupStatus) {
        if self.groups.get(id).is_some_and(|group| group.status == from) {
            self.set_group_status(id, to);
        }
    }
}
