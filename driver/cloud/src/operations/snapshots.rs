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
use crate::poll::{Verdict, Wait};

/// How often a request is made anew after the obstacle to it has gone.
pub(crate) const ROUNDS: u32 = 5;

/// The frozen data of a volume: a snapshot beside it, or a backup away from it. Their ids are of one kind.
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

    /// The volume that it is one of.
    pub fn volume(&self) -> &VolumeId {
        match self {
            Self::Snapshot(snapshot) => &snapshot.volume_id,
            Self::Backup(backup) => &backup.volume_id,
        }
    }

    /// Whether a volume can be made from it.
    pub fn is_complete(&self) -> bool {
        match self {
            Self::Snapshot(snapshot) => snapshot.status.is_complete(),
            Self::Backup(backup) => backup.status.is_complete(),
        }
    }

    /// Whether it is being made.
    pub fn is_coming(&self) -> bool {
        match self {
            Self::Snapshot(snapshot) => snapshot.status == SnapshotStatus::Creating,
            Self::Backup(backup) => backup.status == BackupStatus::Creating,
        }
    }

    /// Its error status, where it has failed.
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

/// The snapshot or the backup of this id.
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

/// Cinder's messages about a volume, a snapshot or a backup. Never fails: they only add to an error.
pub(crate) async fn words(cx: &Context, id: &str) -> String {
    let words = BlockStorage::new(&cx.transport).messages(id).await;
    words.unwrap_or_else(|error| {
        tracing::debug!(%error, id, "Cinder's messages could not be read");
        String::new()
    })
}

/// The snapshot when it has left the status in which it was seen; `None` when it is gone.
pub(crate) async fn settled_snapshot(
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
            None => Verdict::Unchanged(Ok(None)),
            Some(now) if now.status == passing => Verdict::Pending,
            Some(now) => Verdict::Done(Ok(Some(now.clone()))),
        })
        .await
}

/// `text; more`, or whichever is not empty.
pub(crate) fn joined(text: &str, more: &str) -> String {
    [text, more]
        .into_iter()
        .filter(|text| !text.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}
