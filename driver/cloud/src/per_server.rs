//! What goes by server: turns at asking Nova to attach, and Nova's records, asked for once for all that want to know.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use crate::compute::Compute;
use crate::error::CloudError;
use crate::ids::{ServerId, VolumeId};
use crate::transport::Transport;

/// A lock per server that exists while somebody holds or wants it.
#[derive(Debug)]
struct Locks<T> {
    servers: Mutex<HashMap<ServerId, Arc<tokio::sync::Mutex<T>>>>,
}

impl<T> Default for Locks<T> {
    fn default() -> Self {
        Self {
            servers: Mutex::default(),
        }
    }
}

impl<T: Default> Locks<T> {
    fn of(&self, server: &ServerId) -> Arc<tokio::sync::Mutex<T>> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(servers.entry(server.clone()).or_default())
    }
}

/// One request to attach at a time per server: Nova does them one by one anyway, and those that wait there longest fail.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    locks: Locks<()>,
}

impl Turns {
    pub(crate) async fn take(&self, server: &ServerId) -> OwnedMutexGuard<()> {
        self.locks.of(server).lock_owned().await
    }
}

/// Nova's records of the volumes at a server, and when they were asked for.
type Known = Option<(Instant, HashSet<VolumeId>)>;

/// Nova's records. Whoever asks alone costs one small request; those who ask about one server at the same time share a list.
#[derive(Debug, Default)]
pub(crate) struct Records {
    locks: Locks<Known>,
}

impl Records {
    /// Whether Nova has a record of the volume at the server, as of now or later. No server, no record.
    pub(crate) async fn has(
        &self,
        transport: &Transport,
        server: &ServerId,
        volume: &VolumeId,
    ) -> Result<bool, CloudError> {
        let nova = Compute::new(transport);
        let asked = Instant::now();
        let lock = self.locks.of(server);
        if let Ok(_alone) = lock.try_lock() {
            return Ok(nova.attachment(server, volume).await?.is_some());
        }
        let mut known = lock.lock().await;
        // A list that was asked for after this question came up answers it.
        if let Some((_, volumes)) = known.as_ref().filter(|(at, _)| *at >= asked) {
            return Ok(volumes.contains(volume));
        }
        let at = Instant::now();
        let volumes: HashSet<VolumeId> = nova.attachments(server).await?.into_iter().collect();
        let has = volumes.contains(volume);
        *known = Some((at, volumes));
        Ok(has)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn requests_to_one_server_take_turns_and_leave_nothing_behind() {
        let turns = Turns::default();
        let (here, there) = (ServerId::new("here"), ServerId::new("there"));
        let first = turns.take(&here).await;
        let other = turns.take(&there).await;
        assert!(
            tokio::time::timeout(Duration::from_millis(20), turns.take(&here))
                .await
                .is_err()
        );
        drop((first, other));
        let _again = turns.take(&here).await;
        assert_eq!(turns.locks.servers.lock().expect("lock").len(), 1);
    }
}
