// SPDX-License-Identifier: Apache-2.0
//! Checks of errors: an operation that is reported as failed has no effect, and no call fails permanently.

use openstack_sim::{BackupStatus, CloudState, GroupStatus, SnapshotStatus, VolumeStatus};
use tonic::Code;

use super::{Judge, ends_creation, gib, is_attached};
use crate::call::Call;

/// A resource in a state that only an administrator can end. A call for it may fail permanently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StuckResource {
    /// In `error_deleting` or another state of a failed operation: Cinder refuses all requests of users, except some
    /// deletions.
    Volume(String),
    /// In `error_deleting`: Cinder deletes only snapshots that are `available` or in `error`.
    Snapshot(String),
    /// In `error_deleting`.
    Backup(String),
    /// In `error_deleting`.
    Group(String),
    /// In `error_deleting`.
    GroupSnapshot(String),
}

impl StuckResource {
    /// Returns all such resources of a cloud.
    pub fn list(state: &CloudState) -> Vec<Self> {
        let volumes = state
            .volumes
            .iter()
            .filter(|one| one.status.to_string().starts_with("error_"));
        let snapshots = state.snapshots.iter();
        let backups = state.backups.iter();
        let groups = state
            .groups
            .iter()
            .filter(|one| one.status == GroupStatus::ErrorDeleting);
        let group_snapshots = state.group_snapshots.iter();
        volumes
            .map(|one| Self::Volume(one.id.clone()))
            .chain(
                snapshots
                    .filter(|one| one.status == SnapshotStatus::ErrorDeleting)
                    .map(|one| Self::Snapshot(one.id.clone())),
            )
            .chain(
                backups
                    .filter(|one| one.status == BackupStatus::ErrorDeleting)
                    .map(|one| Self::Backup(one.id.clone())),
            )
            .chain(groups.map(|one| Self::Group(one.id.clone())))
            .chain(
                group_snapshots
                    .filter(|one| one.status == GroupStatus::ErrorDeleting)
                    .map(|one| Self::GroupSnapshot(one.id.clone())),
            )
            .collect()
    }

    pub fn id(&self) -> &str {
        match self {
            Self::Volume(id) | Self::Snapshot(id) | Self::Backup(id) | Self::Group(id) | Self::GroupSnapshot(id) => id,
        }
    }
}

impl Judge {
    /// Checks an error: after a final code, the cloud must not indicate that the call succeeded or continues.
    pub fn check_error(&self, call: &Call, code: Code, message: &str) {
        // A failed service or a missing permission does not imply anything about the result.
        let is_other_cause = code == Code::PermissionDenied || message.contains("HTTP 500");
        if !ends_creation(code) || is_other_cause {
            return;
        }
        let state = self.clouds.state();
        if let Some(success) = self.success(&state, call) {
            self.wrong(&format!("{call} ended with {code:?}, and {success}: {message}"));
        }
    }

    /// Returns the resource that blocks a call. The error must name it. With `None`, the call has no reason to fail.
    pub fn obstacle(&self, call: &Call, message: &str) -> Option<StuckResource> {
        let state = self.clouds.state();
        let can_be_deleted = |resource: &StuckResource| match (call, resource) {
            (Call::DeleteVolume { volume }, StuckResource::Volume(id)) if id == volume => state
                .volume(id)
                .is_some_and(|found| found.status != VolumeStatus::ErrorDeleting),
            _ => false,
        };
        StuckResource::list(&state)
            .into_iter()
            .find(|resource| message.contains(resource.id()) && !can_be_deleted(resource))
    }

    /// Returns the evidence in the cloud that a call succeeded or continues.
    fn success(&self, state: &CloudState, call: &Call) -> Option<String> {
        match call {
            Call::Publish { volume, server } => {
                let is_done = is_attached(state, volume, server) && !self.is_touched(volume);
                is_done.then(|| "it is attached".to_owned())
            }
            Call::Unpublish { volume, server } => {
                let is_mapped = (state.mappings.iter()).any(|one| one.volume_id == *volume && one.server_id == *server);
                let is_recorded = (state.attachments.iter())
                    .any(|one| one.volume_id == *volume && one.server_id.as_ref() == Some(server));
                (!is_mapped && !is_recorded && !self.is_touched(volume)).then(|| "it is detached".to_owned())
            }
            Call::DeleteVolume { volume } => match state.volume(volume) {
                None => Some("the volume is deleted".to_owned()),
                Some(found) if found.status == VolumeStatus::Deleting => Some("the volume is being deleted".to_owned()),
                Some(_) => None,
            },
            Call::Expand { volume, bytes } => {
                let existing = state.volume(volume)?;
                if existing.status == VolumeStatus::Extending {
                    return Some("the volume is being extended".to_owned());
                }
                let is_done =
                    gib(existing.size) >= *bytes && !StuckResource::list(state).iter().any(|one| one.id() == volume);
                is_done.then(|| format!("the volume has {} GiB", existing.size))
            }
            Call::Modify { volume, volume_type } => {
                let existing = state.volume(volume).filter(|_| !self.is_touched(volume))?;
                if existing.status == VolumeStatus::Retyping {
                    return Some("the volume is being retyped".to_owned());
                }
                (existing.volume_type == *volume_type).then(|| "the volume has that type".to_owned())
            }
            Call::DeleteSnapshot { snapshot } => {
                let snapshot_status = state
                    .snapshot(snapshot)
                    .map(|one| one.status == SnapshotStatus::Deleting);
                let backup_status = state.backup(snapshot).map(|one| one.status == BackupStatus::Deleting);
                match snapshot_status.or(backup_status) {
                    None => Some("the snapshot is deleted".to_owned()),
                    Some(true) => Some("the snapshot is being deleted".to_owned()),
                    Some(false) => None,
                }
            }
            Call::DeleteGroupSnapshot { id } => match state.group_snapshot(id) {
                None => Some("the group snapshot is deleted".to_owned()),
                Some(found) if found.status == GroupStatus::Deleting => {
                    Some("the group snapshot is being deleted".to_owned())
                }
                Some(_) => None,
            },
            // Any resource with the name is a violation: see `refused_volume`, `refused_snapshot`,
            // `refused_group_snapshot`.
            Call::CreateVolume { .. }
            | Call::CreateSnapshot { .. }
            | Call::CreateGroupSnapshot { .. }
            | Call::ListVolumes
            | Call::ListSnapshots
            | Call::GetCapacity => None,
        }
    }
}
