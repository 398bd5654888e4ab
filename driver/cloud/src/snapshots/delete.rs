//! A snapshot by its id, until it is gone.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{PointInTime, ROUNDS, joined};
use crate::block_storage::{BlockStorage, Snapshot, SnapshotStatus, Volume};
use crate::cloud::Inner;
use crate::dependents::or_unknown;
use crate::error::{CloudError, ObjectKind};
use crate::ids::{BackupId, SnapshotId};
use crate::pace::Kind;
use crate::retry::jitter;
use crate::volumes::SETTLE_LIMIT;

impl Inner {
    /// See [`crate::Cloud::delete_point_in_time`].
    pub(crate) async fn delete_point_in_time(&self, id: &str) -> Result<(), CloudError> {
        let snapshot = SnapshotId::new(id);
        if !snapshot.is_uuid() {
            return Ok(());
        }
        // Looked at first: it alone tells whether it is one of several that go together only.
        let found = self.point_in_time(id).await?;
        let snapshot_found = match &found {
            Some(PointInTime::Snapshot(found)) => Some(found),
            Some(PointInTime::Backup(_)) => return self.delete_backup(&BackupId::new(id)).await,
            None => None,
        };
        if let Some(group) = snapshot_found.and_then(Snapshot::group) {
            return Err(CloudError::MemberOfGroup {
                group: group.to_owned(),
                snapshot,
            });
        }
        self.delete_snapshot(&snapshot).await?;
        if found.is_none() {
            // An API node whose database lags does not show what was just made: only the answer to its deletion says that it is not there.
            self.delete_backup(&BackupId::new(id)).await?;
        }
        Ok(())
    }

    /// Deletes a snapshot; one that is not there is deleted.
    pub(crate) async fn delete_snapshot(&self, id: &SnapshotId) -> Result<(), CloudError> {
        let cinder = BlockStorage::new(&self.transport);
        let deadline = Instant::now() + self.options.operation_timeout;
        let (mut rounds, mut missed) = (0, false);
        loop {
            rounds += 1;
            let started = Instant::now();
            let refusal = match cinder.delete_snapshot(id).await {
                Ok(answer) if answer.missing() => return Ok(()),
                Ok(_) => return self.wait_snapshot_gone(id, started, deadline).await,
                Err(error @ (CloudError::BadRequest(_) | CloudError::Conflict(_))) => error,
                Err(error) if error.is_uncertain() => error,
                Err(error) => return Err(error),
            };
            // Refused, or the answer was lost: the snapshot tells why.
            let Some(snapshot) = cinder.snapshot(id).await? else {
                if self.is_gone_unseen(refusal, rounds >= ROUNDS, &mut missed).await? {
                    return Ok(());
                }
                continue;
            };
            match &snapshot.status {
                SnapshotStatus::Deleting => {
                    return self.wait_snapshot_gone(id, started, deadline).await;
                }
                _ if snapshot.group_snapshot_id.is_some() && !refusal.is_uncertain() => {
                    return Err(CloudError::MemberOfGroup {
                        snapshot: snapshot.id,
                        group: snapshot.group_snapshot_id.unwrap_or_default(),
                    });
                }
                // Cinder takes no second deletion of it.
                SnapshotStatus::ErrorDeleting => return Err(self.snapshot_not_deleted(&snapshot).await),
                SnapshotStatus::Creating | SnapshotStatus::BackingUp if rounds < ROUNDS => {
                    let until = deadline.min(started + SETTLE_LIMIT);
                    let settled = self.settled_snapshot(Kind::Settle, &snapshot, started, until).await;
                    if let Err(error) = settled {
                        return Err(match error {
                            CloudError::Timeout { .. } => busy(&snapshot),
                            other => other,
                        });
                    }
                }
                SnapshotStatus::Creating | SnapshotStatus::BackingUp => return Err(busy(&snapshot)),
                _ if rounds < ROUNDS && refusal.is_uncertain() => {
                    sleep(jitter(Duration::from_secs(1), &self.options.sources)).await;
                }
                _ => {
                    let dependents = self.volumes_of_snapshot(id).await?;
                    return Err(if dependents.is_empty() {
                        refusal
                    } else {
                        needed(id, dependents, &refusal.to_string())
                    });
                }
            }
        }
    }

    async fn wait_snapshot_gone(&self, id: &SnapshotId, started: Instant, deadline: Instant) -> Result<(), CloudError> {
        let wait = crate::watch::Wait {
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
        let left = self.snapshots.until(wait, |now| match now {
            None => Some(Ok(None)),
            Some(now) if now.status == SnapshotStatus::Deleting => None,
            // As for volumes: the first look may show it as it was before the deletion.
            Some(now) if now.status == SnapshotStatus::Available && !std::mem::replace(&mut seen_available, true) => {
                None
            }
            Some(now) => Some(Ok(Some(now.clone()))),
        });
        let Some(snapshot) = left.await? else { return Ok(()) };
        if snapshot.status.is_error() {
            return Err(self.snapshot_not_deleted(&snapshot).await);
        }
        // The backend gave it back: something is built on it.
        let dependents = self.volumes_of_snapshot(id).await?;
        let message = self.words(id.as_str()).await;
        Err(needed(id, dependents, &message))
    }

    async fn snapshot_not_deleted(&self, snapshot: &Snapshot) -> CloudError {
        let remedy = if snapshot.status == SnapshotStatus::ErrorDeleting {
            "an administrator has to find out why and reset its status to available or error"
        } else {
            ""
        };
        CloudError::SnapshotFailed {
            kind: ObjectKind::Snapshot,
            id: snapshot.id.to_string(),
            status: snapshot.status.to_string(),
            message: joined(&self.words(snapshot.id.as_str()).await, remedy),
            removed: false,
        }
    }

    /// The volumes that were made from a snapshot.
    async fn volumes_of_snapshot(&self, id: &SnapshotId) -> Result<String, CloudError> {
        let is_made = |volume: &Volume| volume.snapshot_id.as_deref() == Some(id.as_str());
        self.volumes_built_on(id.as_str(), is_made).await
    }
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
