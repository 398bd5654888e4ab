// SPDX-License-Identifier: Apache-2.0
//! A backup by its id, until it is gone, and never before those that are built on it.

use tokio::time::{Instant, sleep};

use crate::api::block_storage::{Backup, BackupStatus, BlockStorage};
use crate::context::Context;
use crate::error::{CloudError, ObjectKind};
use crate::http::retry::jitter;
use crate::ids::BackupId;
use crate::operations::backups::create::wait_backup_gone;
use crate::operations::backups::thaw;
use crate::operations::snapshots::{ROUNDS, joined, words};
use crate::poll::Wait;
use crate::poll::schedule::Kind;
use crate::timing::TIMING;

/// Deletes a backup, and the snapshot that froze its data if that is still there. One that is not there is deleted.
pub(crate) async fn delete_backup(cx: &Context, id: &BackupId) -> Result<(), CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    let deadline = Instant::now() + cx.options.operation_timeout;
    let (mut rounds, mut missed) = (0, false);
    loop {
        rounds += 1;
        // Looked at first: it alone tells which snapshot it was made from.
        let seen = cinder.backup(id).await?;
        if let Some(backup) = &seen {
            match &backup.status {
                BackupStatus::Deleting => {
                    thaw(cx, backup).await?;
                    return wait_backup_gone(cx, id, deadline).await;
                }
                BackupStatus::ErrorDeleting => return Err(backup_not_deleted(cx, backup).await),
                BackupStatus::Creating | BackupStatus::Restoring if rounds < ROUNDS => {
                    settle_backup(cx, backup, deadline).await?;
                    continue;
                }
                BackupStatus::Creating | BackupStatus::Restoring => return Err(busy(backup)),
                _ if backup.has_dependent_backups => return Err(needed_backup(cx, backup, "").await),
                _ => {}
            }
            // Before the backup, whose metadata alone names it: after a kill in between the next call still sees the backup.
            thaw(cx, backup).await?;
        }
        let refusal = match cinder.delete_backup(id).await {
            // As for volumes: this tells, or two looks.
            Ok(answer) if answer.missing() => return Ok(()),
            // Its snapshot is still to be found.
            Ok(_) if seen.is_none() && rounds < ROUNDS => continue,
            Ok(_) => return wait_backup_gone(cx, id, deadline).await,
            Err(error @ (CloudError::BadRequest(_) | CloudError::Conflict(_))) => error,
            Err(error) if error.is_uncertain() => error,
            Err(error) => return Err(error),
        };
        if rounds >= ROUNDS {
            return Err(refusal);
        }
        if refusal.is_uncertain() && seen.is_none() && std::mem::replace(&mut missed, true) {
            return Ok(());
        }
        if !refusal.is_uncertain() {
            // An incremental one may have come since the look.
            match cinder.backup(id).await? {
                Some(now) if now.has_dependent_backups => {
                    return Err(needed_backup(cx, &now, &refusal.to_string()).await);
                }
                Some(now) if seen.as_ref().is_some_and(|seen| now.status == seen.status) => return Err(refusal),
                _ => {}
            }
        }
        sleep(jitter(TIMING.deletion_retry, &cx.options.sources)).await;
    }
}

/// Waits until a backup is no longer made or restored, for a while.
async fn settle_backup(cx: &Context, backup: &Backup, deadline: Instant) -> Result<(), CloudError> {
    let started = Instant::now();
    let wait = Wait {
        kind: Kind::Settle,
        id: &backup.id,
        name: None,
        status: Some(backup.status.clone()),
        started,
        deadline: deadline.min(started + TIMING.settle_timeout),
        at_most_every: None,
        what: format!("backup {}", backup.id),
    };
    let passing = backup.status.clone();
    let settled = cx.backups.until(wait, |now| match now {
        Some(now) if now.status == passing => None,
        _ => Some(Ok(())),
    });
    settled.await.map_err(|error| match error {
        CloudError::Timeout { .. } => busy(backup),
        other => other,
    })
}

pub(super) async fn backup_not_deleted(cx: &Context, backup: &Backup) -> CloudError {
    let words = joined(&backup.fail_reason, &words(cx, backup.id.as_str()).await);
    let remedy = if backup.status == BackupStatus::ErrorDeleting {
        "an administrator has to find out why and reset its status to available or error"
    } else {
        ""
    };
    CloudError::SnapshotFailed {
        kind: ObjectKind::Backup,
        id: backup.id.to_string(),
        status: backup.status.to_string(),
        message: joined(&words, remedy),
        removed: false,
    }
}

/// Names the incremental backups that come after this one, up to the next full one. Cinder does not tell the chain itself.
async fn needed_backup(cx: &Context, backup: &Backup, message: &str) -> CloudError {
    let filter = [("volume_id", backup.volume_id.to_string())];
    let all = BlockStorage::new(&cx.transport).backups(&filter).await;
    let dependents = all.map(|all| dependents(backup, all)).unwrap_or_default();
    CloudError::StillNeeded {
        kind: ObjectKind::Backup,
        id: backup.id.to_string(),
        dependents: if dependents.is_empty() {
            "incremental backups that Cinder does not name are built on it".to_owned()
        } else {
            let names: Vec<String> = dependents
                .iter()
                .map(|backup| format!("incremental backup {} ({})", backup.name, backup.id))
                .collect();
            names.join(", ")
        },
        message: message.to_owned(),
    }
}

fn dependents(backup: &Backup, mut all: Vec<Backup>) -> Vec<Backup> {
    let moment = |backup: &Backup| {
        backup
            .data_timestamp
            .clone()
            .unwrap_or_else(|| backup.created_at.clone())
    };
    all.retain(|other| other.volume_id == backup.volume_id && other.id != backup.id && moment(other) >= moment(backup));
    all.sort_by_key(|backup| (moment(backup), backup.created_at.clone()));
    all.into_iter().take_while(|other| other.is_incremental).collect()
}

fn busy(backup: &Backup) -> CloudError {
    CloudError::Busy {
        kind: ObjectKind::Backup,
        id: backup.id.to_string(),
        status: backup.status.to_string(),
        wanted: "available or error",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn backup(id: &str, at: &str, incremental: bool) -> Backup {
        serde_json::from_value(json!({
            "id": id, "name": id, "status": "available", "volume_id": "v", "size": 1, "data_timestamp": at, "is_incremental": incremental,
        }))
        .expect("a backup")
    }

    #[test]
    fn what_is_built_on_a_backup_are_the_incremental_ones_up_to_the_next_full_one() {
        let all = vec![
            backup("4", "2026-01-04T00:00:00.000000", false),
            backup("5", "2026-01-05T00:00:00.000000", true),
            backup("3", "2026-01-03T00:00:00.000000", true),
            backup("2", "2026-01-02T00:00:00.000000", true),
            backup("1", "2026-01-01T00:00:00.000000", false),
        ];
        let ids = |of: usize| -> Vec<String> {
            let found = dependents(&all[of], all.clone());
            found.iter().map(|backup| backup.id.to_string()).collect()
        };
        assert_eq!(ids(4), ["2", "3"]);
        assert_eq!(ids(3), ["3"]);
        assert_eq!(ids(2), [""; 0]);
        assert_eq!(ids(0), ["5"]);
    }
}
