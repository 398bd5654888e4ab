// SPDX-License-Identifier: Apache-2.0
//! A snapshot by its id, until it is gone.

use tokio::time::{Instant, sleep};

use super::{PointInTime, ROUNDS, joined};
use crate::api::block_storage::{BlockStorage, Snapshot, SnapshotStatus, Volume};
use crate::context::Context;
use crate::error::{CloudError, ObjectKind};
use crate::http::retry::jitter;
use crate::ids::{BackupId, SnapshotId};
use crate::operations::backups::delete::delete_backup;
use crate::operations::dependents::{or_unknown, volumes_built_on};
use crate::operations::snapshots::{point_in_time, settled_snapshot, words};
use crate::operations::volumes::delete::is_gone_unseen;
use crate::poll::schedule::Kind;
use crate::timing::TIMING;

/// See [`crate::Cloud::delete_point_in_time`].
pub(crate) async fn delete_point_in_time(cx: &Context, id: &str) -> Result<(), CloudError> {
    let snapshot = SnapshotId::new(id);
    if !snapshot.is_uuid() {
        return Ok(());
    }
    // Looked at first: it alone tells whether it is one of several that go together only.
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
        // An API node whose database lags does not show what was just made: only the answer to its deletion says that it is not there.
        delete_backup(cx, &BackupId::new(id)).await?;
    }
    Ok(())
}

/// Deletes a snapshot; one that is not there is deleted.
pub(crate) async fn delete_snapshot(cx: &Context, id: &SnapshotId) -> Result<(), CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    let deadline = Instant::now() + cx.options.operation_timeout;
    let (mut rounds, mut missed) = (0, false);
    loop {
        rounds += 1;
        let started = Instant::now();
        let refusal = match cinder.delete_snapshot(id).await {
            Ok(answer) if answer.missing() => return Ok(()),
            Ok(_) => return wait_snapshot_gone(cx, id, started, deadline).await,
            Err(error @ (CloudError::BadRequest(_) | CloudError::Conflict(_))) => error,
            Err(error) if error.is_uncertain() => error,
            Err(error) => return Err(error),
        };
        // Refused, or the answer was lost: the snapshot tells why.
        let Some(snapshot) = cinder.snapshot(id).await? else {
            if is_gone_unseen(cx, refusal, rounds >= ROUNDS, &mut missed).await? {
                return Ok(());
            }
            continue;
        };
        match &snapshot.status {
            SnapshotStatus::Deleting => {
                return wait_snapshot_gone(cx, id, started, deadline).await;
            }
            _ if snapshot.group_snapshot_id.is_some() && !refusal.is_uncertain() => {
                return Err(CloudError::MemberOfGroup {
                    snapshot: snapshot.id,
                    group: snapshot.group_snapshot_id.unwrap_or_default(),
                });
            }
            // Cinder takes no second deletion of it.
            SnapshotStatus::ErrorDeleting => return Err(snapshot_not_deleted(cx, &snapshot).await),
            SnapshotStatus::Creating | SnapshotStatus::BackingUp if rounds < ROUNDS => {
                let until = deadline.min(started + TIMING.settle_timeout);
                let settled = settled_snapshot(cx, Kind::Settle, &snapshot, started, until).await;
                if let Err(error) = settled {
                    return Err(match error {
                        CloudError::Timeout { .. } => busy(&snapshot),
                        other => other,
                    });
                }
            }
            SnapshotStatus::Creating | SnapshotStatus::BackingUp => return Err(busy(&snapshot)),
            _ if rounds < ROUNDS && refusal.is_uncertain() => {
                sleep(jitter(TIMING.deletion_retry, &cx.options.sources)).await;
            }
            _ => {
                let dependents = volumes_of_snapshot(cx, id).await?;
                return Err(if dependents.is_empty() {
                    refusal
                } else {
                    needed(id, dependents, &refusal.to_string())
                });
            }
        }
    }
}

async fn wait_snapshot_gone(
    cx: &Context,
    id: &SnapshotId,
    started: Instant,
    deadline: Instant,
) -> Result<(), CloudError> {
    let wait = crate::poll::Wait {
        kind: Kind::Delete,
        id,
        name: None,
        status: Some(SnapshotStatus::Deleting),
        started,
        deadline,
        at_most_every: None,
        what: format!("snapshot {id}"),
    };
    let mut seen_available = false;
    let left = cx.snapshots.until(wait, |now| match now {
        None => Some(Ok(None)),
        Some(now) if now.status == SnapshotStatus::Deleting => None,
        // As for volumes: the first look may show it as it was before the deletion.
        Some(now) if now.status == SnapshotStatus::Available && !std::mem::replace(&mut seen_available, true) => None,
        Some(now) => Some(Ok(Some(now.clone()))),
    });
    let Some(snapshot) = left.await? else { return Ok(()) };
    if snapshot.status.is_error() {
        return Err(snapshot_not_deleted(cx, &snapshot).await);
    }
    // The backend gave it back: something is built on it.
    let dependents = volumes_of_snapshot(cx, id).await?;
    let message = words(cx, id.as_str()).await;
    Err(needed(id, dependents, &message))
}

async fn snapshot_not_deleted(cx: &Context, snapshot: &Snapshot) -> CloudError {
    let remedy = if snapshot.status == SnapshotStatus::ErrorDeleting {
        "an administrator has to find out why and reset its status to available or error"
    } else {
        ""
    };
    CloudError::SnapshotFailed {
        kind: ObjectKind::Snapshot,
        id: snapshot.id.to_string(),
        status: snapshot.status.to_string(),
        message: joined(&words(cx, snapshot.id.as_str()).await, remedy),
        removed: false,
    }
}

/// The volumes that were made from a snapshot.
async fn volumes_of_snapshot(cx: &Context, id: &SnapshotId) -> Result<String, CloudError> {
    let is_made = |volume: &Volume| volume.snapshot_id.as_deref() == Some(id.as_str());
    volumes_built_on(cx, id.as_str(), is_made).await
}

fn busy(snapshot: &Snapshot) -> CloudError {
    CloudError::Busy {
        kind: ObjectKind::Snapshot,
        id: snapshot.id.to_string(),
        status: snapshot.status.to_string(),
        wanted: "available or error",
    }
}

fn needed(id: &SnapshotId, dependents: String, message: &str) -> CloudError {
    CloudError::StillNeeded {
        kind: ObjectKind::Snapshot,
        id: id.to_string(),
        dependents: or_unknown(dependents),
        message: message.to_owned(),
    }
}
