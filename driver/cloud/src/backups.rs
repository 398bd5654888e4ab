//! Backups made, found and deleted, each to its end.
//!
//! A backup reads its volume for minutes or hours, so the data is frozen first, in a snapshot that bears the backup's name and a
//! mark. It goes when the backup is made, at whichever call sees that first: the next creation of the same name, or the deletion of
//! the backup or of the volume. A deletion removes it before the backup, which is all that tells of it.

mod create;
mod delete;

use crate::block_storage::{Backup, BlockStorage, Snapshot};
use crate::cloud::Inner;
use crate::error::CloudError;
use crate::snapshots::is_temporary;

impl Inner {
    /// Removes the snapshot that froze the data for a backup. Nothing else is ever touched: the mark decides.
    async fn thaw(&self, backup: &Backup) -> Result<(), CloudError> {
        let Some(id) = &backup.snapshot_id else {
            return Ok(());
        };
        let snapshot = BlockStorage::new(&self.transport).snapshot(id).await?;
        match snapshot {
            Some(snapshot) if is_temporary(&snapshot) && snapshot.volume_id == backup.volume_id => {
                self.delete_snapshot(id).await
            }
            _ => Ok(()),
        }
    }

    /// Removes those of a volume's snapshots that froze data for backups which are made, or were given up; true when there was one.
    pub(crate) async fn clear_temporary(&self, snapshots: &[Snapshot]) -> Result<bool, CloudError> {
        let mut cleared = false;
        for snapshot in snapshots.iter().filter(|snapshot| is_temporary(snapshot)) {
            // One that is still read is in another status.
            if snapshot.status == crate::block_storage::SnapshotStatus::Available || snapshot.status.is_error() {
                tracing::warn!(snapshot = %snapshot.id, volume = %snapshot.volume_id, "removing the snapshot of a backup that nobody waits for any more");
                self.delete_snapshot(&snapshot.id).await?;
                cleared = true;
            }
        }
        Ok(cleared)
    }
}
