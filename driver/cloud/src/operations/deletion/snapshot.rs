// SPDX-License-Identifier: Apache-2.0
//! Deletes snapshots, including the temporary snapshots of backups.

use tokio::time::Instant;

use super::{Attempt, Deletable, NextStep, delete, next_step_after, remedy};
use crate::api::block_storage::{Backup, BlockStorage, Snapshot, SnapshotStatus, Volume};
use crate::context::Context;
use crate::error::{CloudError, ObjectKind};
use crate::ids::SnapshotId;
use crate::operations::dependents::{or_unknown_dependents, volumes_built_on};
use crate::operations::snapshots::{cinder_messages, is_temporary, join_texts, wait_snapshot_settled};
use crate::poll::Watch;
use crate::poll::schedule::Kind;
use crate::timing::TIMING;

/// Deletes a snapshot. A missing one (404) counts as deleted.
pub(crate) async fn delete_snapshot(cx: &Context, id: &SnapshotId) -> Result<(), CloudError> {
    // On the heap: a creation that cleans up would be as large as a deletion.
    Box::pin(delete::<Snapshot>(cx, id)).await
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
pub(super) async fn clear_temporary(cx: &Context, snapshots: &[Snapshot]) -> Result<bool, CloudError> {
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

impl Deletable for Snapshot {
    const KIND: ObjectKind = ObjectKind::Snapshot;

    fn watch(cx: &Context) -> &Watch<Self> {
        &cx.snapshots
    }

    async fn request(cx: &Context, id: &SnapshotId, _attempt: &mut Attempt) -> Result<NextStep, CloudError> {
        let answer = BlockStorage::new(&cx.transport).delete_snapshot(id).await?;
        Ok(next_step_after(&answer))
    }

    async fn resolve_refusal(
        self,
        cx: &Context,
        attempt: &Attempt,
        refusal: CloudError,
    ) -> Result<NextStep, CloudError> {
        match (&self.status, &self.group_snapshot_id) {
            (SnapshotStatus::Deleting, _) => Ok(NextStep::Wait),
            (_, Some(group)) if !refusal.is_uncertain() => Err(CloudError::MemberOfGroup {
                group: group.clone(),
                snapshot: self.id,
            }),
            // Cinder does not accept a second deletion.
            (SnapshotStatus::ErrorDeleting, _) => Err(not_deleted(cx, &self).await),
            (SnapshotStatus::Creating | SnapshotStatus::BackingUp, _) if !attempt.is_last => {
                let until = attempt.deadline.min(attempt.started + TIMING.settle_timeout);
                match wait_snapshot_settled(cx, Kind::Settle, &self, attempt.started, until).await {
                    Err(CloudError::Timeout { .. }) => Err(busy_error(&self)),
                    settled => settled.map(|_| NextStep::Retry),
                }
            }
            (SnapshotStatus::Creating | SnapshotStatus::BackingUp, _) => Err(busy_error(&self)),
            _ if !attempt.is_last && refusal.is_uncertain() => Ok(NextStep::Pause),
            _ => {
                let dependents = volumes_of_snapshot(cx, &self.id).await?;
                Err(if dependents.is_empty() {
                    refusal
                } else {
                    needed_error(&self.id, dependents, refusal.to_string())
                })
            }
        }
    }

    async fn remaining_error(self, cx: &Context, _started: Instant) -> Result<CloudError, CloudError> {
        if self.status.is_error() {
            return Ok(not_deleted(cx, &self).await);
        }
        // The backend refused the deletion: the snapshot has dependents.
        let dependents = volumes_of_snapshot(cx, &self.id).await?;
        Ok(needed_error(
            &self.id,
            dependents,
            cinder_messages(cx, self.id.as_str()).await,
        ))
    }
}

async fn not_deleted(cx: &Context, snapshot: &Snapshot) -> CloudError {
    CloudError::SnapshotFailed {
        kind: ObjectKind::Snapshot,
        id: snapshot.id.to_string(),
        status: snapshot.status.to_string(),
        message: join_texts(
            &cinder_messages(cx, snapshot.id.as_str()).await,
            remedy(snapshot.status.as_str()),
        ),
        removed: false,
    }
}

/// The volumes created from a snapshot.
async fn volumes_of_snapshot(cx: &Context, id: &SnapshotId) -> Result<String, CloudError> {
    let is_made = |volume: &Volume| volume.snapshot_id.as_deref() == Some(id.as_str());
    volumes_built_on(cx, id.as_str(), is_made).await
}

fn busy_error(snapshot: &Snapshot) -> CloudError {
    CloudError::Busy {
        kind: ObjectKind::Snapshot,
        id: snapshot.id.to_string(),
        status: snapshot.status.to_string(),
        wanted: "available or error",
    }
}

fn needed_error(id: &SnapshotId, dependents: String, message: String) -> CloudError {
    CloudError::StillNeeded {
        kind: ObjectKind::Snapshot,
        id: id.to_string(),
        dependents: or_unknown_dependents(dependents),
        message,
    }
}
