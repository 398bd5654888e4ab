// SPDX-License-Identifier: Apache-2.0
//! Creates, adopts and reads snapshots, and the backups that are CSI snapshots.

pub(crate) mod create;

use tokio::time::Instant;

use crate::api::block_storage::{Backup, BackupStatus, BlockStorage, Snapshot, SnapshotStatus};
use crate::context::Context;
use crate::error::CloudError;
use crate::ids::{BackupId, SnapshotId, VolumeId};
use crate::metadata_keys;
use crate::poll::schedule::Kind;
use crate::poll::{PollVerdict, Wait};

/// The maximum number of requests of one operation. A request is repeated after its obstacle has disappeared.
pub(crate) const ROUNDS: u32 = 5;

/// The frozen data of a volume: a snapshot in the same backend, or a backup in another store. Both have ids of the same
/// form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PointInTime {
    Snapshot(Snapshot),
    Backup(Backup),
}

impl PointInTime {
    pub fn id(&self) -> &str {
        match self {
            Self::Snapshot(snapshot) => snapshot.id.as_str(),
            Self::Backup(backup) => backup.id.as_str(),
        }
    }

    /// The volume from which it was taken.
    pub fn volume(&self) -> &VolumeId {
        match self {
            Self::Snapshot(snapshot) => &snapshot.volume_id,
            Self::Backup(backup) => &backup.volume_id,
        }
    }

    /// Whether a volume can be created from it.
    pub fn is_complete(&self) -> bool {
        match self {
            Self::Snapshot(snapshot) => snapshot.status.is_complete(),
            Self::Backup(backup) => backup.status.is_complete(),
        }
    }

    pub fn is_coming(&self) -> bool {
        match self {
            Self::Snapshot(snapshot) => snapshot.status == SnapshotStatus::Creating,
            Self::Backup(backup) => backup.status == BackupStatus::Creating,
        }
    }

    /// The error status, if it has failed.
    pub fn failed(&self) -> Option<&str> {
        match self {
            Self::Snapshot(snapshot) => snapshot.status.is_error().then(|| snapshot.status.as_str()),
            Self::Backup(backup) => backup.status.is_error().then(|| backup.status.as_str()),
        }
    }
}

/// Whether a snapshot only freezes the data for a backup.
pub(crate) fn is_temporary(snapshot: &Snapshot) -> bool {
    snapshot.metadata.contains_key(metadata_keys::TEMPORARY_FOR)
}

/// Gets the snapshot or the backup of this id. `None` if Cinder answers 404 for both.
pub(crate) async fn point_in_time(cx: &Context, id: &str) -> Result<Option<PointInTime>, CloudError> {
    let snapshot = SnapshotId::new(id);
    if !snapshot.is_uuid() {
        return Ok(None);
    }
    let cinder = BlockStorage::new(&cx.transport);
    if let Some(snapshot) = cinder.snapshot(&snapshot).await? {
        return Ok(Some(PointInTime::Snapshot(snapshot)));
    }
    Ok(cinder.backup(&BackupId::new(id)).await?.map(PointInTime::Backup))
}

/// Cinder's messages about a volume, a snapshot or a backup. Never fails, because they only supplement an error.
pub(crate) async fn cinder_messages(cx: &Context, id: &str) -> String {
    let messages = BlockStorage::new(&cx.transport).messages(id).await;
    messages.unwrap_or_else(|error| {
        tracing::debug!(%error, id, "Cinder's messages could not be read");
        String::new()
    })
}

/// Waits until the snapshot has another status than now; `None` if it is deleted (404).
pub(crate) async fn wait_snapshot_settled(
    cx: &Context,
    kind: Kind,
    snapshot: &Snapshot,
    started: Instant,
    deadline: Instant,
) -> Result<Option<Snapshot>, CloudError> {
    let wait = Wait {
        kind,
        id: &snapshot.id,
        name: Some(&snapshot.name),
        status: Some(snapshot.status.clone()),
        started,
        deadline,
        at_most_every: None,
        what: format!("snapshot {} of volume {}", snapshot.id, snapshot.volume_id),
    };
    let passing = snapshot.status.clone();
    cx.snapshots
        .until(wait, |now| match now {
            None => PollVerdict::Unchanged(Ok(None)),
            Some(now) if now.status == passing => PollVerdict::Pending,
            Some(now) => PollVerdict::Done(Ok(Some(now.clone()))),
        })
        .await
}

/// Joins the texts that are not empty with `; `.
pub(crate) fn join_texts(text: &str, more: &str) -> String {
    [text, more]
        .into_iter()
        .filter(|text| !text.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}
