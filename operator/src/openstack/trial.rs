// SPDX-License-Identifier: Apache-2.0
//! The last login with the credentials of a cloud, and how long its result is valid.

use std::time::Duration;

use cinder_cloud::config::Proxies;
use cinder_operator_core::{
    clouds::{CloudFacts, CloudState},
    reasons::{Refusal, Refused},
};
use tokio::time::Instant;

use super::{credential_source::Candidate, keystone::LoginFacts};

/// Pause after the first failed login; it doubles up to the check interval.
pub(super) const FIRST_PAUSE: Duration = Duration::from_secs(10);

/// Rejected contents of a Secret in a row. Keystone may lock a user after some failed logins.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RefusedContents {
    pub(super) count: u32,
    last: Option<Instant>,
}

impl RefusedContents {
    /// The pause before the next new content is checked. The first content after a rejected one has no pause.
    pub(super) fn pause(self, interval: Duration, now: Instant) -> Option<Duration> {
        let last = self.last.filter(|_| self.count > 1)?;
        remaining(self.count, interval, now.duration_since(last))
    }

    /// Counts a rejected content. The count restarts after `interval` without one.
    pub(super) fn add(&mut self, interval: Duration, now: Instant) {
        let is_over = self.last.is_none_or(|last| now.duration_since(last) > interval);
        self.count = if is_over { 1 } else { self.count.saturating_add(1) };
        self.last = Some(now);
    }
}

/// The remainder of a pause that begins with [`FIRST_PAUSE`] and doubles with each failure up to `interval`.
fn remaining(failures: u32, interval: Duration, elapsed: Duration) -> Option<Duration> {
    let factor = 2_u32.saturating_pow(failures.saturating_sub(1));
    let pause = FIRST_PAUSE.saturating_mul(factor).min(interval);
    pause.checked_sub(elapsed).filter(|rest| !rest.is_zero())
}

/// The last check of one cloud of one driver.
#[derive(Debug, Clone)]
pub(super) struct Trial {
    pub(super) hash: String,
    /// The proxies of the connection. The hash of the credentials does not cover them.
    pub(super) proxies: Proxies,
    pub(super) at: Instant,
    pub(super) failures: u32,
    pub(super) result: Result<LoginFacts, Refused>,
    /// Whether the check must be repeated before its result expires.
    pub(super) is_outdated: bool,
    pub(super) state: CloudState,
    pub(super) refused_contents: RefusedContents,
}

impl Trial {
    /// Whether the check used the same credentials and proxies.
    pub(super) fn is_same_login(&self, candidate: &Candidate) -> bool {
        self.hash == candidate.credentials.hash() && self.proxies == candidate.config.proxies
    }

    /// Whether Keystone rejected the login. An outage does not lock a user.
    pub(super) fn is_refused(&self) -> bool {
        let refusal = self.result.as_ref().err();
        let reasons = [Refusal::CredentialsRejected, Refusal::CredentialsForbidden];
        refusal.is_some_and(|refusal| reasons.contains(&refusal.reason))
    }

    /// Remaining validity of this result.
    pub(super) fn remaining_validity(&self, interval: Duration, now: Instant) -> Option<Duration> {
        if self.is_outdated {
            return None;
        }
        let elapsed = now.duration_since(self.at);
        match self.failures {
            0 => interval.checked_sub(elapsed).filter(|rest| !rest.is_zero()),
            failures => remaining(failures.max(self.refused_contents.count), interval, elapsed),
        }
    }
}

/// Merges the state that a successful check read. Zones that the check could not read remain unchanged.
pub(super) fn merge_state(before: CloudState, read: &CloudState) -> CloudState {
    fn newest<T: Clone>(read: &[T], before: Vec<T>) -> Vec<T> {
        if read.is_empty() { before } else { read.to_vec() }
    }
    CloudState {
        facts: CloudFacts {
            compute_zones: newest(&read.facts.compute_zones, before.facts.compute_zones),
            volume_zones: newest(&read.facts.volume_zones, before.facts.volume_zones),
        },
        ..read.clone()
    }
}
