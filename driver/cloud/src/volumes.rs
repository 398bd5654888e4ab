//! Creation and deletion, each to its end.

mod create;
mod delete;
mod expand;
mod judge;
mod source;

use std::time::Duration;

use tokio::time::Instant;

use crate::block_storage::{BlockStorage, Volume};
use crate::cloud::Inner;
use crate::error::CloudError;
use crate::ids::VolumeId;
use crate::pace::Kind;
use crate::watch::Wait;

/// How often a request is made anew after the obstacle to it has gone.
const ROUNDS: u32 = 5;
/// How long an operation that somebody else began may stand in the way.
pub(crate) const SETTLE_LIMIT: Duration = Duration::from_mins(2);

impl Inner {
    /// What Cinder tells users about a failed volume. Never fails: it only adds to an error.
    pub(crate) async fn message(&self, id: &VolumeId) -> String {
        BlockStorage::new(&self.transport)
            .messages(id.as_str())
            .await
            .unwrap_or_else(|error| {
                tracing::debug!(%error, volume = %id, "Cinder's messages about the volume could not be read");
                String::new()
            })
    }

    /// Waits until the volume has left the state of transition in which it was seen; bounded by [`SETTLE_LIMIT`], too.
    pub(crate) async fn settle(
        &self,
        volume: &Volume,
        deadline: Instant,
        what: String,
    ) -> Result<Option<Volume>, CloudError> {
        let started = Instant::now();
        let wait = Wait {
            kind: Kind::Settle,
            id: &volume.id,
            name: None,
            status: Some(volume.status.clone()),
            started,
            deadline: deadline.min(started + SETTLE_LIMIT),
            at_most_every: None,
            what,
        };
        self.watch
            .until(wait, |now| match now {
                Some(now) if now.status.is_transition() => None,
                other => Some(Ok(other.cloned())),
            })
            .await
    }
}
