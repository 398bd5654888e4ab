// SPDX-License-Identifier: Apache-2.0
//! Deletes group snapshots with their members and their groups.

use std::collections::BTreeSet;

use tokio::time::Instant;

use crate::api::block_storage::{BlockStorage, GroupSnapshotRecord};
use crate::context::Context;
use crate::error::{CloudError, Failure, ObjectKind};
use crate::ids::{GroupSnapshotId, SnapshotId};
use crate::last_failure::LastFailure;
use crate::operations::groups::members::{refuse_other_members, with_members};
use crate::operations::groups::own::{dissolve_group_of, dissolve_if_own, free_volumes};
use crate::operations::groups::poll::{poll_until_shown, settled, wait_group_snapshot_settled};

/// See [`crate::Cloud::delete_group_snapshot`].
pub(crate) async fn delete_group_snapshot(
    cx: &Context,
    id: &GroupSnapshotId,
    members: &BTreeSet<SnapshotId>,
) -> Result<(), CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    if !id.is_uuid() || !cinder.knows_groups().await? {
        return Ok(());
    }
    let deadline = Instant::now() + cx.options.operation_timeout;
    // A new group snapshot may be deleted at once, and an API node with a lagging database does not show it (404).
    let read = || cinder.group_snapshot(id.as_str());
    let Some(record) = poll_until_shown(cx, deadline, read, |found| found.is_some()).await? else {
        // An earlier call may have been killed between the snapshot and its group.
        return dissolve_group_of(cx, id.as_str(), deadline).await;
    };
    if !members.is_empty() {
        let found = with_members(cx, &record).await?;
        let found = found.snapshots.into_iter().map(|snapshot| snapshot.id).collect();
        refuse_other_members(cx, id, &found, members).await?;
    }
    remove_group_snapshot(cx, &record, deadline).await
}

/// Deletes a group snapshot with its members, waits until it is deleted, and removes its group if the group is from
/// this driver.
pub(super) async fn remove_group_snapshot(
    cx: &Context,
    record: &GroupSnapshotRecord,
    deadline: Instant,
) -> Result<(), CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    let id = &record.id;
    if let Some(record) = settled(cx, record.clone(), deadline).await? {
        // Before the deletion: without the snapshot, no later call would find its group.
        free_volumes(cx, &record, deadline).await?;
        let (requested_at, mut denied) = (Instant::now(), false);
        let refused = match cinder.delete_group_snapshot(id).await {
            Ok(known) => {
                // A 404 of the deletion.
                denied = !known;
                None
            }
            Err(CloudError::BadRequest(failure)) => Some(failure.to_string()),
            Err(error) => return Err(error),
        };
        // After an accepted request the previous status proves nothing.
        let is_news = |remaining: Option<&GroupSnapshotRecord>| {
            refused.is_some() || denied || remaining.is_none_or(|remaining| remaining.status != record.status)
        };
        let read = || wait_group_snapshot_settled(cx, id, deadline);
        if let Some(remaining) = poll_until_shown(cx, deadline, read, is_news).await? {
            return Err(match refused {
                Some(message) => CloudError::StillNeeded {
                    kind: ObjectKind::GroupSnapshot,
                    id: id.clone(),
                    dependents: "Cinder refuses its deletion".to_owned(),
                    message,
                },
                None if denied => CloudError::Conflict(Failure {
                    operation: "group_snapshot_delete",
                    object: format!("group snapshot {id}"),
                    status: Some(404),
                    fault: format!(
                        "Cinder says that it does not exist, and shows it in status {}",
                        remaining.status
                    ),
                    request_id: LastFailure::request_that_missed(id),
                    elapsed: requested_at.elapsed(),
                }),
                None => CloudError::SnapshotFailed {
                    kind: ObjectKind::GroupSnapshot,
                    id: id.clone(),
                    status: remaining.status,
                    message:
                        "a member could not be deleted, for instance because a volume was made from it; see the log of \
                              cinder-volume"
                            .to_owned(),
                    removed: false,
                },
            });
        }
    }
    dissolve_if_own(cx, &record.group_id, deadline).await
}
