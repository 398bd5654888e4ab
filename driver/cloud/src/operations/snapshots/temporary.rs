// SPDX-License-Identifier: Apache-2.0
//! Temporary snapshots, which freeze the data for a backup.

use crate::api::block_storage::{Backup, BlockStorage, Snapshot, SnapshotStatus};
use crate::context::Context;
use crate::error::CloudError;
use crate::metadata_keys;
use crate::operations::snapshots::delete::delete_snapshot;

/// Whether a snapshot only freezes the data for a backup.
pub(crate) fn is_temporary(snapshot: &Snapshot) -> bool {
    snapshot.metadata.contains_key(metadata_keys::TEMPORARY_FOR)
}

/// Removes the snapshot that froze the data for a backup. The mark prevents the removal of any other snapshot.
pub(crate) async fn thaw(cx: &Context, backup: &Backup) -> Result<(), CloudError> {
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

/// Deletes the temporary snapshots of a volume's completed or abandoned backups. Returns whether there were any.
pub(crate) async fn clear_temporary(cx: &Context, snapshots: &[Snapshot]) -> Result<bool, CloudError> {
    let mut cleared = false;
    for snapshot in snapshots.iter().filter(|snapshot| is_temporary(snapshot)) {
        // A snapshot that Cinder still reads is in another status.
        if snapshot.status == SnapshotStatus::Available || snapshot.status.is_error() {
            tracing::warn!(snapshot = %snapshot.id, volume = %snapshot.volume_id, "removing the temporary snapshot of a backup that has ended or was given up");
            delete_snapshot(cx, &snapshot.id).await?;
            cleared = true;
        }
    }
    Ok(cleared)
}
