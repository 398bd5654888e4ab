//! The lists that are kept, and for how long.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::ListedVolume;
use crate::cached::Cached;
use crate::compute::Server;
use crate::ids::ServerId;

/// How long a list is good: sidecars that begin a walk together share one.
const LIFETIME: Duration = Duration::from_secs(5);
/// How long the servers' list is good: it tells of trouble, which does not pass in seconds.
const SERVERS_LIFETIME: Duration = Duration::from_secs(15);

/// The lists that are kept.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(super) volumes: Arc<Cached<Vec<ListedVolume>>>,
    pub(super) servers: Arc<Cached<BTreeMap<ServerId, Server>>>,
}

impl Default for Listing {
    fn default() -> Self {
        Self {
            volumes: Arc::new(Cached::for_time(LIFETIME)),
            servers: Arc::new(Cached::for_time(SERVERS_LIFETIME)),
        }
    }
}

impl Listing {
    pub(super) fn evict_volumes_later(&self) {
        evict_later(&self.volumes, LIFETIME);
    }

    pub(super) fn evict_servers_later(&self) {
        evict_later(&self.servers, SERVERS_LIFETIME);
    }
}

/// Drops an answer that comes now, once it is out of date.
fn evict_later<T: Send + Sync + 'static>(cached: &Arc<Cached<T>>, lifetime: Duration) {
    let cached = Arc::downgrade(cached);
    tokio::spawn(async move {
        // Its time begins a moment later than the sleep.
        sleep(lifetime + Duration::from_secs(1)).await;
        if let Some(cached) = cached.upgrade() {
            cached.evict().await;
        }
    });
}
