// SPDX-License-Identifier: Apache-2.0
//! The snapshots of CSI: each is a snapshot or a backup of Cinder.

use crate::api::block_storage::{Backup, BackupStatus, BlockStorage, Snapshot, SnapshotStatus};
use crate::context::Context;
use crate::error::CloudError;
use crate::ids::{BackupId, SnapshotId, VolumeId};
use crate::operations::backups::delete::delete_backup;
use crate::operations::snapshots::delete::delete_snapshot;

/// The frozen data of a volume: a snapshot in the same backend, or a backup in another store. Both have ids of the same
/// form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PointInTime {
    Snapshot(Snapshot),
    Backup(Backup),
}

impl PointInTime {
    pub fn id(&self) -> &str {
        match self {
            Self::Snapshot(snapshot) => snapshot.id.as_str(),
            Self::Backup(backup) => backup.id.as_str(),
        }
    }

    /// The volume from which it was taken.
    pub fn volume(&self) -> &VolumeId {
        match self {
            Self::Snapshot(snapshot) => &snapshot.volume_id,
            Self::Backup(backup) => &backup.volume_id,
        }
    }

    /// Whether a volume can be created from it.
    pub fn is_complete(&self) -> bool {
        match self {
            Self::Snapshot(snapshot) => snapshot.status.is_complete(),
            Self::Backup(backup) => backup.status.is_complete(),
        }
    }

    pub fn is_coming(&self) -> bool {
        match self {
            Self::Snapshot(snapshot) => snapshot.status == SnapshotStatus::Creating,
            Self::Backup(backup) => backup.status == BackupStatus::Creating,
        }
    }

    /// The error status, if it has failed.
    pub fn failed(&self) -> Option<&str> {
        match self {
            Self::Snapshot(snapshot) => snapshot.status.is_error().then(|| snapshot.status.as_str()),
            Self::Backup(backup) => backup.status.is_error().then(|| backup.status.as_str()),
        }
    }
}

/// Gets the snapshot or the backup of this id. `None` if Cinder answers 404 for both.
pub(crate) async fn point_in_time(cx: &Context, id: &str) -> Result<Option<PointInTime>, CloudError> {
    let snapshot = SnapshotId::new(id);
    if !snapshot.is_uuid() {
        return Ok(None);
    }
    let cinder = BlockStorage::new(&cx.transport);
    if let Some(snapshot) = cinder.snapshot(&snapshot).await? {
        return Ok(Some(PointInTime::Snapshot(snapshot)));
    }
    Ok(cinder.backup(&BackupId::new(id)).await?.map(PointInTime::Backup))
}

/// See [`crate::Cloud::delete_point_in_time`].
pub(crate) async fn delete_point_in_time(cx: &Context, id: &str) -> Result<(), CloudError> {
    let snapshot = SnapshotId::new(id);
    if !snapshot.is_uuid() {
        return Ok(());
    }
    // Read first, because only the snapshot shows that it is a member of a group snapshot.
    let found = point_in_time(cx, id).await?;
    match &found {
        Some(PointInTime::Snapshot(Snapshot {
            group_snapshot_id: Some(group),
            ..
        })) => {
            return Err(CloudError::MemberOfGroup {
                group: group.clone(),
                snapshot,
            });
        }
        Some(PointInTime::Backup(_)) => return delete_backup(cx, &BackupId::new(id)).await,
        _ => {}
    }
    delete_snapshot(cx, &snapshot).await?;
    if found.is_none() {
        // An API node with a lagging database does not show a new backup. Only a 404 of its deletion proves that it
        // does not exist.
        delete_backup(cx, &BackupId::new(id)).await?;
    }
    Ok(())
}
