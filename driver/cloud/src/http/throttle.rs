// SPDX-License-Identifier: Apache-2.0
//! How fast one cloud is asked: so many requests at a time, and none while a service wants to be left alone.

use std::time::Duration;

use csi_sources::Sources;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::http::retry::jitter;
use crate::timing::TIMING;

/// How many requests to one cloud are under way at most.
const AT_ONCE: usize = 32;

/// Why a request is not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotSent {
    /// The service asked for a pause that outlasts the caller's patience.
    Paused {
        /// So long is left of it.
        left: Duration,
        /// The answer that asked for it, in words.
        answer: String,
    },
    /// Too many requests are waiting for an answer.
    Crowded,
}

/// A pause that a service asked for.
#[derive(Debug, Clone)]
struct Pause {
    end: Instant,
    answer: String,
}

/// The throttle of one cloud, with a pause per service.
#[derive(Debug)]
pub(crate) struct Throttle {
    slots: Semaphore,
    pauses: Mutex<[Option<Pause>; 2]>,
    ahead: Mutex<SignedDuration>,
    sources: Sources,
}

impl Throttle {
    pub(crate) fn new(sources: Sources) -> Self {
        Self {
            slots: Semaphore::new(AT_ONCE),
            pauses: Mutex::default(),
            ahead: Mutex::new(SignedDuration::ZERO),
            sources,
        }
    }

    /// Waits for the service's pause to end and for a slot, until `deadline` at most.
    pub(crate) async fn acquire(&self, service: usize, deadline: Instant) -> Result<SemaphorePermit<'_>, NotSent> {
        if let Some(Pause { end, answer }) = self.pause_of(service) {
            if end >= deadline {
                let left = end.saturating_duration_since(Instant::now());
                return Err(NotSent::Paused { left, answer });
            }
            sleep_until((end + jitter(TIMING.throttle_spread, &self.sources)).min(deadline)).await;
        }
        match timeout_at(deadline, self.slots.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(NotSent::Crowded),
        }
    }

    /// The service wants to be left alone for so long, as its `answer` says. A longer pause that is known already stays.
    pub(crate) fn pause(&self, service: usize, wanted: Duration, answer: String) {
        // A time that no clock reaches is no pause that could be kept.
        let Some(end) = Instant::now().checked_add(wanted) else {
            return;
        };
        let mut pauses = self.pauses.lock();
        if let Some(pause) = pauses.get_mut(service)
            && pause.as_ref().is_none_or(|known| known.end < end)
        {
            *pause = Some(Pause { end, answer });
        }
    }

    fn pause_of(&self, service: usize) -> Option<Pause> {
        let mut pauses = self.pauses.lock();
        let pause = pauses.get_mut(service)?;
        pause.take_if(|pause| pause.end <= Instant::now());
        pause.clone()
    }

    /// Takes note of what time it is for the services.
    pub(crate) fn set_clock(&self, theirs: Timestamp) {
        *self.ahead.lock() = theirs.duration_since(self.sources.now());
    }

    /// By how much the services' clock is ahead of ours, to the second.
    pub(crate) fn ahead(&self) -> SignedDuration {
        *self.ahead.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pause_holds_the_requests_to_one_service_back_and_no_others() {
        let throttle = Throttle::new(Sources::system());
        let started = Instant::now();
        throttle.pause(0, Duration::from_secs(5), String::new());
        let deadline = started + Duration::from_secs(30);
        drop(throttle.acquire(1, deadline).await.expect("the other service"));
        assert_eq!(started.elapsed(), Duration::ZERO);
        drop(throttle.acquire(0, deadline).await.expect("after the pause"));
        let waited = started.elapsed();
        assert!(
            waited >= Duration::from_secs(5) && waited <= Duration::from_secs(6),
            "{waited:?}"
        );
        drop(throttle.acquire(0, deadline).await.expect("at once"));
        assert_eq!(started.elapsed(), waited);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_outlasts_the_caller_is_told_at_once() {
        let throttle = Throttle::new(Sources::system());
        let pause = |wanted, answer: &str| throttle.pause(0, wanted, answer.to_owned());
        pause(Duration::from_secs(5), "five seconds");
        pause(Duration::from_mins(5), "five minutes");
        pause(Duration::from_secs(1), "one second");
        pause(Duration::MAX, "for ever");
        let held = throttle.acquire(0, Instant::now() + Duration::from_mins(1)).await.err();
        let longest = NotSent::Paused {
            left: Duration::from_mins(5),
            answer: "five minutes".to_owned(),
        };
        assert_eq!(held, Some(longest));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_that_does_not_come_ends_with_the_deadline() {
        let throttle = Throttle::new(Sources::system());
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut taken = Vec::new();
        for _ in 0..AT_ONCE {
            taken.push(throttle.acquire(0, deadline).await.expect("free"));
        }
        assert_eq!(throttle.acquire(0, deadline).await.err(), Some(NotSent::Crowded));
        taken.pop();
        assert!(
            throttle
                .acquire(0, Instant::now() + Duration::from_secs(1))
                .await
                .is_ok()
        );
    }
}
