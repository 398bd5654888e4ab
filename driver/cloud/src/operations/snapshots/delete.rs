// SPDX-License-Identifier: Apache-2.0
//! Deletes a snapshot.

use tokio::time::Instant;

use super::wait_snapshot_settled;
use crate::api::block_storage::{BlockStorage, Snapshot, SnapshotStatus, Volume};
use crate::context::Context;
use crate::error::{CloudError, ObjectKind};
use crate::ids::SnapshotId;
use crate::operations::deletion::{
    Attempt, Deletable, NextStep, busy_error, delete, next_step_after, not_deleted_error,
};
use crate::operations::dependents::{or_unknown_dependents, volumes_built_on};
use crate::operations::messages::cinder_messages;
use crate::poll::Watch;
use crate::poll::schedule::Kind;
use crate::timing::TIMING;

/// Deletes a snapshot. A missing one (404) counts as deleted.
pub(crate) async fn delete_snapshot(cx: &Context, id: &SnapshotId) -> Result<(), CloudError> {
    delete::<Snapshot>(cx, id).await
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
            (SnapshotStatus::ErrorDeleting, _) => Err(not_deleted_error(cx, &self, "").await),
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
            return Ok(not_deleted_error(cx, &self, "").await);
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

/// The volumes created from a snapshot.
async fn volumes_of_snapshot(cx: &Context, id: &SnapshotId) -> Result<String, CloudError> {
    let is_built = |volume: &Volume| volume.snapshot_id.as_deref() == Some(id.as_str());
    volumes_built_on(cx, id.as_str(), is_built).await
}

fn needed_error(id: &SnapshotId, dependents: String, message: String) -> CloudError {
    CloudError::StillNeeded {
        kind: ObjectKind::Snapshot,
        id: id.to_string(),
        dependents: or_unknown_dependents(dependents),
        message,
    }
}
