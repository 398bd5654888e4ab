// SPDX-License-Identifier: Apache-2.0
//! Holds `coordination.k8s.io` Leases: the operator's own, for leader election, and one for each object.
//!
//! One process works at a time; the others wait. These rules ensure it:
//!
//! * Every write carries the `resourceVersion` that was read, so of two candidates one loses with a conflict.
//! * A foreign lease counts as expired when it was **seen unchanged** for its whole duration on this process's own
//!   monotonic clock. The times inside the Lease are for people; nothing compares clocks of two machines. A duration that another
//!   client wrote counts within bounds.
//! * The holder gives up [`LeaseSettings::renew_deadline`] after its last successful renewal, which is shorter than the
//!   duration that others wait for: it has stopped before anybody else starts. Until then a renewal that failed is tried again
//!   and again, so that an API server may be away for nearly half a minute.
//! * At a clean end the Lease is released, so that the next holder need not wait.
//!
//! Should two operators reconcile for a moment all the same, server-side apply of the same desired state keeps it harmless.

use std::time::Duration;

use csi_sources::Sources;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference},
};
use kube::{
    Client,
    api::{DeleteParams, ObjectMeta, PostParams, Preconditions},
};
use thiserror::Error;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::kubernetes::GuardedApi;

/// Pause after a renewal that failed.
const FAILED_PAUSE: Duration = Duration::from_secs(2);

/// How long one attempt may take: a request to an API server that went away without a word must not use up the time of the next ones.
pub(crate) const ATTEMPT_LIMIT: Duration = Duration::from_secs(5);

/// The longest duration of a Lease that is awaited: five times that of the operator's own.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_mins(5);

/// The cause with which the API server refuses new objects in a namespace that is being deleted.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

/// The shortest duration of a Lease that is awaited: longer than the pause between two renewals.
const SHORTEST_LEASE: Duration = Duration::from_secs(30);

/// Who competes for which Lease, and at what pace.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseSettings {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Identity of this candidate; unique per process.
    pub identity: String,
    /// How long the others wait before they take over a Lease that nobody renews.
    pub duration: Duration,
    /// How long the holder goes on without a successful renewal; shorter than `duration`.
    pub renew_deadline: Duration,
    /// Pause between two attempts to acquire, and between two renewals.
    pub retry: Duration,
    /// Prefix of the identities of earlier processes of this installation. All of them have stopped when this one leads.
    pub predecessors: Option<String>,
    /// The object that the Lease is about. The Lease is deleted with it.
    pub owner: Option<OwnerReference>,
}

impl LeaseSettings {
    /// Settings that outlast an API server which is away for 30 s: 60 s duration, 40 s deadline, one write every 10 s.
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            duration: Duration::from_mins(1),
            renew_deadline: Duration::from_secs(40),
            retry: Duration::from_secs(10),
            predecessors: None,
            owner: None,
        }
    }
}

/// Why a Lease could not be read or written.
#[derive(Debug, Error)]
pub enum LeaderError {
    /// The Lease could not be read.
    #[error("cannot read lease {name}: {source}")]
    Read {
        /// `namespace/name` of the Lease.
        name: String,
        /// What the API server answered.
        source: Box<kube::Error>,
    },
    /// The Lease could not be written.
    #[error("cannot write lease {name}: {source}")]
    Write {
        /// `namespace/name` of the Lease.
        name: String,
        /// What the API server answered.
        source: Box<kube::Error>,
    },
    /// The API server did not answer within the time that one attempt has.
    #[error("lease {name}: no answer from the API server within {limit:?}")]
    NoAnswer {
        /// `namespace/name` of the Lease.
        name: String,
        /// The time that was allowed.
        limit: Duration,
    },
}

impl LeaderError {
    /// Whether the Lease cannot be created because its namespace is being deleted.
    pub(crate) fn is_in_terminating_namespace(&self) -> bool {
        let Some(kube::Error::Api(status)) = self.answer() else {
            return false;
        };
        let mut causes = status.details.iter().flat_map(|details| &details.causes);
        causes.any(|cause| cause.reason == NAMESPACE_TERMINATING)
    }

    /// The answer of the API server, if there is one.
    pub(crate) fn answer(&self) -> Option<&kube::Error> {
        match self {
            Self::Read { source, .. } | Self::Write { source, .. } => Some(source),
            Self::NoAnswer { .. } => None,
        }
    }
}

/// What one look at the Lease calls for.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum LeaseDecision {
    /// There is no Lease: create it.
    Create,
    /// It is ours: renew it.
    Renew,
    /// It is free or expired: take it over.
    TakeOver,
    /// Somebody else holds it.
    Wait,
}

/// Decides from the Lease as read and from how long it was seen unchanged. A missing Lease is created after `vacancy`.
fn decide(
    lease: Option<&Lease>,
    settings: &LeaseSettings,
    unchanged_for: Duration,
    vacancy: Duration,
) -> LeaseDecision {
    let Some(lease) = lease else {
        return if unchanged_for < vacancy {
            LeaseDecision::Wait
        } else {
            LeaseDecision::Create
        };
    };
    let spec = lease.spec.as_ref();
    let holder = holder_of(Some(lease));
    if holder == settings.identity {
        return LeaseDecision::Renew;
    }
    let seconds = spec.and_then(|s| s.lease_duration_seconds).unwrap_or_default();
    let duration = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    let duration = duration.clamp(SHORTEST_LEASE, LONGEST_LEASE);
    let is_predecessor = settings
        .predecessors
        .as_ref()
        .is_some_and(|prefix| holder.starts_with(prefix));
    if holder.is_empty() || is_predecessor || unchanged_for > duration {
        LeaseDecision::TakeOver
    } else {
        LeaseDecision::Wait
    }
}

/// A candidate for one Lease.
#[derive(Debug)]
pub struct Elector {
    api: GuardedApi<Lease>,
    settings: LeaseSettings,
    sources: Sources,
    /// The `resourceVersion` seen last and since when it has not changed.
    seen: Option<(String, Instant)>,
    /// The Lease as this process wrote it last, until a renewal fails. The next renewal needs no read.
    written: Option<Lease>,
}

impl Elector {
    /// A candidate that has not looked yet.
    pub fn new(client: Client, settings: LeaseSettings, sources: Sources) -> Self {
        Self {
            api: GuardedApi::namespaced(client, &settings.namespace),
            settings,
            sources,
            seen: None,
            written: None,
        }
    }

    pub(crate) fn settings(&self) -> &LeaseSettings {
        &self.settings
    }

    fn lease_name(&self) -> String {
        format!("{}/{}", self.settings.namespace, self.settings.name)
    }

    /// Waits until this process holds the Lease; `None` when `shutdown` came first.
    ///
    /// Failures are logged and tried again: without a Lease there is nothing else to do. Cancel-safe: an abandoned attempt
    /// leaves either the old Lease or one that this process will recognise as its own.
    pub async fn acquire(mut self, shutdown: &CancellationToken) -> Option<Leader> {
        let mut waiting_for = None;
        loop {
            let begun = Instant::now();
            let attempt = tokio::select! {
                () = shutdown.cancelled() => return None,
                attempt = self.bounded_attempt(Duration::ZERO) => attempt,
            };
            match attempt {
                Ok(Held::Mine) => {
                    info!(lease = self.lease_name(), identity = self.settings.identity, "leading");
                    return Some(self.lead(begun));
                }
                // The next look shows who was faster.
                Ok(Held::Changed) => {}
                Ok(Held::By(lease)) => {
                    let holder = holder_of(lease.as_deref());
                    if waiting_for.as_ref() != Some(&holder) {
                        info!(lease = self.lease_name(), holder, "standing by");
                        waiting_for = Some(holder);
                    }
                }
                Err(error) => warn!(%error, "cannot compete for the lease; trying again"),
            }
            tokio::select! {
                () = shutdown.cancelled() => return None,
                () = tokio::time::sleep(self.settings.retry) => {}
            }
        }
    }

    /// The holder of the Lease after an attempt that began at `begun` and succeeded.
    pub(crate) fn lead(self, begun: Instant) -> Leader {
        Leader {
            elector: self,
            renewed: watch::Sender::new(begun),
        }
    }

    /// Competes once. A missing Lease is created when it was observed as missing for `vacancy`: until then its holder, which creates
    /// it again, may not have noticed.
    pub(crate) async fn bounded_attempt(&mut self, vacancy: Duration) -> Result<Held, LeaderError> {
        let limit = ATTEMPT_LIMIT;
        let name = self.lease_name();
        tokio::time::timeout(limit, self.attempt(vacancy))
            .await
            .unwrap_or(Err(LeaderError::NoAnswer { name, limit }))
    }

    async fn attempt(&mut self, vacancy: Duration) -> Result<Held, LeaderError> {
        if let Some(written) = self.written.take() {
            return self.write(self.mine(Some(&written)), false).await;
        }
        let current = self.read().await?;
        let unchanged_for = self.note(current.as_ref());
        match decide(current.as_ref(), &self.settings, unchanged_for, vacancy) {
            LeaseDecision::Wait => Ok(Held::By(current.map(Box::new))),
            LeaseDecision::Create => self.write(self.mine(None), true).await,
            LeaseDecision::Renew | LeaseDecision::TakeOver => self.write(self.mine(current.as_ref()), false).await,
        }
    }

    async fn read(&self) -> Result<Option<Lease>, LeaderError> {
        let current = self.api.get_opt(&self.settings.name).await;
        current.map_err(|source| LeaderError::Read {
            name: self.lease_name(),
            source: Box::new(source),
        })
    }

    /// The present Lease, if this process is its holder.
    async fn own(&mut self) -> Result<Option<Lease>, LeaderError> {
        if let Some(written) = self.written.take() {
            return Ok(Some(written));
        }
        let current = self.read().await?;
        Ok(current.filter(|lease| holder_of(Some(lease)) == self.settings.identity))
    }

    /// Remembers the version that was seen and says for how long it has not changed.
    fn note(&mut self, lease: Option<&Lease>) -> Duration {
        let version = lease
            .and_then(|l| l.metadata.resource_version.clone())
            .unwrap_or_default();
        match &self.seen {
            Some((seen, since)) if *seen == version => since.elapsed(),
            _ => {
                self.seen = Some((version, Instant::now()));
                Duration::ZERO
            }
        }
    }

    /// The Lease as this candidate wants it, on top of what was read.
    fn mine(&self, current: Option<&Lease>) -> Lease {
        let now = self.sources.now();
        let old = current.and_then(|l| l.spec.as_ref());
        let same_holder = old.and_then(|s| s.holder_identity.as_deref()) == Some(self.settings.identity.as_str());
        let transitions = old.and_then(|s| s.lease_transitions).unwrap_or_default();
        let acquired = if same_holder {
            old.and_then(|s| s.acquire_time.clone())
        } else {
            None
        };
        let mut metadata = current.map_or_else(
            || ObjectMeta {
                name: Some(self.settings.name.clone()),
                namespace: Some(self.settings.namespace.clone()),
                ..ObjectMeta::default()
            },
            |l| l.metadata.clone(),
        );
        if let Some(owner) = &self.settings.owner {
            metadata.owner_references = Some(vec![owner.clone()]);
        }
        Lease {
            metadata,
            spec: Some(LeaseSpec {
                holder_identity: Some(self.settings.identity.clone()),
                lease_duration_seconds: i32::try_from(self.settings.duration.as_secs()).ok(),
                acquire_time: acquired.or(Some(MicroTime(now))),
                renew_time: Some(MicroTime(now)),
                lease_transitions: Some(if same_holder || current.is_none() {
                    transitions
                } else {
                    transitions + 1
                }),
                ..LeaseSpec::default()
            }),
        }
    }

    /// Writes with the `resourceVersion` that was read; a conflict means that another writer was faster.
    async fn write(&mut self, lease: Lease, create: bool) -> Result<Held, LeaderError> {
        let params = PostParams::default();
        let written = if create {
            self.api.create(&params, &lease).await
        } else {
            self.api.replace(&self.settings.name, &params, &lease).await
        };
        match written {
            Ok(lease) => {
                self.note(Some(&lease));
                self.written = Some(lease);
                Ok(Held::Mine)
            }
            Err(kube::Error::Api(status)) if status.code == 409 || (status.code == 404 && !create) => {
                debug!(lease = self.lease_name(), "another writer was faster");
                Ok(Held::Changed)
            }
            Err(source) => Err(LeaderError::Write {
                name: self.lease_name(),
                source: Box::new(source),
            }),
        }
    }
}

/// Who holds the Lease after an attempt.
#[derive(Debug)]
pub(crate) enum Held {
    Mine,
    /// Another candidate holds it; `None` while it is missing and may still have a holder.
    By(Option<Box<Lease>>),
    /// Unknown: between the look and the write it was written, by another candidate or by someone who set a label.
    Changed,
}

pub(crate) fn holder_of(lease: Option<&Lease>) -> String {
    lease
        .and_then(|l| l.spec.as_ref())
        .and_then(|s| s.holder_identity.clone())
        .unwrap_or_default()
}

/// Proof of holding the Lease. It has to be kept alive by [`Leader::keep`].
#[derive(Debug)]
pub struct Leader {
    elector: Elector,
    /// When the last renewal that succeeded was begun: the others may count from any moment after that.
    renewed: watch::Sender<Instant>,
}

impl Leader {
    /// Renews until `stop` is cancelled (`Ok`: still held, to be released) or the Lease is lost (`Err`).
    ///
    /// A caller that gets `Err` must stop all writes at once.
    pub async fn keep(&mut self, stop: &CancellationToken) -> Result<(), LeadershipLost> {
        let LeaseSettings {
            renew_deadline, retry, ..
        } = self.elector.settings;
        let mut pause = retry;
        loop {
            // Nothing may outlast the deadline, a renewal that hangs least of all.
            let deadline = *self.renewed.borrow() + renew_deadline;
            let renewal = async {
                tokio::time::sleep(pause).await;
                (Instant::now(), self.elector.bounded_attempt(Duration::ZERO).await)
            };
            let attempt = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                attempt = tokio::time::timeout_at(deadline, renewal) => attempt,
            };
            pause = FAILED_PAUSE;
            match attempt {
                Ok((begun, Ok(Held::Mine))) => {
                    self.renewed.send_replace(begun);
                    pause = retry;
                }
                Ok((_, Ok(Held::By(lease)))) => {
                    let holder = holder_of(lease.as_deref());
                    return Err(LeadershipLost::Taken { holder });
                }
                // Whose it is, the next look tells.
                Ok((_, Ok(Held::Changed))) => {}
                Ok((_, Err(error))) => warn!(%error, "cannot renew the lease; it is tried again"),
                Err(_) => return Err(LeadershipLost::NotRenewed { after: renew_deadline }),
            }
        }
    }

    /// The begin of the last renewal. The channel closes with the loss of the Lease.
    pub(crate) fn renewals(&self) -> watch::Receiver<Instant> {
        self.renewed.subscribe()
    }

    /// Gives the Lease back, so that the next holder need not wait for its expiry. Bounded by one attempt.
    pub async fn release(mut self) {
        let elector = &mut self.elector;
        let release = async {
            let Some(mut lease) = elector.own().await? else {
                return Ok(false);
            };
            if let Some(spec) = lease.spec.as_mut() {
                spec.holder_identity = Some(String::new());
                spec.lease_duration_seconds = Some(1);
                spec.renew_time = Some(MicroTime(elector.sources.now()));
            }
            let released = elector.write(lease, false).await?;
            Ok(matches!(released, Held::Mine))
        };
        let outcome = tokio::time::timeout(ATTEMPT_LIMIT, release).await;
        self.log_end("released", outcome);
    }

    /// Deletes the Lease, because the object was deleted or its driver was moved. Bounded by one attempt.
    pub(crate) async fn delete(mut self) {
        let elector = &mut self.elector;
        let delete = async {
            let Some(lease) = elector.own().await? else {
                return Ok(false);
            };
            let preconditions = Preconditions {
                uid: lease.metadata.uid,
                resource_version: lease.metadata.resource_version,
            };
            let params = DeleteParams {
                preconditions: Some(preconditions),
                ..DeleteParams::default()
            };
            match elector.api.delete(&elector.settings.name, &params).await {
                Ok(()) => Ok(true),
                Err(source) => Err(LeaderError::Write {
                    name: elector.lease_name(),
                    source: Box::new(source),
                }),
            }
        };
        let outcome = tokio::time::timeout(ATTEMPT_LIMIT, delete).await;
        self.log_end("deleted", outcome);
    }

    fn log_end<E>(&self, done: &str, outcome: Result<Result<bool, LeaderError>, E>) {
        let lease = self.elector.lease_name();
        match outcome {
            Ok(Ok(true)) => info!(lease, "{done}"),
            Ok(Ok(false)) => info!(lease, "another writer was faster; the lease is not {done}"),
            Ok(Err(error)) => warn!(%error, lease, "the lease is not {done}; it will expire"),
            Err(_) => warn!(lease, "the lease is not {done} in time; it will expire"),
        }
    }
}

/// How leadership ended.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LeadershipLost {
    /// Another candidate wrote the Lease.
    #[error("the lease was taken by {holder}")]
    Taken {
        /// Its identity, where known.
        holder: String,
    },
    /// No renewal succeeded in time.
    #[error("the lease could not be renewed for {after:?}")]
    NotRenewed {
        /// The deadline that passed.
        after: Duration,
    },
}

#[cfg(test)]
mod tests;
