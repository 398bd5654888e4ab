// SPDX-License-Identifier: Apache-2.0
//! When to try again: a bounded number of times, within a budget of time, with jitter so that many callers do not come back at once.

use std::time::Duration;

use csi_sources::Sources;
use tokio::time::Instant;

use crate::timing::TIMING;

const MAX_ATTEMPTS: u32 = 5;

/// The repeats of one request.
#[derive(Debug)]
pub(crate) struct Retry<'a> {
    deadline: Instant,
    sources: &'a Sources,
    attempt: u32,
}

impl<'a> Retry<'a> {
    /// Repeats that begin within `budget` from now.
    pub(crate) fn within(budget: Duration, sources: &'a Sources) -> Self {
        Self {
            deadline: Instant::now() + budget,
            sources,
            attempt: 1,
        }
    }

    /// The pause before the next attempt; `None` when there shall be none. `at_least` is what the service asked for.
    pub(crate) fn next(&mut self, at_least: Option<Duration>) -> Option<Duration> {
        if self.attempt >= MAX_ATTEMPTS {
            return None;
        }
        let ceiling = TIMING
            .request_retry_first
            .saturating_mul(1 << self.attempt.min(16))
            .min(TIMING.request_retry_max);
        self.attempt += 1;
        let delay = at_least
            .unwrap_or_default()
            .saturating_add(jitter(ceiling, self.sources));
        // A service may name a time that no clock reaches.
        let at = Instant::now().checked_add(delay)?;
        (at < self.deadline).then_some(delay)
    }
}

/// A random share, a half to the whole, of a duration.
pub(crate) fn jitter(of: Duration, sources: &Sources) -> Duration {
    let share = 0.5 + (sources.random() >> 40) as f64 / f64::from(1_u32 << 24) / 2.0;
    of.mul_f64(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn repeats_end_after_a_fixed_number() {
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
    async fn the_wish_of_the_service_is_a_lower_bound() {
        let sources = Sources::system();
        let mut retry = Retry::within(Duration::from_hours(1), &sources);
        let delay = retry.next(Some(Duration::from_secs(7))).expect("time is left");
        assert!(
            delay >= Duration::from_secs(7) && delay < Duration::from_secs(8),
            "{delay:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_wish_beyond_the_budget_ends_the_repeats() {
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
