// SPDX-License-Identifier: Apache-2.0
//! Deletes a backup.

use tokio::time::Instant;

use crate::api::block_storage::{Backup, BackupStatus, BlockStorage};
use crate::context::Context;
use crate::error::text::names_text;
use crate::error::{CloudError, ObjectKind};
use crate::ids::BackupId;
use crate::operations::deletion::{
    Attempt, Deletable, NextStep, busy_error, delete, next_step_after, not_deleted_error,
};
use crate::operations::snapshots::temporary::thaw;
use crate::poll::schedule::Kind;
use crate::poll::{PollVerdict, Wait, Watch};
use crate::timing::TIMING;

/// Deletes a backup, and the snapshot that froze its data if it still exists. A missing one (404) counts as deleted.
pub(crate) async fn delete_backup(cx: &Context, id: &BackupId) -> Result<(), CloudError> {
    delete::<Backup>(cx, id).await
}

impl Deletable for Backup {
    const KIND: ObjectKind = ObjectKind::Backup;

    fn watch(cx: &Context) -> &Watch<Self> {
        &cx.backups
    }

    async fn request(cx: &Context, id: &BackupId, attempt: &mut Attempt) -> Result<NextStep, CloudError> {
        let cinder = BlockStorage::new(&cx.transport);
        // The backup is read first, because it alone names its source snapshot.
        let seen = cinder.backup(id).await?;
        if let Some(backup) = &seen {
            match &backup.status {
                BackupStatus::Deleting => {
                    thaw(cx, backup).await?;
                    return Ok(NextStep::Wait);
                }
                BackupStatus::ErrorDeleting => return Err(not_deleted_error(cx, backup, &backup.fail_reason).await),
                BackupStatus::Creating | BackupStatus::Restoring if !attempt.is_last => {
                    settle_backup(cx, backup, attempt.deadline).await?;
                    return Ok(NextStep::Retry);
                }
                BackupStatus::Creating | BackupStatus::Restoring => return Err(busy_error(backup)),
                _ if backup.has_dependent_backups => return Err(needed_backup(cx, backup, "").await),
                _ => {}
            }
            attempt.seen = Some(backup.status.to_string());
            // Before the backup, because only its metadata names the snapshot. If this process is killed in between,
            // the next call still finds both.
            thaw(cx, backup).await?;
        }
        let answer = cinder.delete_backup(id).await?;
        // The next read may show the backup and its snapshot.
        let is_unseen = seen.is_none() && !answer.missing() && !attempt.is_last;
        Ok(if is_unseen {
            NextStep::Retry
        } else {
            next_step_after(&answer)
        })
    }

    async fn resolve_refusal(
        self,
        cx: &Context,
        attempt: &Attempt,
        refusal: CloudError,
    ) -> Result<NextStep, CloudError> {
        if refusal.is_uncertain() && !attempt.is_last {
            return Ok(NextStep::Pause);
        }
        // An incremental backup may have been created since the read.
        if self.has_dependent_backups {
            return Err(needed_backup(cx, &self, &refusal.to_string()).await);
        }
        if attempt.is_last || attempt.seen.as_deref() == Some(self.status.as_str()) {
            return Err(refusal);
        }
        Ok(NextStep::Pause)
    }

    async fn remaining_error(self, cx: &Context, _started: Instant) -> Result<CloudError, CloudError> {
        Ok(not_deleted_error(cx, &self, &self.fail_reason).await)
    }
}

/// Waits a bounded time for the end of a backup's creation or restore.
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
        Some(now) if now.status == passing => PollVerdict::Pending,
        _ => PollVerdict::Done(Ok(())),
    });
    settled.await.map_err(|error| match error {
        CloudError::Timeout { .. } => busy_error(backup),
        other => other,
    })
}

/// Names the incremental backups between this one and the next full one. Cinder does not show the chain itself.
async fn needed_backup(cx: &Context, backup: &Backup, message: &str) -> CloudError {
    let cinder = BlockStorage::new(&cx.transport);
    let all = cinder.backups_of(&backup.volume_id, Some).await;
    let dependents = all.map(|all| dependents(backup, all)).unwrap_or_default();
    CloudError::StillNeeded {
        kind: ObjectKind::Backup,
        id: backup.id.to_string(),
        dependents: if dependents.is_empty() {
            "incremental backups that Cinder does not name are built on it".to_owned()
        } else {
            let names = dependents
                .iter()
                .map(|backup| format!("incremental backup {} ({})", backup.name, backup.id));
            names_text(names)
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
    fn backup_dependents_end_at_next_full_backup() {
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
