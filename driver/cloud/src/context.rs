// SPDX-License-Identifier: Apache-2.0
//! What every operation on one cloud works with: the session, the polls, what is remembered for a while.

pub(crate) mod cached_answer;
pub(crate) mod cloud_facts;
pub(crate) mod expiring;
pub(crate) mod list_cache;
pub(crate) mod server_queue;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::RwLock;
use tokio::time::Instant;

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

/// How many refusals are remembered; more are listed at each repeat.
const MOST_DEPENDENTS: usize = 256;
/// More than any cloud attaches or detaches while a database may lag; what does not fit is believed as it is shown.
const MOST_MOVED: usize = 10_000;
/// More than a cloud attaches within their lifetime; those beyond are asked of Nova again.
const MOST_ATTACHED: usize = 1024;
/// More than a cloud creates while a database may lag.
const MOST_CREATED: usize = 10_000;
/// More than sidecars ask about again; those beyond are asked of Cinder.
const MOST_DELETED: usize = 1024;

/// A complete attachment, as it was polled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeenAttached {
    pub(crate) at: Instant,
    /// The last change of the volume then, by Cinder's clock.
    pub(crate) changed_at: Timestamp,
}

/// One cloud as its operations see it.
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
    /// What refused deletions named as built on a thing, by its id: sidecars repeat a refused deletion for ever.
    pub(crate) dependents: ExpiringMap<String, String>,
    pub(crate) cloud_facts: CloudFactsCache,
    pub(crate) list_cache: ListCache,
    /// The detachments that this process saw the end of a moment ago. An API node whose database lags still shows what was before, so
    /// for that time an attachment is not believed because it is shown.
    pub(crate) detached: ExpiringMap<(VolumeId, ServerId), ()>,
    /// The attachments that this process requested a moment ago, and how each was seen complete. For that time a volume does not count
    /// as detached because an API node does not show the attachment.
    pub(crate) newly_attached: ExpiringMap<(VolumeId, ServerId), Option<SeenAttached>>,
    /// The server and the id of each volume's attachment that was seen complete a little while ago: external-attacher asks for an
    /// attachment again until it sees its own note of the answer.
    pub(crate) attached: ExpiringMap<VolumeId, (ServerId, String)>,
    /// When this process created or adopted a resource, by its id, for as long as an API node may not know it.
    created: ExpiringMap<String, Instant>,
    began: Instant,
    /// The volumes whose deletion was followed to its end. Cinder gives no id twice, and external-provisioner asks again.
    pub(crate) deleted: ExpiringMap<VolumeId, ()>,
}

impl Context {
    pub(crate) fn config(&self) -> Arc<CloudConfig> {
        Arc::clone(&self.config.read())
    }

    /// Prepares everything and sends no request.
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

    /// Records a resource that exists since now at the latest.
    pub(crate) fn note_created(&self, id: &str) {
        self.created.insert(id.to_owned(), Instant::now());
    }

    /// Whether this process created or adopted a resource of this id so lately that an API node may not know it.
    pub(crate) fn is_new(&self, id: &str) -> bool {
        self.created.get(&id.to_owned()).is_some()
    }

    /// How long an API node may still not know a resource of this id; `None`: a 404 means that it does not exist.
    ///
    /// A resource is only deleted by the process that created it or by a later one. An earlier process of this controller may have
    /// created it just before this one began. A process on another node has to lose its Lease first, which takes longer than the lag
    /// unless that process releases it.
    pub(crate) fn unknown_for(&self, id: &str) -> Option<Duration> {
        let since = self.created.get(&id.to_owned()).unwrap_or(self.began);
        let left = TIMING.database_lag.checked_sub(since.elapsed())?;
        (!left.is_zero()).then_some(left)
    }

    /// Uses another configuration of the same cloud from now on.
    pub(crate) fn reconnect(&self, config: CloudConfig, connection: Arc<Connection>) {
        self.transport.reconnect(connection);
        *self.config.write() = Arc::new(config);
    }

    /// Does what makes, removes, attaches, detaches or changes a volume. The next list is a new one, whatever came of it.
    pub(crate) async fn then_forget_lists<T>(&self, change: impl Future<Output = T>) -> T {
        let changed = change.await;
        self.list_cache.volumes.forget();
        changed
    }
}
