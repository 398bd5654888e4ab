// SPDX-License-Identifier: Apache-2.0
//! The state that all operations on one cloud share: the session, the polls and the caches.

pub(crate) mod cached_answer;
pub(crate) mod cloud_facts;
pub(crate) mod expiring;
pub(crate) mod list_cache;
pub(crate) mod server_queue;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::RwLock;
use tokio::time::{Instant, sleep};

use crate::api::block_storage::{Backup, Snapshot, Volume};
use crate::config::CloudConfig;
use crate::error::CloudError;
use crate::http::connection::Connection;
use crate::http::options::CloudOptions;
use crate::http::transport::Transport;
use crate::ids::{ServerId, VolumeId};
use crate::poll::{ServerRecords, Watch};
use crate::timing::TIMING;
use cloud_facts::CloudFactsCache;
use expiring::ExpiringMap;
use list_cache::ListCache;
use server_queue::ServerQueues;

/// The number of refused deletions with cached dependents. The driver lists the dependents of any further one at each
/// retry.
const MOST_DEPENDENTS: usize = 256;
/// More than any cloud attaches or detaches during a database lag. For entries beyond it, the driver trusts the state
/// that Cinder shows.
const MOST_MOVED: usize = 10_000;
/// More than a cloud attaches during the lifetime of an entry. For attachments beyond it, the driver queries Nova
/// again.
const MOST_ATTACHED: usize = 1024;
/// More than a cloud creates during a database lag.
const MOST_CREATED: usize = 10_000;
/// More deletions than sidecars retry during the lifetime of an entry. For volumes beyond it, the driver queries
/// Cinder.
const MOST_DELETED: usize = 1024;

/// A complete attachment, as it was polled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ObservedAttachment {
    pub(crate) at: Instant,
    /// The time of the volume's last change at that time, by Cinder's clock.
    pub(crate) changed_at: Timestamp,
}

/// The shared state of the operations on one cloud.
#[derive(Debug)]
pub(crate) struct Context {
    config: RwLock<Arc<CloudConfig>>,
    pub(crate) options: CloudOptions,
    pub(crate) transport: Arc<Transport>,
    pub(crate) watch: Watch<Volume>,
    pub(crate) servers: Watch<ServerRecords>,
    pub(crate) snapshots: Watch<Snapshot>,
    pub(crate) backups: Watch<Backup>,
    pub(crate) server_queues: ServerQueues,
    /// The dependents that blocked the deletion of a resource, by its id. Sidecars retry a refused deletion
    /// indefinitely.
    pub(crate) dependents: ExpiringMap<String, String>,
    pub(crate) cloud_facts: CloudFactsCache,
    pub(crate) list_cache: ListCache,
    /// The detachments that this process completed a moment ago. An API node with a lagging database still shows the
    /// attachment, so during that time a shown attachment proves nothing.
    pub(crate) detached: ExpiringMap<(VolumeId, ServerId), ()>,
    /// The attachments that this process requested a moment ago, with the state in which each was complete. During that
    /// time a volume does not count as detached because an API node does not show the attachment.
    pub(crate) newly_attached: ExpiringMap<(VolumeId, ServerId), Option<ObservedAttachment>>,
    /// The server and the attachment id of each volume whose attachment was complete a short time ago.
    /// external-attacher repeats its request until its cache contains the recorded response.
    pub(crate) attached: ExpiringMap<VolumeId, (ServerId, String)>,
    /// The time at which this process created or adopted a resource, by its id, as long as an API node may not know it.
    created: ExpiringMap<String, Instant>,
    began: Instant,
    /// The volumes whose deletion this process has completed. Cinder never reuses an id, and external-provisioner
    /// repeats its request.
    pub(crate) deleted: ExpiringMap<VolumeId, ()>,
}

impl Context {
    pub(crate) fn config(&self) -> Arc<CloudConfig> {
        Arc::clone(&self.config.read())
    }

    /// Prepares the state without a request.
    pub(crate) fn new(config: CloudConfig, options: CloudOptions) -> Result<Self, CloudError> {
        let transport = Arc::new(Transport::new(Connection::new(&config, &options)?, &options));
        let watch = Watch::new(Arc::clone(&transport));
        let servers = Watch::new(Arc::clone(&transport));
        let snapshots = Watch::new(Arc::clone(&transport));
        let backups = Watch::new(Arc::clone(&transport));
        Ok(Self {
            config: RwLock::new(Arc::new(config)),
            options,
            transport,
            watch,
            servers,
            snapshots,
            backups,
            server_queues: ServerQueues::default(),
            dependents: ExpiringMap::new(TIMING.dependents_ttl, MOST_DEPENDENTS),
            cloud_facts: CloudFactsCache::default(),
            list_cache: ListCache::default(),
            detached: ExpiringMap::new(TIMING.database_lag, MOST_MOVED),
            newly_attached: ExpiringMap::new(TIMING.database_lag, MOST_MOVED),
            attached: ExpiringMap::new(TIMING.attached_ttl, MOST_ATTACHED),
            created: ExpiringMap::new(TIMING.database_lag, MOST_CREATED),
            began: Instant::now(),
            deleted: ExpiringMap::new(TIMING.deleted_ttl, MOST_DELETED),
        })
    }

    /// Records a resource that exists now.
    pub(crate) fn note_created(&self, id: &str) {
        self.created.insert(id.to_owned(), Instant::now());
    }

    /// Whether this process created or adopted a resource of this id so recently that an API node may not know it
    /// (404).
    pub(crate) fn is_new(&self, id: &str) -> bool {
        self.created.get(&id.to_owned()).is_some()
    }

    /// Returns how long an API node may still not know a resource of this id. `None`: a 404 proves that it does not
    /// exist.
    ///
    /// Only the process that created a resource deletes it, or a later process. An earlier process of this controller
    /// may have created it just before this one started. A process on another node must lose its Lease first, which
    /// takes longer than the lag unless that process releases it.
    pub(crate) fn unknown_for(&self, id: &str) -> Option<Duration> {
        let since = self.created.get(&id.to_owned()).unwrap_or(self.began);
        let remaining = TIMING.database_lag.checked_sub(since.elapsed())?;
        (!remaining.is_zero()).then_some(remaining)
    }

    /// Reads a resource. If a 404 does not prove that it is missing, reads it again when each API node must know it.
    pub(crate) async fn confirm<T, L: Future<Output = Result<Option<T>, CloudError>>>(
        &self,
        id: &str,
        read: impl Fn() -> L,
    ) -> Result<Option<T>, CloudError> {
        // Before the request, because a response at the end of the lag may show the state before it.
        let unknown = self.unknown_for(id);
        match (read().await?, unknown) {
            (None, Some(remaining)) => {
                sleep(remaining).await;
                read().await
            }
            (found, _) => Ok(found),
        }
    }

    /// Switches to another configuration of the same cloud.
    pub(crate) fn reconnect(&self, config: CloudConfig, connection: Arc<Connection>) {
        self.transport.reconnect(connection);
        *self.config.write() = Arc::new(config);
    }

    /// Runs a change of a volume and then invalidates the cached list of volumes, whether the change succeeded or not.
    pub(crate) async fn invalidate_lists_after<T>(&self, change: impl Future<Output = T>) -> T {
        let changed = change.await;
        self.list_cache.volumes.invalidate();
        changed
    }
}
