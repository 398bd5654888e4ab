// SPDX-License-Identifier: Apache-2.0
//! Leader election on a `coordination.k8s.io` Lease.
//!
//! One operator reconciles at a time; the others stand by. What makes that safe:
//!
//! * Every write carries the `resourceVersion` that was read, so of two candidates one loses with a conflict.
//! * A foreign lease counts as expired when it was **seen unchanged** for its whole duration on this process's own
//!   monotonic clock. The times inside the Lease are for people; nothing compares clocks of two machines.
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
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Client,
    api::{ObjectMeta, PostParams},
};
use thiserror::Error;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::kubernetes::GuardedApi;

/// Pause after a renewal that failed.
const FAILED_PAUSE: Duration = Duration::from_secs(2);

/// How long one attempt may take: a request to an API server that went away without a word must not use up the time of the next ones.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(5);

/// Who competes for which Lease, and at what pace.
#[derive(Debug, Clone)]
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

/// Decides from the Lease as read and from how long it was seen unchanged.
fn decide(lease: Option<&Lease>, identity: &str, unchanged_for: Duration) -> LeaseDecision {
    let Some(lease) = lease else {
        return LeaseDecision::Create;
    };
    let spec = lease.spec.as_ref();
    let holder = spec.and_then(|s| s.holder_identity.as_deref()).unwrap_or_default();
    if holder == identity {
        return LeaseDecision::Renew;
    }
    let seconds = spec.and_then(|s| s.lease_duration_seconds).unwrap_or_default();
    let duration = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    if holder.is_empty() || unchanged_for > duration {
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
}

impl Elector {
    /// A candidate that has not looked yet.
    pub fn new(client: Client, settings: LeaseSettings, sources: Sources) -> Self {
        Self {
            api: GuardedApi::namespaced(client, &settings.namespace),
            settings,
            sources,
            seen: None,
        }
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
                attempt = self.bounded_attempt() => attempt,
            };
            match attempt {
                Ok(Held::Mine(lease)) => {
                    info!(lease = self.lease_name(), identity = self.settings.identity, "leading");
                    return Some(Leader {
                        renewed: begun,
                        lease: *lease,
                        elector: self,
                    });
                }
                // The next look shows who was faster.
                Ok(Held::Changed) => {}
                Ok(Held::By(holder)) => {
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

    async fn bounded_attempt(&mut self) -> Result<Held, LeaderError> {
        let limit = ATTEMPT_LIMIT;
        let name = self.lease_name();
        tokio::time::timeout(limit, self.attempt())
            .await
            .unwrap_or(Err(LeaderError::NoAnswer { name, limit }))
    }

    async fn attempt(&mut self) -> Result<Held, LeaderError> {
        let current = self
            .api
            .get_opt(&self.settings.name)
            .await
            .map_err(|source| LeaderError::Read {
                name: self.lease_name(),
                source: Box::new(source),
            })?;
        let unchanged_for = self.note(current.as_ref());
        match decide(current.as_ref(), &self.settings.identity, unchanged_for) {
            LeaseDecision::Wait => Ok(Held::By(holder_of(current.as_ref()))),
            LeaseDecision::Create => self.write(self.mine(None), true).await,
            LeaseDecision::Renew | LeaseDecision::TakeOver => self.write(self.mine(current.as_ref()), false).await,
        }
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
        Lease {
            metadata: current.map_or_else(
                || ObjectMeta {
                    name: Some(self.settings.name.clone()),
                    namespace: Some(self.settings.namespace.clone()),
                    ..ObjectMeta::default()
                },
                |l| l.metadata.clone(),
            ),
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
                Ok(Held::Mine(Box::new(lease)))
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {
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
enum Held {
    Mine(Box<Lease>),
    By(String),
    /// Unknown: between the look and the write it was written, by another candidate or by someone who set a label.
    Changed,
}

fn holder_of(lease: Option<&Lease>) -> String {
    lease
        .and_then(|l| l.spec.as_ref())
        .and_then(|s| s.holder_identity.clone())
        .unwrap_or_default()
}

/// Proof of holding the Lease. It has to be kept alive by [`Leader::keep`].
#[derive(Debug)]
pub struct Leader {
    elector: Elector,
    lease: Lease,
    /// When the last renewal that succeeded was begun: the others may count from any moment after that.
    renewed: Instant,
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
            let deadline = self.renewed + renew_deadline;
            let renewal = async {
                tokio::time::sleep(pause).await;
                (Instant::now(), self.elector.bounded_attempt().await)
            };
            let attempt = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                attempt = tokio::time::timeout_at(deadline, renewal) => attempt,
            };
            pause = FAILED_PAUSE;
            match attempt {
                Ok((begun, Ok(Held::Mine(lease)))) => {
                    self.renewed = begun;
                    self.lease = *lease;
                    pause = retry;
                }
                Ok((_, Ok(Held::By(holder)))) => return Err(LeadershipLost::Taken { holder }),
                // Whose it is, the next look tells.
                Ok((_, Ok(Held::Changed))) => {}
                Ok((_, Err(error))) => warn!(%error, "cannot renew the lease; it is tried again"),
                Err(_) => return Err(LeadershipLost::NotRenewed { after: renew_deadline }),
            }
        }
    }

    /// Gives the Lease back, so that the next holder need not wait for its expiry. Bounded by one retry interval.
    pub async fn release(self) {
        let mut lease = self.lease;
        if let Some(spec) = lease.spec.as_mut() {
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(self.elector.sources.now()));
        }
        let settings = &self.elector.settings;
        let params = PostParams::default();
        let write = self.elector.api.replace(&settings.name, &params, &lease);
        match tokio::time::timeout(settings.retry, write).await {
            Ok(Ok(_)) => info!(lease = self.elector.lease_name(), "released"),
            Ok(Err(error)) => {
                warn!(%error, lease = self.elector.lease_name(), "could not release the lease; it will expire");
            }
            Err(_) => warn!(
                lease = self.elector.lease_name(),
                "could not release the lease in time; it will expire"
            ),
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
