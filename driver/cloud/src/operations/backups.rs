// SPDX-License-Identifier: Apache-2.0
//! Backups made, found and deleted, each to its end.
//!
//! A backup reads its volume for minutes or hours, so the data is frozen first, in a snapshot that bears the backup's name and a
//! mark. It goes when the backup is made, at whichever call sees that first: the next creation of the same name, or the deletion of
//! the backup or of the volume. A deletion removes it before the backup, which is all that tells of it.

pub(crate) mod create;
pub(crate) mod delete;

use crate::api::block_storage::{Backup, BlockStorage, Snapshot};
use crate::context::Context;
use crate::error::CloudError;
use crate::operations::snapshots::delete::delete_snapshot;
use crate::operations::snapshots::is_temporary;

/// Removes the snapshot that froze the data for a backup. Nothing else is ever touched: the mark decides.
async fn thaw(cx: &Context, backup: &Backup) -> Result<(), CloudError> {
    let Some(id) = &backup.snapshot_id else {
        return Ok(());
    };
    let snapshot = BlockStorage::new(&cx.transport).snapshot(id).await?;
    match snapshot {
        Some(snapshot) if is_temporary(&snapshot) && snapshot.volume_id == backup.volume_id => {
            delete_snapshot(cx, id).await
        }
        _ => Ok(()),
    }
}

/// Removes those of a volume's snapshots that froze data for backups which are made, or were given up; true when there was one.
pub(crate) async fn clear_temporary(cx: &Context, snapshots: &[Snapshot]) -> Result<bool, CloudError> {
    let mut cleared = false;
    for snapshot in snapshots.iter().filter(|snapshot| is_temporary(snapshot)) {
        // One that is still read is in another status.
        if snapshot.status == crate::api::block_storage::SnapshotStatus::Available || snapshot.status.is_error() {
            tracing::warn!(snapshot = %snapshot.id, volume = %snapshot.volume_id, "removing the temporary snapshot of a backup that has ended or was given up");
            delete_snapshot(cx, &snapshot.id).await?;
            cleared = true;
        }
    }
    Ok(cleared)
}
