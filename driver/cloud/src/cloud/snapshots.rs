// SPDX-License-Identifier: Apache-2.0
//! Snapshots and backups in the public API.

use super::Cloud;
use crate::api::block_storage::{Backup, BlockStorage, NewBackup, NewSnapshot, Snapshot};
use crate::error::CloudError;
use crate::ids::VolumeId;
use crate::memory_size::MemorySize;
use crate::operations::backups::create::create_backup;
use crate::operations::messages::{cinder_messages, join_texts};
use crate::operations::points_in_time::{PointInTime, delete_point_in_time, point_in_time};
use crate::operations::snapshots::create::create_snapshot;
use crate::operations::snapshots::temporary::is_temporary;

impl Cloud {
    /// Creates a snapshot, or adopts the one that an earlier call created under the same name, and waits until it is
    /// complete. The wait ends with [`CloudError::Timeout`] after
    /// [`CloudOptions::operation_timeout`](crate::CloudOptions).
    ///
    /// A snapshot of this name and of another volume is [`CloudError::SnapshotExists`]. A failed snapshot is removed if
    /// all of its metadata matches, and the next call creates another one. The error is then
    /// [`CloudError::SnapshotFailed`] with Cinder's message. The request is never repeated blindly.
    pub async fn create_snapshot(&self, new: NewSnapshot) -> Result<Snapshot, CloudError> {
        create_snapshot(&self.inner, &new).await
    }

    /// Creates a backup through a temporary snapshot, and returns as soon as Cinder has a record of the backup. Adopts
    /// the backup that an earlier call created under the same name. If that one is complete, the temporary snapshot is
    /// removed.
    ///
    /// A backup that failed at once is removed, and the error is [`CloudError::SnapshotFailed`]. A backup that fails
    /// later stays until it is deleted, because a caller may know its id: further calls return it a few times, and then
    /// [`CloudError::Broken`]. Other errors are as for [`Cloud::create_snapshot`].
    pub async fn create_backup(&self, new: NewBackup) -> Result<Backup, CloudError> {
        create_backup(&self.inner, &new).await
    }

    /// Gets the snapshot or the backup of this id; `None` if Cinder knows neither (404), or if the id is not a UUID.
    pub async fn point_in_time(&self, id: &str) -> Result<Option<PointInTime>, CloudError> {
        point_in_time(&self.inner, id).await
    }

    /// Cinder's messages about a failed snapshot or backup; may be empty.
    pub async fn failure_of(&self, point: &PointInTime) -> String {
        let messages = cinder_messages(&self.inner, point.id()).await;
        match point {
            PointInTime::Backup(backup) => join_texts(&backup.fail_reason, &messages),
            PointInTime::Snapshot(_) => messages,
        }
    }

    /// Deletes the snapshot or the backup of this id, and waits until Cinder no longer knows it. A missing one counts
    /// as deleted. One with dependents is not deleted: [`CloudError::StillNeeded`].
    pub async fn delete_point_in_time(&self, id: &str) -> Result<(), CloudError> {
        delete_point_in_time(&self.inner, id).await
    }

    /// Lists the snapshots of the project, or of one volume, without the temporary snapshots of backups. `map` converts
    /// each snapshot or drops it. Only the results are retained.
    pub async fn map_snapshots<T: MemorySize>(
        &self,
        volume: Option<&VolumeId>,
        mut map: impl FnMut(Snapshot) -> Option<T>,
    ) -> Result<Vec<T>, CloudError> {
        let cinder = BlockStorage::new(&self.inner.transport);
        let map = |snapshot| {
            Some(snapshot)
                .filter(|snapshot| !is_temporary(snapshot))
                .and_then(&mut map)
        };
        match volume {
            Some(volume) => cinder.snapshots_of(volume, map).await,
            None => cinder.snapshots(&[], map).await,
        }
    }

    /// Lists the backups of the project, or of one volume. `map` converts each backup or drops it. Only the results are
    /// retained. The list is empty if the cloud has no backup service (404) or does not allow its use (403).
    pub async fn map_backups<T: MemorySize>(
        &self,
        volume: Option<&VolumeId>,
        map: impl FnMut(Backup) -> Option<T>,
    ) -> Result<Vec<T>, CloudError> {
        let cinder = BlockStorage::new(&self.inner.transport);
        let listed = match volume {
            Some(volume) => cinder.backups_of(volume, map).await,
            None => cinder.backups(&[], map).await,
        };
        match listed {
            Err(error) if error.is_not_offered() => {
                tracing::debug!(%error, "this cloud has no backups for us");
                Ok(Vec::new())
            }
            listed => listed,
        }
    }
}
