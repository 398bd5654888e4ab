// SPDX-License-Identifier: Apache-2.0
//! Creates a snapshot, or adopts the one that an earlier attempt created under the same name.

use tokio::time::Instant;

use super::wait_snapshot_settled;
use crate::api::block_storage::{BlockStorage, NewSnapshot, Snapshot, SnapshotStatus, VolumeStatus};
use crate::context::Context;
use crate::error::{CloudError, ObjectKind};
use crate::metadata_keys::{self, CLUSTER};
use crate::operations::ROUNDS;
use crate::operations::clusters::other_cluster;
use crate::operations::creation::{find_after_uncertain_creation, is_from_request};
use crate::operations::deletion::remove_remains;
use crate::operations::messages::{cinder_messages, join_texts};
use crate::operations::snapshots::delete::delete_snapshot;
use crate::operations::volumes::{pending_work_conflict, settle};
use crate::poll::schedule::Kind;

/// See [`crate::Cloud::create_snapshot`].
pub(crate) async fn create_snapshot(cx: &Context, new: &NewSnapshot) -> Result<Snapshot, CloudError> {
    let created = find_or_create(cx, new).await?;
    cx.note_created(created.id.as_str());
    Ok(created)
}

async fn find_or_create(cx: &Context, new: &NewSnapshot) -> Result<Snapshot, CloudError> {
    if !new.volume_id.is_uuid() {
        return Err(CloudError::no_volume(&new.volume_id));
    }
    let deadline = Instant::now() + cx.options.operation_timeout;
    let mut rounds = 0;
    loop {
        rounds += 1;
        let started = Instant::now();
        let Some(found) = find_snapshot(cx, new).await? else {
            match request_snapshot(cx, new, deadline, rounds).await? {
                Some(snapshot) => return wait_snapshot(cx, new, snapshot, started).await,
                None => continue,
            }
        };
        if found.volume_id != new.volume_id {
            return Err(CloudError::SnapshotExists {
                kind: ObjectKind::Snapshot,
                id: found.id.to_string(),
                name: new.name.clone(),
                difference: format!("it is one of volume {}, not of {}", found.volume_id, new.volume_id),
            });
        }
        if let Some(difference) = other_cluster(found.metadata.get(CLUSTER), new.metadata.get(CLUSTER)) {
            return Err(CloudError::SnapshotExists {
                kind: ObjectKind::Snapshot,
                id: found.id.to_string(),
                name: new.name.clone(),
                difference,
            });
        }
        match &found.status {
            SnapshotStatus::Creating => return wait_snapshot(cx, new, found, started).await,
            SnapshotStatus::Deleting if rounds < ROUNDS => {
                wait_snapshot_settled(cx, Kind::Delete, &found, started, deadline).await?;
            }
            SnapshotStatus::Error if rounds < ROUNDS && is_ours(&found, new) => {
                tracing::warn!(snapshot = %found.id, name = %new.name, "removing a snapshot that failed in an earlier creation");
                delete_snapshot(cx, &found.id).await?;
            }
            status if status.is_error() || *status == SnapshotStatus::Deleting => {
                return Err(CloudError::SnapshotFailed {
                    kind: ObjectKind::Snapshot,
                    status: status.to_string(),
                    message: cinder_messages(cx, found.id.as_str()).await,
                    id: found.id.to_string(),
                    removed: false,
                });
            }
            _ => return Ok(found),
        }
    }
}

/// Finds the snapshot with which the creation continues. Cinder's filter is exact, and the name is compared again here.
/// A temporary snapshot has the name of its backup, and matches only if a temporary snapshot is requested.
async fn find_snapshot(cx: &Context, new: &NewSnapshot) -> Result<Option<Snapshot>, CloudError> {
    let temporary = new.metadata.get(metadata_keys::TEMPORARY_FOR);
    let is_same_kind = |snapshot: &Snapshot| snapshot.metadata.get(metadata_keys::TEMPORARY_FOR) == temporary;
    let cinder = BlockStorage::new(&cx.transport);
    let named = cinder.snapshots_named(&new.name, is_same_kind).await?;
    Ok(named.into_iter().min_by_key(|snapshot| {
        let rank = match &snapshot.status {
            status if status.is_complete() => 0,
            SnapshotStatus::Creating => 1,
            SnapshotStatus::Deleting => 2,
            _ => 3,
        };
        // A snapshot of another volume is only relevant without a better one.
        let other = snapshot.volume_id != new.volume_id;
        (other, rank, snapshot.created_at.clone(), snapshot.id.clone())
    }))
}

/// Requests the snapshot. `None` if an obstacle disappeared, and the caller has to start again.
async fn request_snapshot(
    cx: &Context,
    new: &NewSnapshot,
    deadline: Instant,
    rounds: u32,
) -> Result<Option<Snapshot>, CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    let refusal = match cinder.create_snapshot(new).await {
        Ok(Some(snapshot)) => return Ok(Some(snapshot)),
        // 404.
        Ok(None) => return Err(CloudError::no_volume(&new.volume_id)),
        Err(error) if error.is_uncertain() => {
            let is_requested = |found: &Snapshot| is_ours(found, new) && found.volume_id == new.volume_id;
            let find = || async { Ok(find_snapshot(cx, new).await?.filter(is_requested)) };
            let found = find_after_uncertain_creation(cx, ObjectKind::Snapshot, &new.name, error, find).await;
            return found.map(Some);
        }
        Err(error) if error.is_refused() => error,
        Err(error) => return Err(error),
    };
    let Some(volume) = cinder.volume(&new.volume_id).await? else {
        return Err(CloudError::no_volume(&new.volume_id));
    };
    if volume.status.is_transition() && volume.status != VolumeStatus::Deleting && rounds < ROUNDS {
        settle(cx, &volume, deadline, format!("volume {}", volume.id)).await?;
        return Ok(None);
    }
    if let Some(passing) = pending_work_conflict(&volume, &refusal) {
        return Err(passing);
    }
    // A 409 is temporary, a 400 for a volume in the wrong status is not. For an available volume, a 400 concerns the
    // request itself.
    let failure = match refusal {
        CloudError::BadRequest(failure) if volume.status != VolumeStatus::Available => failure,
        refusal => return Err(refusal),
    };
    Err(CloudError::SnapshotRefused {
        volume: volume.id,
        status: volume.status.to_string(),
        failure,
    })
}

/// Waits for the end of the creation.
async fn wait_snapshot(
    cx: &Context,
    new: &NewSnapshot,
    snapshot: Snapshot,
    started: Instant,
) -> Result<Snapshot, CloudError> {
    let now = if snapshot.status == SnapshotStatus::Creating {
        let deadline = started + cx.options.operation_timeout;
        let settled = wait_snapshot_settled(cx, Kind::Create, &snapshot, started, deadline).await?;
        settled.ok_or_else(|| CloudError::NotFound {
            kind: ObjectKind::Snapshot,
            id: snapshot.id.to_string(),
            request_id: None,
        })?
    } else {
        snapshot
    };
    if !now.status.is_error() {
        return Ok(now);
    }
    let message = cinder_messages(cx, now.id.as_str()).await;
    let removal = if is_ours(&now, new) {
        remove_remains::<Snapshot>(cx, &now.id).await.err().unwrap_or_default()
    } else {
        "another caller created it; not deleted".to_owned()
    };
    Err(CloudError::SnapshotFailed {
        kind: ObjectKind::Snapshot,
        id: now.id.to_string(),
        status: now.status.to_string(),
        removed: removal.is_empty(),
        message: join_texts(&message, &removal),
    })
}

/// Whether this request, or an earlier attempt at it, created the snapshot.
fn is_ours(snapshot: &Snapshot, new: &NewSnapshot) -> bool {
    is_from_request((&snapshot.name, &snapshot.metadata), (&new.name, &new.metadata))
}
