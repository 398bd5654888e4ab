// SPDX-License-Identifier: Apache-2.0
//! Acquires and renews `coordination.k8s.io` Leases: the operator's own Lease for leader election, and one Lease for
//! each object.
//!
//! One process works at a time, and the others wait. These rules ensure it:
//!
//! * Every write carries the `resourceVersion` that was read. Of two candidates that write at the same time, one fails
//!   with a conflict.
//! * A foreign Lease counts as expired only after it was **observed unchanged** for its whole duration on this
//!   process's own monotonic clock. The times inside the Lease are informational; the clocks of two machines are never
//!   compared. A duration that another client wrote counts within bounds.
//! * The holder stops [`LeaseSettings::renew_deadline`] after its last successful renewal. This deadline is shorter
//!   than the duration that other candidates wait, so the holder has stopped before another candidate starts. Until the
//!   deadline the holder retries a failed renewal. An API server may therefore be unavailable for nearly half a minute.
//! * At a clean end the holder releases the Lease, so that the next holder need not wait.
//!
//! If two operators reconcile at the same time nevertheless, both apply the same desired state with server-side apply,
//! which is harmless.

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

/// Pause after a failed renewal.
const FAILED_PAUSE: Duration = Duration::from_secs(2);

/// Maximum duration of one attempt. A request to an unresponsive API server must not use up the time of the next
/// attempts.
pub(crate) const ATTEMPT_LIMIT: Duration = Duration::from_secs(5);

/// Upper bound for the duration of a foreign Lease: five times the duration of the operator's own Lease.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_mins(5);

/// The cause with which the API server rejects new objects in a namespace that is being deleted.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

/// Lower bound for the duration of a foreign Lease: longer than the pause between two renewals.
const SHORTEST_LEASE: Duration = Duration::from_secs(30);

/// The candidate, its Lease, and the intervals of the election.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseSettings {
    pub namespace: String,
    pub name: String,
    /// Identity of this candidate; unique per process.
    pub identity: String,
    /// Time that other candidates wait before they take over a Lease that is not renewed.
    pub duration: Duration,
    /// Time that the holder continues without a successful renewal; shorter than `duration`.
    pub renew_deadline: Duration,
    /// Pause between two attempts to acquire, and between two renewals.
    pub retry: Duration,
    /// Prefix of the identities of earlier processes of this installation. All of them have stopped when this process
    /// leads.
    pub predecessors: Option<String>,
    /// The object that the Lease protects. The garbage collector deletes the Lease with it.
    pub owner: Option<OwnerReference>,
}

impl LeaseSettings {
    /// Settings that tolerate an API server outage of 30 s: 60 s duration, 40 s deadline, one write every 10 s.
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
    #[error("cannot read lease {name}: {source}")]
    Read {
        /// `namespace/name` of the Lease.
        name: String,
        /// Response of the API server.
        source: Box<kube::Error>,
    },
    #[error("cannot write lease {name}: {source}")]
    Write {
        /// `namespace/name` of the Lease.
        name: String,
        /// Response of the API server.
        source: Box<kube::Error>,
    },
    /// The API server did not respond within the limit of one attempt.
    #[error("lease {name}: no answer from the API server within {limit:?}")]
    NoAnswer {
        /// `namespace/name` of the Lease.
        name: String,
        /// The limit of the attempt.
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

    /// The response of the API server, if there is one.
    pub(crate) fn answer(&self) -> Option<&kube::Error> {
        match self {
            Self::Read { source, .. } | Self::Write { source, .. } => Some(source),
            Self::NoAnswer { .. } => None,
        }
    }
}

/// Next step for a candidate after it has read the Lease.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum LeaseDecision {
    /// The Lease does not exist: create it.
    Create,
    /// This process is the holder: renew it.
    Renew,
    /// The Lease is free or expired: take it over.
    TakeOver,
    /// Another candidate is the holder.
    Wait,
}

/// Decides the next step from the Lease and from the time for which it was observed unchanged. A missing Lease is
/// created after `vacancy`.
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
    /// The last observed `resourceVersion`, and the time since which it has not changed.
    seen: Option<(String, Instant)>,
    /// The Lease as this process last wrote it, until a renewal fails. The next renewal needs no read.
    written: Option<Lease>,
}

impl Elector {
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

    /// Waits until this process holds the Lease; `None` if `shutdown` is cancelled first.
    ///
    /// Failures are logged and retried, because a candidate without a Lease has no other work. Cancel-safe: an
    /// abandoned attempt results in either the old Lease or one that this process recognises as its own.
    pub async fn acquire(mut self, shutdown: &CancellationToken) -> Option<Leader> {
        let mut waiting_for = None;
        loop {
            let begun = Instant::now();
            let attempt = tokio::select! {
                () = shutdown.cancelled() => return None,
                attempt = self.bounded_attempt(Duration::ZERO) => attempt,
            };
            match attempt {
                Ok(LeaseHolder::ThisProcess) => {
                    info!(lease = self.lease_name(), identity = self.settings.identity, "leading");
                    return Some(self.lead(begun));
                }
                // The next attempt shows which candidate wrote first.
                Ok(LeaseHolder::Unknown) => {}
                Ok(LeaseHolder::Other(lease)) => {
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

    /// Becomes the holder of the Lease, after a successful attempt that began at `begun`.
    pub(crate) fn lead(self, begun: Instant) -> Leader {
        Leader {
            elector: self,
            renewed: watch::Sender::new(begun),
        }
    }

    /// Attempts once to acquire the Lease. A missing Lease is created after it was observed as missing for `vacancy`.
    /// Until then, its holder may not have noticed the deletion, and would create it again.
    pub(crate) async fn bounded_attempt(&mut self, vacancy: Duration) -> Result<LeaseHolder, LeaderError> {
        let limit = ATTEMPT_LIMIT;
        let name = self.lease_name();
        tokio::time::timeout(limit, self.attempt(vacancy))
            .await
            .unwrap_or(Err(LeaderError::NoAnswer { name, limit }))
    }

    async fn attempt(&mut self, vacancy: Duration) -> Result<LeaseHolder, LeaderError> {
        if let Some(written) = self.written.take() {
            return self.write(self.build_lease(Some(&written)), false).await;
        }
        let current = self.read().await?;
        let unchanged_for = self.observe_version(current.as_ref());
        match decide(current.as_ref(), &self.settings, unchanged_for, vacancy) {
            LeaseDecision::Wait => Ok(LeaseHolder::Other(current.map(Box::new))),
            LeaseDecision::Create => self.write(self.build_lease(None), true).await,
            LeaseDecision::Renew | LeaseDecision::TakeOver => {
                self.write(self.build_lease(current.as_ref()), false).await
            }
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
    async fn read_own_lease(&mut self) -> Result<Option<Lease>, LeaderError> {
        if let Some(written) = self.written.take() {
            return Ok(Some(written));
        }
        let current = self.read().await?;
        Ok(current.filter(|lease| holder_of(Some(lease)) == self.settings.identity))
    }

    /// Records the observed version, and returns the time for which it has not changed.
    fn observe_version(&mut self, lease: Option<&Lease>) -> Duration {
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

    /// The Lease to write for this candidate, based on the Lease that was read.
    fn build_lease(&self, current: Option<&Lease>) -> Lease {
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

    /// Writes with the `resourceVersion` that was read. A conflict means that another client wrote first.
    async fn write(&mut self, lease: Lease, create: bool) -> Result<LeaseHolder, LeaderError> {
        let params = PostParams::default();
        let written = if create {
            self.api.create(&params, &lease).await
        } else {
            self.api.replace(&self.settings.name, &params, &lease).await
        };
        match written {
            Ok(lease) => {
                self.observe_version(Some(&lease));
                self.written = Some(lease);
                Ok(LeaseHolder::ThisProcess)
            }
            Err(kube::Error::Api(status)) if status.code == 409 || (status.code == 404 && !create) => {
                debug!(lease = self.lease_name(), "another writer was faster");
                Ok(LeaseHolder::Unknown)
            }
            Err(source) => Err(LeaderError::Write {
                name: self.lease_name(),
                source: Box::new(source),
            }),
        }
    }
}

/// Holder of the Lease after an attempt.
#[derive(Debug)]
pub(crate) enum LeaseHolder {
    ThisProcess,
    /// Another candidate is the holder; `None` while the Lease is missing and may still have a holder.
    Other(Option<Box<Lease>>),
    /// Between the read and the write, another candidate wrote the Lease, or a client changed a label.
    Unknown,
}

pub(crate) fn holder_of(lease: Option<&Lease>) -> String {
    lease
        .and_then(|l| l.spec.as_ref())
        .and_then(|s| s.holder_identity.clone())
        .unwrap_or_default()
}

/// Proof that this process holds the Lease. It is valid only while [`Leader::renew_until_stopped`] runs.
#[derive(Debug)]
pub struct Leader {
    elector: Elector,
    /// Start of the last successful renewal. Other candidates may measure the duration from any moment after it.
    renewed: watch::Sender<Instant>,
}

impl Leader {
    /// Renews the Lease until `stop` is cancelled or the Lease is lost. `Ok` means that the process still holds the
    /// Lease, and the caller releases it. `Err` means that the Lease is lost.
    ///
    /// After `Err`, the caller must stop all writes immediately.
    pub async fn renew_until_stopped(&mut self, stop: &CancellationToken) -> Result<(), LeadershipLost> {
        let LeaseSettings {
            renew_deadline, retry, ..
        } = self.elector.settings;
        let mut pause = retry;
        loop {
            // Nothing may continue beyond the deadline, in particular not a renewal without a response.
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
                Ok((begun, Ok(LeaseHolder::ThisProcess))) => {
                    self.renewed.send_replace(begun);
                    pause = retry;
                }
                Ok((_, Ok(LeaseHolder::Other(lease)))) => {
                    let holder = holder_of(lease.as_deref());
                    return Err(LeadershipLost::Taken { holder });
                }
                // The next attempt determines the holder.
                Ok((_, Ok(LeaseHolder::Unknown))) => {}
                Ok((_, Err(error))) => warn!(%error, "cannot renew the lease; it is tried again"),
                Err(_) => return Err(LeadershipLost::NotRenewed { after: renew_deadline }),
            }
        }
    }

    /// The start of the last renewal. The channel closes when the Lease is lost.
    pub(crate) fn renewals(&self) -> watch::Receiver<Instant> {
        self.renewed.subscribe()
    }

    /// Releases the Lease, so that the next holder need not wait for its expiry. Limited to the duration of one
    /// attempt.
    pub async fn release(mut self) {
        let elector = &mut self.elector;
        let release = async {
            let Some(mut lease) = elector.read_own_lease().await? else {
                return Ok(false);
            };
            if let Some(spec) = lease.spec.as_mut() {
                spec.holder_identity = Some(String::new());
                spec.lease_duration_seconds = Some(1);
                spec.renew_time = Some(MicroTime(elector.sources.now()));
            }
            let released = elector.write(lease, false).await?;
            Ok(matches!(released, LeaseHolder::ThisProcess))
        };
        let outcome = tokio::time::timeout(ATTEMPT_LIMIT, release).await;
        self.log_end("released", outcome);
    }

    /// Deletes the Lease, because the object was deleted or its driver was moved. Limited to the duration of one
    /// attempt.
    pub(crate) async fn delete(mut self) {
        let elector = &mut self.elector;
        let delete = async {
            let Some(lease) = elector.read_own_lease().await? else {
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

/// Why leadership ended.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LeadershipLost {
    /// Another candidate wrote the Lease.
    #[error("the lease was taken by {holder}")]
    Taken {
        /// Identity of the new holder, if it is known.
        holder: String,
    },
    #[error("the lease could not be renewed for {after:?}")]
    NotRenewed {
        /// The exceeded deadline.
        after: Duration,
    },
}

#[cfg(test)]
mod tests;
