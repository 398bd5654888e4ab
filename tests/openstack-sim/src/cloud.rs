// SPDX-License-Identifier: Apache-2.0
//! State that all requests and background work share.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use csi_sources::Sources;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::backing::Backing;
use crate::config::Identity;
use crate::faults::Faults;
use crate::held::HeldRequests;
use crate::keystone::Tokens;
use crate::latencies::Latencies;
use crate::log::LogEntry;
use crate::microversion::Versions;
use crate::store::Store;
use crate::world::World;

/// Settings that requests use.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) identity: Identity,
    pub(crate) base_url: String,
    pub(crate) page_limit: usize,
    pub(crate) like_filters: bool,
    pub(crate) block_storage_type: String,
    pub(crate) block_storage: Versions,
    pub(crate) compute: Versions,
    pub(crate) pools_for_members: bool,
    /// May change while tokens are in use.
    pub(crate) other_regions: Arc<Mutex<Vec<String>>>,
    pub(crate) spread: u16,
    pub(crate) longest_lag: Duration,
}

/// A simulated cloud.
#[derive(Debug)]
pub(crate) struct Cloud {
    pub(crate) settings: Settings,
    pub(crate) sources: Sources,
    pub(crate) backing: Option<Backing>,
    world: Mutex<World>,
    /// Recent versions of the world, oldest first; empty if no API node lags behind.
    past: Mutex<VecDeque<(Instant, World)>>,
    tokens: Mutex<Tokens>,
    faults: Mutex<Faults>,
    log: Mutex<Vec<LogEntry>>,
    /// Requests that a fault rule currently delays.
    pub(crate) held: HeldRequests,
    latencies: watch::Sender<Latencies>,
    store: Option<Store>,
    under_way: watch::Sender<usize>,
    changed: watch::Sender<()>,
    pub(crate) stopped: CancellationToken,
}

impl Cloud {
    pub(crate) fn new(
        settings: Settings,
        sources: Sources,
        world: World,
        tokens: Tokens,
        latencies: Latencies,
        backing: Option<Backing>,
        store: Option<Store>,
    ) -> Arc<Self> {
        Arc::new(Self {
            settings,
            sources,
            backing,
            world: Mutex::new(world),
            past: Mutex::default(),
            tokens: Mutex::new(tokens),
            faults: Mutex::default(),
            log: Mutex::default(),
            held: HeldRequests::default(),
            latencies: watch::Sender::new(latencies),
            store,
            under_way: watch::Sender::new(0),
            changed: watch::Sender::new(()),
            stopped: CancellationToken::new(),
        })
    }

    /// Reads the world.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        look(&lock(&self.world))
    }

    /// Changes the world, and schedules a write to the backing folder.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        let result = {
            let mut world = lock(&self.world);
            self.store_version(&world);
            change(&mut world)
        };
        if let Some(store) = &self.store {
            store.touch();
        }
        self.changed.send_replace(());
        result
    }

    /// Stores the current version for API nodes that lag behind.
    fn store_version(&self, world: &World) {
        let longest = self.settings.longest_lag;
        if longest.is_zero() {
            return;
        }
        let now = Instant::now();
        let mut past = lock(&self.past);
        past.push_back((now, world.clone()));
        while past
            .front()
            .is_some_and(|(until, _)| now.duration_since(*until) > longest)
        {
            past.pop_front();
        }
    }

    /// Returns the cloud as read by an API node whose database is `lag` behind. The result must not be changed.
    pub(crate) fn behind(&self, lag: Duration) -> Arc<Self> {
        let seen = Instant::now() - lag;
        // Each entry was valid until its time.
        let is_seen = |(until, world): &(Instant, World)| (*until > seen).then(|| world.clone());
        let past = lock(&self.past).iter().find_map(is_seen);
        let world = past.unwrap_or_else(|| lock(&self.world).clone());
        let tokens = lock(&self.tokens).clone();
        let (settings, sources) = (self.settings.clone(), self.sources.clone());
        Self::new(settings, sources, world, tokens, self.latencies(), None, None)
    }

    /// Waits until `is_so` returns true; returns false at `limit`.
    pub(crate) async fn wait_until(&self, limit: Duration, is_so: impl Fn(&World) -> bool) -> bool {
        let mut changed = self.changed.subscribe();
        tokio::time::timeout(limit, changed.wait_for(|()| self.read(&is_so)))
            .await
            .is_ok_and(|done| done.is_ok())
    }

    pub(crate) fn tokens(&self) -> MutexGuard<'_, Tokens> {
        lock(&self.tokens)
    }

    /// Changes the tokens, and schedules a write to the backing folder.
    pub(crate) fn change_tokens<T>(&self, change: impl FnOnce(&mut Tokens) -> T) -> T {
        let result = change(&mut lock(&self.tokens));
        if let Some(store) = &self.store {
            store.touch();
        }
        result
    }

    pub(crate) fn faults(&self) -> MutexGuard<'_, Faults> {
        lock(&self.faults)
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, Vec<LogEntry>> {
        lock(&self.log)
    }

    pub(crate) fn latencies(&self) -> Latencies {
        *self.latencies.borrow()
    }

    /// Sets the latencies, also of work in progress.
    pub(crate) fn set_latencies(&self, latencies: Latencies) {
        self.latencies.send_replace(latencies);
    }

    /// Waits for the duration of a step of some work. Considers changes of the latencies during the wait.
    pub(crate) async fn takes(&self, time: impl Fn(&Latencies) -> Duration) {
        let started = Instant::now();
        let part = self.part();
        let mut latencies = self.latencies.subscribe();
        loop {
            let end = started + time(&latencies.borrow_and_update()).mul_f64(part);
            tokio::select! {
                biased;
                () = sleep_until(end) => return,
                // The sender lives as long as `self`.
                _ = latencies.changed() => {}
            }
        }
    }

    /// Returns a random factor for the latency of a piece of work.
    fn part(&self) -> f64 {
        const STEPS: u16 = 1_000;
        if self.settings.spread == 0 {
            return 1.0;
        }
        let step = u16::try_from(self.sources.random() % u64::from(STEPS)).unwrap_or_default();
        f64::from(self.settings.spread) * f64::from(step) / f64::from(STEPS)
    }

    /// Waits until all changes so far are on the disk; returns immediately without a backing folder.
    pub(crate) async fn saved(&self) {
        if let Some(store) = &self.store {
            store.saved().await;
        }
    }

    pub(crate) fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }

    /// Runs background work until it ends or the cloud stops.
    pub(crate) fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let cloud = Arc::clone(self);
        cloud.under_way.send_modify(|count| *count += 1);
        tokio::spawn(async move {
            cloud.stopped.run_until_cancelled(work).await;
            cloud.under_way.send_modify(|count| *count -= 1);
        });
    }

    /// Waits until no background work is in progress; returns false at `limit`.
    pub(crate) async fn settled(&self, limit: Duration) -> bool {
        let mut under_way = self.under_way.subscribe();
        tokio::time::timeout(limit, under_way.wait_for(|count| *count == 0))
            .await
            .is_ok_and(|done| done.is_ok())
    }
}

/// Locks a mutex that is never poisoned: a panic in one request must not affect other requests.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
