// SPDX-License-Identifier: Apache-2.0
//! Retries: a bounded number, within a time budget, with jitter so that many callers do not return at once.

use std::time::Duration;

use csi_sources::Sources;
use tokio::time::Instant;

use crate::timing::{TIMING, time_after};

const MAX_ATTEMPTS: u32 = 5;

/// The retries of one request.
#[derive(Debug)]
pub(crate) struct Retry<'a> {
    deadline: Instant,
    sources: &'a Sources,
    attempt: u32,
}

impl<'a> Retry<'a> {
    /// Retries that start within `budget` from now.
    pub(crate) fn within(budget: Duration, sources: &'a Sources) -> Self {
        Self {
            deadline: time_after(Instant::now(), budget),
            sources,
            attempt: 1,
        }
    }

    /// The pause before the next attempt; `None` when the retries are exhausted. `at_least` is the pause that the
    /// service requested.
    pub(crate) fn next(&mut self, at_least: Option<Duration>) -> Option<Duration> {
        if self.attempt >= MAX_ATTEMPTS {
            return None;
        }
        let ceiling = TIMING
            .request_retry_first
            .saturating_mul(2_u32.saturating_pow(self.attempt))
            .min(TIMING.request_retry_max);
        self.attempt = self.attempt.saturating_add(1);
        let delay = at_least
            .unwrap_or_default()
            .saturating_add(jitter(ceiling, self.sources));
        // A service may request a time that the clock cannot represent.
        let at = Instant::now().checked_add(delay)?;
        (at < self.deadline).then_some(delay)
    }
}

/// Returns a random share of a duration, from a half to the whole.
pub(crate) fn jitter(of: Duration, sources: &Sources) -> Duration {
    let share = 0.5 + (sources.random() >> 40) as f64 / f64::from(1_u32 << 24) / 2.0;
    of.mul_f64(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn retries_are_limited() {
        let sources = Sources::system();
        let mut retry = Retry::within(Duration::from_hours(1), &sources);
        let delays: Vec<Duration> = std::iter::from_fn(|| retry.next(None)).collect();
        assert_eq!(delays.len(), 4);
        assert!(
            delays.iter().all(|delay| *delay <= TIMING.request_retry_max),
            "{delays:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_is_lower_bound() {
        let sources = Sources::system();
        let mut retry = Retry::within(Duration::from_hours(1), &sources);
        let delay = retry.next(Some(Duration::from_secs(7))).expect("time is left");
        assert!(
            delay >= Duration::from_secs(7) && delay < Duration::from_secs(8),
            "{delay:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_beyond_budget_ends_retries() {
        let sources = Sources::system();
        assert_eq!(
            Retry::within(Duration::from_secs(30), &sources).next(Some(Duration::from_mins(1))),
            None
        );
        assert_eq!(
            Retry::within(Duration::from_secs(30), &sources).next(Some(Duration::from_secs(u64::MAX))),
            None
        );
    }
}
