// SPDX-License-Identifier: Apache-2.0
//! Backups: create, delete, restore.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

use super::World;
use crate::api::Fault;
use crate::state::{Backup, BackupStatus, SnapshotStatus, VolumeStatus};

/// Parameters of a new backup.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewBackup {
    pub(crate) volume_id: String,
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) container: Option<String>,
    #[serde(default)]
    pub(crate) incremental: bool,
    #[serde(default)]
    pub(crate) force: bool,
    pub(crate) snapshot_id: Option<String>,
    pub(crate) metadata: Option<BTreeMap<String, String>>,
    pub(crate) availability_zone: Option<String>,
}

fn no_parent() -> Fault {
    Fault::bad_request("Invalid backup: No backups available to do an incremental backup.")
}

impl World {
    pub(crate) fn backup(&self, id: &str) -> Result<&Backup, Fault> {
        self.backups
            .get(id)
            .ok_or_else(|| Fault::not_found(format!("Backup {id} could not be found.")))
    }

    pub(crate) fn has_dependent_backups(&self, id: &str) -> bool {
        self.backups
            .values()
            .any(|backup| backup.parent_id.as_deref() == Some(id))
    }

    /// Accepts a create call: the backup becomes `creating`, and its source `backing-up`.
    pub(crate) fn begin_backup(&mut self, new: NewBackup) -> Result<Backup, Fault> {
        let now = self.sources.now();
        let volume = self.volume(&new.volume_id)?;
        let snapshot = new.snapshot_id.as_deref().map(|id| self.snapshot(id)).transpose()?;
        if let Some(snapshot) = snapshot {
            if snapshot.volume_id != new.volume_id {
                return Err(Fault::bad_request(format!(
                    "Invalid volume: Volume {} does not match with snapshot.volume_id {}.",
                    new.volume_id, snapshot.volume_id
                )));
            }
            if snapshot.status != SnapshotStatus::Available {
                return Err(Fault::bad_request(format!(
                    "Invalid snapshot: Snapshot to be backed up must be available, but the current status is \"{}\".",
                    snapshot.status
                )));
            }
        } else if !matches!(volume.status, VolumeStatus::Available | VolumeStatus::InUse) {
            return Err(Fault::bad_request(format!(
                "Invalid volume: Volume to be backed up must be available or in-use, but the current status is \"{}\".",
                volume.status
            )));
        } else if volume.status == VolumeStatus::InUse && !new.force {
            return Err(Fault::bad_request(
                "Invalid volume: Backing up an in-use volume must use the force flag.",
            ));
        }
        self.check_backup_quota(volume.size)?;
        let moment = snapshot.map(|snapshot| snapshot.created_at);
        let parent_id = if new.incremental {
            Some(self.parent(&new.volume_id, moment)?)
        } else {
            None
        };
        if !self.rules.backups {
            return Err(Fault::new(503, "Service cinder-backup could not be found."));
        }
        let backup = Backup {
            id: self.new_id(),
            name: new.name,
            description: new.description,
            status: BackupStatus::Creating,
            size: volume.size,
            volume_id: new.volume_id,
            snapshot_id: new.snapshot_id,
            parent_id,
            container: new.container,
            availability_zone: new.availability_zone,
            object_count: 0,
            fail_reason: None,
            metadata: new.metadata.unwrap_or_default(),
            volume_metadata: volume.metadata.clone(),
            data_timestamp: moment.unwrap_or(now),
            created_at: now,
            updated_at: None,
        };
        if let Some(id) = &backup.snapshot_id {
            self.set_snapshot_status(id, SnapshotStatus::BackingUp);
        } else {
            let volume = self.volume_mut(&backup.volume_id)?;
            volume.previous_status = Some(volume.status);
            let id = backup.volume_id.clone();
            self.set_status(&id, VolumeStatus::BackingUp);
        }
        self.backups.insert(backup.id.clone(), backup.clone());
        Ok(backup)
    }

    /// Returns the base of an incremental backup: the latest one with data from before `moment`.
    fn parent(&self, volume_id: &str, moment: Option<Timestamp>) -> Result<String, Fault> {
        let usable = |backup: &&Backup| {
            backup.status == BackupStatus::Available && moment.is_none_or(|moment| backup.data_timestamp < moment)
        };
        self.backups
            .values()
            .filter(|backup| backup.volume_id == volume_id)
            .filter(usable)
            .max_by_key(|backup| backup.data_timestamp)
            .map(|backup| backup.id.clone())
            .ok_or_else(no_parent)
    }

    /// Ends `creating` with `available` or `error`; the source returns to its previous status.
    pub(crate) fn end_backup(&mut self, id: &str, failed: Option<&str>) {
        let now = self.sources.now();
        let zone = self.rules.zones.first().cloned();
        let Some(backup) = self.backups.get_mut(id) else { return };
        if backup.status == BackupStatus::Creating {
            backup.status = if failed.is_some() {
                BackupStatus::Error
            } else {
                BackupStatus::Available
            };
        }
        backup.fail_reason = failed.map(str::to_owned);
        backup.updated_at = Some(now);
        if failed.is_none() {
            backup.object_count = 2;
            backup.availability_zone = backup.availability_zone.take().or(zone);
            // Directory layout of the posix driver: first letters of the id.
            let (first, rest) = id.split_at(2);
            let folder = || format!("{first}/{}/{id}", &rest[..2]);
            backup.container = backup.container.take().or_else(|| Some(folder()));
        }
        let (volume_id, snapshot_id) = (backup.volume_id.clone(), backup.snapshot_id.clone());
        if let Some(snapshot) = snapshot_id {
            self.set_snapshot_status(&snapshot, SnapshotStatus::Available);
        } else {
            self.step_back(&volume_id, VolumeStatus::BackingUp);
        }
    }

    /// Accepts a delete call: the backup becomes `deleting`.
    pub(crate) fn begin_delete_backup(&mut self, id: &str) -> Result<(), Fault> {
        let status = self.backup(id)?.status;
        if !matches!(status, BackupStatus::Available | BackupStatus::Error) {
            return Err(Fault::bad_request(
                "Invalid backup: Backup status must be available or error",
            ));
        }
        if self.has_dependent_backups(id) {
            return Err(Fault::bad_request(
                "Invalid backup: Incremental backups exist for this backup.",
            ));
        }
        if !self.rules.backups {
            return Err(Fault::not_found("Service cinder-backup could not be found."));
        }
        self.set_backup_status(id, BackupStatus::Deleting);
        Ok(())
    }

    /// Ends `deleting` with the removal or `error_deleting`.
    pub(crate) fn end_delete_backup(&mut self, id: &str, failed: Option<&str>) {
        if let Some(reason) = failed {
            self.set_backup_status(id, BackupStatus::ErrorDeleting);
            if let Some(backup) = self.backups.get_mut(id) {
                backup.fail_reason = Some(reason.to_owned());
            }
        } else {
            self.backups.remove(id);
        }
    }

    /// Accepts a restore call on an existing volume, which becomes `restoring-backup`.
    pub(crate) fn begin_restore(&mut self, id: &str, volume_id: &str) -> Result<(), Fault> {
        let backup = self.backup(id)?;
        let volume = self.volume(volume_id)?;
        if backup.status != BackupStatus::Available {
            return Err(Fault::bad_request("Invalid backup: Backup status must be available"));
        }
        if volume.status != VolumeStatus::Available {
            return Err(Fault::bad_request(
                "Invalid volume: Volume to be restored to must be available",
            ));
        }
        if backup.size > volume.size {
            return Err(Fault::bad_request(format!(
                "Invalid volume: volume size {} is too small to restore backup of size {}.",
                volume.size, backup.size
            )));
        }
        self.volume_mut(volume_id)?.backup_id = Some(id.to_owned());
        self.set_backup_status(id, BackupStatus::Restoring);
        self.set_status(volume_id, VolumeStatus::RestoringBackup);
        Ok(())
    }

    /// Sets the new, empty volume of a restore to `restoring-backup`.
    pub(crate) fn begin_fill(&mut self, volume_id: &str) {
        self.turn(volume_id, VolumeStatus::Creating, VolumeStatus::RestoringBackup);
    }

    /// Ends a restore with the data or an error. The metadata of the original volume replaces the volume's own. If the
    /// data come from another volume, Cinder records that.
    pub(crate) fn end_restore(&mut self, id: &str, volume_id: &str, failed: bool) {
        if self
            .backups
            .get(id)
            .is_some_and(|known| known.status == BackupStatus::Restoring)
        {
            self.set_backup_status(id, BackupStatus::Available);
        }
        let saved = self.backups.get(id);
        let own = saved.is_some_and(|backup| backup.volume_id == volume_id);
        let saved = saved.map(|backup| backup.volume_metadata.clone()).unwrap_or_default();
        let Ok(volume) = self.volume_mut(volume_id) else { return };
        volume.backup_id = None;
        if !failed {
            volume.metadata = saved;
            if !own || volume.metadata.contains_key("src_backup_id") {
                volume.metadata.insert("src_backup_id".to_owned(), id.to_owned());
            }
        }
        let end = if failed {
            VolumeStatus::ErrorRestoring
        } else {
            VolumeStatus::Available
        };
        for before in [VolumeStatus::Creating, VolumeStatus::RestoringBackup] {
            self.turn(volume_id, before, end);
        }
    }

    pub(crate) fn set_backup_status(&mut self, id: &str, status: BackupStatus) -> bool {
        let now = self.sources.now();
        let Some(backup) = self.backups.get_mut(id) else {
            return false;
        };
        backup.status = status;
        backup.updated_at = Some(now);
        true
    }
}
