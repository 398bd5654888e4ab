// SPDX-License-Identifier: Apache-2.0
//! Snapshots and backups through the front door.

use super::Cloud;
use crate::api::block_storage::{Backup, BlockStorage, NewBackup, NewSnapshot, Snapshot};
use crate::error::CloudError;
use crate::ids::VolumeId;
use crate::operations::backups::create::create_backup;
use crate::operations::deletion::backup::delete_point_in_time;
use crate::operations::snapshots::create::create_snapshot;
use crate::operations::snapshots::{PointInTime, is_temporary, point_in_time, words};

impl Cloud {
    /// Makes a snapshot, or finds the one that an earlier call with the same name made, and waits until it is complete, as long as
    /// [`CloudOptions::operation_timeout`](crate::CloudOptions) lasts; then the error is [`CloudError::Timeout`].
    ///
    /// A snapshot of this name and another volume is [`CloudError::SnapshotExists`]. One that failed is removed, if it carries all of
    /// the metadata, and made anew by the next call; then [`CloudError::SnapshotFailed`] tells Cinder's message. The request is
    /// never repeated blindly.
    pub async fn create_snapshot(&self, new: NewSnapshot) -> Result<Snapshot, CloudError> {
        create_snapshot(&self.inner, &new).await
    }

    /// Freezes the data of a volume in a snapshot, asks for a backup of it, and returns as soon as Cinder has a record of it; or
    /// finds the one that an earlier call with the same name made. When it finds a complete one, the snapshot is removed.
    ///
    /// One that failed at once is removed; the error is [`CloudError::SnapshotFailed`] then. One that fails later stays until it is deleted,
    /// because its id is known: the first call that finds it returns it once more, and each further one [`CloudError::Broken`].
    /// Other errors as for [`Cloud::create_snapshot`].
    pub async fn create_backup(&self, new: NewBackup) -> Result<Backup, CloudError> {
        create_backup(&self.inner, &new).await
    }

    /// The snapshot or the backup of this id; `None` when Cinder knows neither, or the id is no UUID.
    pub async fn point_in_time(&self, id: &str) -> Result<Option<PointInTime>, CloudError> {
        point_in_time(&self.inner, id).await
    }

    /// Cinder's words about a snapshot or a backup that failed; empty when there are none.
    pub async fn failure_of(&self, point: &PointInTime) -> String {
        let words = words(&self.inner, point.id()).await;
        match point {
            PointInTime::Backup(backup) => crate::operations::snapshots::joined(&backup.fail_reason, &words),
            PointInTime::Snapshot(_) => words,
        }
    }

    /// Deletes the snapshot or the backup of this id, and waits until Cinder no longer knows it. What is not there is deleted. What
    /// others are built on stays: [`CloudError::StillNeeded`].
    pub async fn delete_point_in_time(&self, id: &str) -> Result<(), CloudError> {
        delete_point_in_time(&self.inner, id).await
    }

    /// The snapshots of the project, or of one volume. Those that only freeze data for a backup are left out.
    pub async fn list_snapshots(&self, volume: Option<&VolumeId>) -> Result<Vec<Snapshot>, CloudError> {
        let cinder = BlockStorage::new(&self.inner.transport);
        let mut snapshots = match volume {
            Some(volume) => cinder.snapshots_of(volume).await?,
            None => cinder.snapshots(&[]).await?,
        };
        snapshots.retain(|snapshot| !is_temporary(snapshot));
        Ok(snapshots)
    }

    /// The backups of the project, or of one volume; none in a cloud that does not serve or allow them.
    pub async fn list_backups(&self, volume: Option<&VolumeId>) -> Result<Vec<Backup>, CloudError> {
        let cinder = BlockStorage::new(&self.inner.transport);
        let listed = match volume {
            Some(volume) => cinder.backups_of(volume).await,
            None => cinder.backups(&[]).await,
        };
        match listed {
            Err(error @ (CloudError::NotFound { .. } | CloudError::Forbidden(_))) => {
                tracing::debug!(%error, "this cloud has no backups for us");
                Ok(Vec::new())
            }
            listed => listed,
        }
    }
}
