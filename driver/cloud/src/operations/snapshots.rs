// SPDX-License-Identifier: Apache-2.0
//! Creates and deletes snapshots.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod temporary;

use tokio::time::Instant;

use crate::api::block_storage::Snapshot;
use crate::context::Context;
use crate::error::CloudError;
use crate::poll::schedule::Kind;
use crate::poll::{PollVerdict, Wait};

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
