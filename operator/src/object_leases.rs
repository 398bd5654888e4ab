// SPDX-License-Identifier: Apache-2.0
//! The Lease of each object. A process acts on an object only while it holds the Lease in the namespace of the driver.
//!
//! A task per held Lease renews it. The processes of one installation elect a leader first, and the leader takes over
//! the Leases of its predecessors immediately. It waits for all other holders as [`crate::leader`] describes.

use std::{collections::HashMap, fmt, time::Duration};

use cinder_csi_crds::{GROUP, KIND, VERSION};
use cinder_operator_core::cluster::Owner;
use csi_sources::Sources;
use futures::future::join_all;
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::Client;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::{sync::watch, task::JoinHandle, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::warn;

use crate::{
    args::DEFAULT_LEASE,
    leader::{ATTEMPT_LIMIT, Elector, Leader, LeaderError, LeaseHolder, LeaseSettings},
};

/// Pause between two renewals.
const RENEW_PAUSE: Duration = Duration::from_secs(15);

/// Time for which a missing Lease must be observed before it is created for a driver that has run. Its holder notices
/// the deletion within this time.
const VACANCY: Duration = RENEW_PAUSE.saturating_add(ATTEMPT_LIMIT);

/// The name of an object's Lease. The Leases of sidecars have no dot.
pub fn lease_name(driver: &str) -> String {
    format!("{DEFAULT_LEASE}.{driver}")
}

/// The Lease was lost: another client took it, or it was not renewed in time.
#[derive(Debug, Error)]
#[error("the Lease of the object was lost, and the work on it was stopped")]
pub struct LeaseLost;

/// The Leases of all objects that this process acts on.
pub struct ObjectLeases {
    client: Client,
    sources: Sources,
    /// Namespace and Lease of the installation. Every identity begins with it.
    installation: String,
    process: String,
    states: Mutex<HashMap<String, LeaseState>>,
}

impl fmt::Debug for ObjectLeases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectLeases")
            .field("states", &self.states)
            .finish_non_exhaustive()
    }
}

/// State of one Lease in this process.
#[derive(Debug)]
enum LeaseState {
    Waiting(Box<Elector>),
    Holding(Holding),
}

/// A held Lease.
#[derive(Debug)]
struct Holding {
    uid: String,
    namespace: String,
    guard: LeaseGuard,
    stop: DropGuard,
    task: JoinHandle<Option<Leader>>,
}

/// The result of an attempt to acquire a Lease.
#[derive(Debug)]
pub(crate) enum Hold {
    Held(LeaseGuard),
    /// Another process holds it.
    By(Box<Lease>),
    /// The holder is unknown: the Lease is missing or has just changed.
    Unknown,
}

/// Proof of a held Lease.
#[derive(Debug, Clone)]
pub(crate) struct LeaseGuard {
    renewals: watch::Receiver<Instant>,
    limit: Duration,
}

impl LeaseGuard {
    /// Runs `work` while the Lease is held, and drops it when the Lease is lost.
    pub(crate) async fn protect<T, E: From<LeaseLost>>(
        mut self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        tokio::select! {
            biased;
            () = self.wait_for_loss() => Err(LeaseLost.into()),
            done = work => done,
        }
    }

    async fn wait_for_loss(&mut self) {
        loop {
            let until = *self.renewals.borrow_and_update() + self.limit;
            tokio::select! {
                () = tokio::time::sleep_until(until) => return,
                renewed = self.renewals.changed() => if renewed.is_err() { return },
            }
        }
    }

    fn is_valid(&self) -> bool {
        self.renewals.has_changed().is_ok() && self.renewals.borrow().elapsed() < self.limit
    }
}

impl Holding {
    fn new(mut leader: Leader, owner: &Owner, settings: &LeaseSettings) -> Self {
        let guard = LeaseGuard {
            renewals: leader.renewals(),
            limit: settings.renew_deadline,
        };
        let (stop, name) = (CancellationToken::new(), settings.name.clone());
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            match leader.renew_until_stopped(&stopped).await {
                Ok(()) => Some(leader),
                Err(lost) => {
                    warn!(lease = name, %lost, "the operator does not act on the object any more");
                    None
                }
            }
        });
        Self {
            uid: owner.uid.clone(),
            namespace: settings.namespace.clone(),
            guard,
            stop: stop.drop_guard(),
            task,
        }
    }

    /// Stops the renewals. Returns the Lease if this process still holds it.
    async fn end(self) -> Option<Leader> {
        drop(self.stop);
        self.task.await.ok().flatten()
    }
}

impl ObjectLeases {
    /// `installation` contains the namespace and the name of the Lease for leader election.
    pub fn new(client: Client, installation: (&str, &str), process: &str, sources: Sources) -> Self {
        let (namespace, lease) = installation;
        Self {
            client,
            sources,
            installation: format!("{namespace}/{lease}/"),
            process: process.to_owned(),
            states: Mutex::default(),
        }
    }

    /// The identity of this process in Leases.
    pub(crate) fn identity(&self) -> String {
        format!("{}{}", self.installation, self.process)
    }

    /// Acquires the Lease of an object in a namespace. If this process holds a Lease of the object in a different
    /// namespace, it deletes that first. `has_run` indicates that another process may have acted on the object.
    pub(crate) async fn hold(&self, owner: &Owner, namespace: &str, has_run: bool) -> Result<Hold, LeaderError> {
        if let Some(guard) = self.matching_guard(owner, namespace) {
            return Ok(Hold::Held(guard));
        }
        let known = self.states.lock().remove(&owner.name);
        let settings = self.settings(owner, namespace);
        let elector = match known {
            Some(LeaseState::Waiting(elector)) if *elector.settings() == settings => Some(*elector),
            Some(LeaseState::Holding(held)) => {
                let is_elsewhere = held.namespace != namespace;
                if let Some(leader) = held.end().await.filter(|_| is_elsewhere) {
                    leader.delete().await;
                }
                None
            }
            _ => None,
        };
        let new = || Elector::new(self.client.clone(), settings.clone(), self.sources.clone());
        let mut elector = elector.unwrap_or_else(new);
        let vacancy = if has_run { VACANCY } else { Duration::ZERO };
        let begun = Instant::now();
        let attempt = elector.bounded_attempt(vacancy).await;
        let (candidate, outcome) = match attempt {
            Ok(LeaseHolder::ThisProcess) => {
                let held = Holding::new(elector.lead(begun), owner, &settings);
                let guard = held.guard.clone();
                (LeaseState::Holding(held), Ok(Hold::Held(guard)))
            }
            attempt => {
                let outcome = attempt.map(|held| match held {
                    LeaseHolder::Other(Some(lease)) => Hold::By(lease),
                    _ => Hold::Unknown,
                });
                (LeaseState::Waiting(Box::new(elector)), outcome)
            }
        };
        self.states.lock().insert(owner.name.clone(), candidate);
        outcome
    }

    /// The guard of a Lease that this process holds.
    pub(crate) fn held(&self, driver: &str) -> Option<LeaseGuard> {
        let states = self.states.lock();
        match states.get(driver) {
            Some(LeaseState::Holding(held)) => Some(held.guard.clone()).filter(LeaseGuard::is_valid),
            _ => None,
        }
    }

    fn matching_guard(&self, owner: &Owner, namespace: &str) -> Option<LeaseGuard> {
        match self.states.lock().get(&owner.name) {
            Some(LeaseState::Holding(held)) if held.uid == owner.uid && held.namespace == namespace => {
                Some(held.guard.clone()).filter(LeaseGuard::is_valid)
            }
            _ => None,
        }
    }

    /// Removes and returns a held Lease. The observation of a foreign Lease remains.
    fn remove_holding(&self, driver: &str) -> Option<Holding> {
        let mut states = self.states.lock();
        match states.remove(driver)? {
            LeaseState::Holding(held) => Some(held),
            waiting @ LeaseState::Waiting(_) => {
                states.insert(driver.to_owned(), waiting);
                None
            }
        }
    }

    /// Deletes the Lease of an object if this process holds it.
    pub(crate) async fn delete(&self, driver: &str) {
        let held = self.remove_holding(driver);
        if let Some(held) = held
            && let Some(leader) = held.end().await
        {
            leader.delete().await;
        }
    }

    /// Stops the renewals for a deleted object. The garbage collector deletes the Lease with the object.
    pub(crate) fn forget(&self, driver: &str) {
        self.states.lock().remove(driver);
    }

    /// Releases all Leases, so that the next holder need not wait.
    pub async fn release_all(&self) {
        let states = std::mem::take(&mut *self.states.lock());
        join_all(states.into_values().map(|candidate| async {
            if let LeaseState::Holding(held) = candidate
                && let Some(leader) = held.end().await
            {
                leader.release().await;
            }
        }))
        .await;
    }

    fn settings(&self, owner: &Owner, namespace: &str) -> LeaseSettings {
        LeaseSettings {
            retry: RENEW_PAUSE,
            predecessors: Some(self.installation.clone()),
            owner: Some(OwnerReference {
                api_version: format!("{GROUP}/{VERSION}"),
                kind: KIND.to_owned(),
                name: owner.name.clone(),
                uid: owner.uid.clone(),
                ..OwnerReference::default()
            }),
            ..LeaseSettings::new(namespace, &lease_name(&owner.name), &self.identity())
        }
    }
}
