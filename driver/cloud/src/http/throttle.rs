// SPDX-License-Identifier: Apache-2.0
//! Limits the requests to one cloud: a number at a time for each service, and none during a pause that a service requested.

use std::time::Duration;

use csi_sources::Sources;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::http::retry::jitter;
use crate::http::service::Service;
use crate::timing::TIMING;

/// Concurrent reads per service. Writes cannot take their slots: polls continue while requests to change something hang.
const READS: usize = 16;
/// Concurrent writes per service. An attach request is an RPC to the server's host, and there is one at a time per server. So requests to
/// other servers still get slots while a rack does not answer.
const WRITES: usize = 64;

/// Whether a request only reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

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
    /// Too many requests to the service are waiting for an answer.
    Crowded,
}

/// The slots of one service.
#[derive(Debug)]
struct Slots {
    reads: Semaphore,
    writes: Semaphore,
}

impl Default for Slots {
    fn default() -> Self {
        Self {
            reads: Semaphore::new(READS),
            writes: Semaphore::new(WRITES),
        }
    }
}

/// A pause that a service asked for.
#[derive(Debug, Clone)]
struct Pause {
    end: Instant,
    answer: String,
}

/// The throttle of one cloud, with slots and a pause per service.
#[derive(Debug)]
pub(crate) struct Throttle {
    slots: [Slots; 2],
    pauses: Mutex<[Option<Pause>; 2]>,
    ahead: Mutex<SignedDuration>,
    sources: Sources,
}

impl Throttle {
    pub(crate) fn new(sources: Sources) -> Self {
        Self {
            slots: Default::default(),
            pauses: Mutex::default(),
            ahead: Mutex::new(SignedDuration::ZERO),
            sources,
        }
    }

    /// Waits for the service's pause to end and for a slot, until `deadline` at most.
    pub(crate) async fn acquire(
        &self,
        service: Service,
        access: Access,
        deadline: Instant,
    ) -> Result<SemaphorePermit<'_>, NotSent> {
        if let Some(Pause { end, answer }) = self.pause_of(service) {
            if end >= deadline {
                let left = end.saturating_duration_since(Instant::now());
                return Err(NotSent::Paused { left, answer });
            }
            sleep_until((end + jitter(TIMING.throttle_spread, &self.sources)).min(deadline)).await;
        }
        let [cinder, nova] = &self.slots;
        let slots = match service {
            Service::BlockStorage => cinder,
            Service::Compute => nova,
        };
        let slot = match access {
            Access::Read => slots.reads.acquire(),
            Access::Write => slots.writes.acquire(),
        };
        match timeout_at(deadline, slot).await {
            Ok(Ok(permit)) => Ok(permit),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(NotSent::Crowded),
        }
    }

    /// The service wants to be left alone for so long, as its `answer` says. A longer pause that is known already stays.
    pub(crate) fn pause(&self, service: Service, wanted: Duration, answer: String) {
        // A time that no clock reaches is no pause that could be kept.
        let Some(end) = Instant::now().checked_add(wanted) else {
            return;
        };
        let mut pauses = self.pauses.lock();
        if let Some(pause) = pauses.get_mut(service.index())
            && pause.as_ref().is_none_or(|known| known.end < end)
        {
            *pause = Some(Pause { end, answer });
        }
    }

    fn pause_of(&self, service: Service) -> Option<Pause> {
        let mut pauses = self.pauses.lock();
        let pause = pauses.get_mut(service.index())?;
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
        throttle.pause(Service::BlockStorage, Duration::from_secs(5), String::new());
        let deadline = started + Duration::from_secs(30);
        drop(
            throttle
                .acquire(Service::Compute, Access::Read, deadline)
                .await
                .expect("the other service"),
        );
        assert_eq!(started.elapsed(), Duration::ZERO);
        drop(
            throttle
                .acquire(Service::BlockStorage, Access::Read, deadline)
                .await
                .expect("after the pause"),
        );
        let waited = started.elapsed();
        assert!(
            waited >= Duration::from_secs(5) && waited <= Duration::from_secs(6),
            "{waited:?}"
        );
        drop(
            throttle
                .acquire(Service::BlockStorage, Access::Read, deadline)
                .await
                .expect("at once"),
        );
        assert_eq!(started.elapsed(), waited);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_outlasts_the_caller_is_told_at_once() {
        let throttle = Throttle::new(Sources::system());
        let pause = |wanted, answer: &str| throttle.pause(Service::BlockStorage, wanted, answer.to_owned());
        pause(Duration::from_secs(5), "five seconds");
        pause(Duration::from_mins(5), "five minutes");
        pause(Duration::from_secs(1), "one second");
        pause(Duration::MAX, "for ever");
        let until = Instant::now() + Duration::from_mins(1);
        let held = throttle.acquire(Service::BlockStorage, Access::Read, until).await.err();
        let longest = NotSent::Paused {
            left: Duration::from_mins(5),
            answer: "five minutes".to_owned(),
        };
        assert_eq!(held, Some(longest));
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_writes_leave_slots_to_others() {
        let throttle = Throttle::new(Sources::system());
        let deadline = Instant::now() + Duration::from_secs(10);
        let write = || throttle.acquire(Service::Compute, Access::Write, deadline);
        let mut hanging = Vec::new();
        for _ in 0..WRITES {
            hanging.push(write().await.expect("a free slot"));
        }
        assert_eq!(write().await.err(), Some(NotSent::Crowded));
        let now = Instant::now();
        for (service, access) in [
            (Service::Compute, Access::Read),
            (Service::BlockStorage, Access::Read),
            (Service::BlockStorage, Access::Write),
        ] {
            assert!(
                throttle.acquire(service, access, now).await.is_ok(),
                "{service:?} {access:?}"
            );
        }
        hanging.pop();
        assert!(throttle.acquire(Service::Compute, Access::Write, now).await.is_ok());
    }
}
