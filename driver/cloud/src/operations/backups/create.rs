// SPDX-License-Identifier: Apache-2.0
//! Creates a backup, or adopts the one that an earlier attempt created under the same name.
//!
//! The creation does not wait for the end of the backup, so a caller gets the id before a failure is known. Callers
//! store the first id that they get, so a backup with a known id is never replaced.

use tokio::time::Instant;

use crate::api::block_storage::{Backup, BackupStatus, BlockStorage, NewBackup, NewSnapshot, Snapshot, SnapshotStatus};
use crate::context::Context;
use crate::error::{CloudError, ObjectKind};
use crate::ids::BackupId;
use crate::metadata_keys::{self, CLUSTER};
use crate::operations::ROUNDS;
use crate::operations::clusters::other_cluster;
use crate::operations::creation::{find_after_uncertain_creation, is_from_request};
use crate::operations::deletion::{final_if_removed, remove_remains, wait_deleted};
use crate::operations::messages::{cinder_messages, join_texts};
use crate::operations::snapshots::create::create_snapshot;
use crate::operations::snapshots::temporary::thaw;
use crate::poll::schedule::Kind;
use crate::poll::{PollVerdict, Wait};

/// How often the id of a failed backup is returned before its failure. Each response may be lost.
const ANSWERS_OF_FAILED: u32 = 3;

/// See [`crate::Cloud::create_backup`].
pub(crate) async fn create_backup(cx: &Context, new: &NewBackup) -> Result<Backup, CloudError> {
    let created = find_or_create(cx, new).await?;
    cx.note_created(created.id.as_str());
    Ok(created)
}

async fn find_or_create(cx: &Context, new: &NewBackup) -> Result<Backup, CloudError> {
    if !new.volume_id.is_uuid() {
        return Err(CloudError::no_volume(&new.volume_id));
    }
    let cinder = BlockStorage::new(&cx.transport);
    let deadline = Instant::now() + cx.options.operation_timeout;
    let mut rounds = 0;
    loop {
        rounds += 1;
        let Some(found) = find_backup(cx, new).await? else {
            let id = request_backup(cx, new).await?;
            let created = match cinder.backup(&id).await? {
                Some(created) => created,
                None => wait_shown(cx, &id, deadline).await?,
            };
            if created.status == BackupStatus::Error {
                return Err(remove_failed(cx, &created).await);
            }
            return finish_creation(cx, created).await;
        };
        if found.volume_id != new.volume_id {
            return Err(CloudError::SnapshotExists {
                kind: ObjectKind::Backup,
                id: found.id.to_string(),
                name: new.name.clone(),
                difference: format!("it is one of volume {}, not of {}", found.volume_id, new.volume_id),
            });
        }
        if let Some(difference) = other_cluster(found.metadata.get(CLUSTER), new.metadata.get(CLUSTER)) {
            return Err(CloudError::SnapshotExists {
                kind: ObjectKind::Backup,
                id: found.id.to_string(),
                name: new.name.clone(),
                difference,
            });
        }
        match &found.status {
            BackupStatus::Deleting if rounds < ROUNDS => {
                wait_deleted::<Backup>(cx, &found.id, Instant::now(), deadline).await?;
            }
            BackupStatus::Error if is_ours(&found, new) => return return_failed_backup(cx, found).await,
            _ => return finish_creation(cx, found).await,
        }
    }
}

/// Waits until Cinder shows a new backup. An API node with a lagging database answers 404 at first.
async fn wait_shown(cx: &Context, id: &BackupId, deadline: Instant) -> Result<Backup, CloudError> {
    let wait = Wait {
        kind: Kind::Create,
        id,
        name: None,
        status: Some(BackupStatus::Creating),
        started: Instant::now(),
        deadline,
        at_most_every: None,
        what: format!("backup {id}"),
    };
    let shown = cx.backups.until(wait, |backup| match backup {
        None => PollVerdict::Unchanged(Err(no_backup(id))),
        Some(backup) => PollVerdict::Done(Ok(backup.clone())),
    });
    shown.await
}

/// Returns a complete or pending backup, and removes the temporary snapshot of a complete one. A failed backup is an
/// error.
async fn finish_creation(cx: &Context, backup: Backup) -> Result<Backup, CloudError> {
    if backup.status.is_complete() {
        if let Err(error) = thaw(cx, &backup).await {
            tracing::warn!(%error, backup = %backup.id, "the temporary snapshot of a complete backup remains until the backup is deleted");
        }
        return Ok(backup);
    }
    if backup.status == BackupStatus::Creating {
        return Ok(backup);
    }
    Err(creation_error(cx, &backup, "it stays".to_owned()).await)
}

/// Removes a backup that failed before a caller knew its id.
async fn remove_failed(cx: &Context, backup: &Backup) -> CloudError {
    let removal = remove_remains::<Backup>(cx, &backup.id).await;
    creation_error(cx, backup, removal.err().unwrap_or_default()).await
}

/// The error about a failed backup, with Cinder's messages and the result of the removal. `removal` is empty if it was
/// removed.
async fn creation_error(cx: &Context, backup: &Backup, removal: String) -> CloudError {
    let messages = join_texts(&backup.fail_reason, &cinder_messages(cx, backup.id.as_str()).await);
    CloudError::SnapshotFailed {
        kind: ObjectKind::Backup,
        id: backup.id.to_string(),
        status: backup.status.to_string(),
        removed: removal.is_empty(),
        message: join_texts(&messages, &removal),
    }
}

/// Handles a backup of this driver that failed after a caller may have received its id. The error ends any retry of
/// that caller, so the caller must know the id by then. Therefore the next calls return the id again, as incomplete, in
/// case no earlier response arrived.
async fn return_failed_backup(cx: &Context, mut backup: Backup) -> Result<Backup, CloudError> {
    if let Err(error) = thaw(cx, &backup).await {
        tracing::warn!(%error, backup = %backup.id, "the snapshot of a backup that failed stays until the backup is deleted");
    }
    let answered = backup.metadata.get(metadata_keys::FAILURE_SEEN);
    let answered = answered.map_or(0, |count| count.parse().unwrap_or(1_u32));
    if answered >= ANSWERS_OF_FAILED {
        let messages = join_texts(&backup.fail_reason, &cinder_messages(cx, backup.id.as_str()).await);
        return Err(CloudError::Broken {
            kind: ObjectKind::Backup,
            id: backup.id.to_string(),
            status: backup.status.to_string(),
            message: join_texts(&messages, "delete it and make another"),
        });
    }
    tracing::warn!(backup = %backup.id, name = %backup.name, reason = backup.fail_reason, "a backup failed after its id was answered");
    backup
        .metadata
        .insert(metadata_keys::FAILURE_SEEN.to_owned(), (answered + 1).to_string());
    let cinder = BlockStorage::new(&cx.transport);
    if let Err(error) = cinder.set_backup_metadata(&backup.id, &backup.metadata).await {
        // The id is a valid response in any case.
        tracing::warn!(%error, backup = %backup.id, "that a backup failed is not answered yet, for its mark could not be written");
    }
    Ok(backup)
}

/// Finds the backup with which the creation continues, by its name.
async fn find_backup(cx: &Context, new: &NewBackup) -> Result<Option<Backup>, CloudError> {
    let named = BlockStorage::new(&cx.transport).backups_named(&new.name).await?;
    Ok(named.into_iter().min_by_key(|backup| {
        let rank = match &backup.status {
            status if status.is_complete() => 0,
            BackupStatus::Creating => 1,
            BackupStatus::Deleting => 2,
            _ => 3,
        };
        let other = backup.volume_id != new.volume_id;
        (other, rank, backup.created_at.clone(), backup.id.clone())
    }))
}

/// Freezes the data in a snapshot and requests a backup of it.
async fn request_backup(cx: &Context, new: &NewBackup) -> Result<BackupId, CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    let frozen = freeze(cx, new).await?;
    let mut answer = cinder.create_backup(new, &frozen.id).await;
    if let Err(CloudError::BadRequest(failure)) = &answer
        && new.incremental
        && failure.fault.contains("No backups available")
    {
        tracing::info!(volume = %new.volume_id, name = %new.name, "making a full backup: there is none yet that an incremental one could be built on");
        let full = NewBackup {
            incremental: false,
            ..new.clone()
        };
        answer = cinder.create_backup(&full, &frozen.id).await;
    }
    let error = match answer {
        Ok(Some(id)) => return Ok(id),
        // 404.
        Ok(None) => CloudError::no_volume(&new.volume_id),
        Err(CloudError::Server(failure)) if failure.fault.contains("cinder-backup") => CloudError::NoBackups(failure),
        Err(error) if error.is_uncertain() => {
            // The snapshot is not removed, because the backup may be read from it. The next call finds both by name.
            let find = || async {
                let found = find_backup(cx, new).await?;
                Ok(found
                    .filter(|found| found.volume_id == new.volume_id)
                    .map(|found| found.id))
            };
            return find_after_uncertain_creation(cx, ObjectKind::Backup, &new.name, error, find).await;
        }
        // Another process may continue with the snapshot.
        Err(error @ CloudError::Unawaited(_)) => return Err(error),
        Err(error) => error,
    };
    let removal = remove_remains::<Snapshot>(cx, &frozen.id).await;
    Err(final_if_removed(error, ObjectKind::Snapshot, &frozen.id, removal))
}

/// Creates the temporary snapshot, and waits until it is complete. This fixes the moment of the backup.
async fn freeze(cx: &Context, new: &NewBackup) -> Result<Snapshot, CloudError> {
    let mut metadata = new.metadata.clone();
    metadata.insert(metadata_keys::TEMPORARY_FOR.to_owned(), truncate_name(&new.name));
    let snapshot = NewSnapshot {
        name: new.name.clone(),
        volume_id: new.volume_id.clone(),
        force: true,
        description: format!("Freezes the data for backup {}", new.name),
        metadata,
    };
    let frozen = create_snapshot(cx, &snapshot).await?;
    if frozen.status == SnapshotStatus::Available {
        return Ok(frozen);
    }
    Err(CloudError::Busy {
        kind: ObjectKind::Snapshot,
        id: frozen.id.to_string(),
        status: frozen.status.to_string(),
        wanted: "available",
    })
}

/// Whether this request, or an earlier attempt at it, created the backup.
fn is_ours(backup: &Backup, new: &NewBackup) -> bool {
    is_from_request((&backup.name, &backup.metadata), (&new.name, &new.metadata))
}

fn no_backup(id: &BackupId) -> CloudError {
    CloudError::NotFound {
        kind: ObjectKind::Backup,
        id: id.to_string(),
        request_id: None,
    }
}

/// Truncates a name to the length of a metadata value.
fn truncate_name(name: &str) -> String {
    name.chars().take(metadata_keys::LONGEST_VALUE).collect()
}
