// SPDX-License-Identifier: Apache-2.0
//! Limits the requests to one cloud: a number of concurrent requests for each service, and no request during a pause
//! that a service requested.
//!
//! A pause never exceeds `throttle_max`, whatever the service requested. After a shortened pause, a single request
//! probes the service, and the others wait for its result. When a probe gets no answer, the next request becomes the
//! probe.

use std::time::Duration;

use csi_sources::Sources;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use crate::http::retry::jitter;
use crate::http::service::Service;
use crate::timing::{TIMING, time_after};

/// Concurrent reads per service. Writes cannot take their slots, so that polls continue while changes hang.
const READS: usize = 16;
/// Concurrent writes per service. An attach request is an RPC to the server's host, and the driver sends one at a
/// time per server. So requests to other servers still get slots while a rack does not answer.
const WRITES: usize = 64;

/// Whether a request reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The reason why a request is not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotSent {
    /// The service requested a pause that ends after the caller's deadline.
    Paused {
        remaining: Duration,
        /// Operation, status and request id of the response that requested it.
        answer: String,
    },
    /// The pause was shortened, and the request that probes the service has no result yet.
    Probing { answer: String },
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

/// Whether requests to a service may be sent.
#[derive(Debug, Default)]
enum Gate {
    #[default]
    Open,
    /// The service requested a pause.
    Paused(Pause),
    /// A request probes whether the service still needs the pause, which this answer requested.
    Probing(String),
}

#[derive(Debug)]
struct Pause {
    end: Instant,
    /// Whether the service requested a longer pause.
    is_cut: bool,
    answer: String,
}

/// The next step of a request at a gate.
enum GateStep<'a> {
    Pass,
    PassAsProbe(Probe<'a>),
    /// Waits for the end of a pause, or for the result of the probe when there is no end.
    Wait(Option<Instant>, String),
}

/// The permission to send one request. It ends with the request.
#[derive(Debug)]
pub(crate) struct Slot<'a> {
    _permit: SemaphorePermit<'a>,
    _probe: Option<Probe<'a>>,
}

/// The only request after a shortened pause. If the service does not answer it, one of the waiting requests becomes
/// the next probe.
#[derive(Debug)]
struct Probe<'a> {
    throttle: &'a Throttle,
    service: Service,
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        let mut gates = self.throttle.gates.lock();
        if let Some(gate) = gates.get_mut(self.service.index())
            && let Gate::Probing(answer) = gate
        {
            *gate = Gate::Paused(Pause {
                end: Instant::now(),
                is_cut: true,
                answer: std::mem::take(answer),
            });
        }
        drop(gates);
        self.throttle.changed.notify_waiters();
    }
}

/// The throttle of one cloud, with slots and a gate per service.
#[derive(Debug)]
pub(crate) struct Throttle {
    slots: [Slots; 2],
    gates: Mutex<[Gate; 2]>,
    /// Wakes the requests that wait at a gate.
    changed: Notify,
    ahead: Mutex<SignedDuration>,
    sources: Sources,
}

impl Throttle {
    pub(crate) fn new(sources: Sources) -> Self {
        Self {
            slots: Default::default(),
            gates: Mutex::default(),
            changed: Notify::new(),
            ahead: Mutex::new(SignedDuration::ZERO),
            sources,
        }
    }

    /// Waits for the service's pause to end and for a slot, at most until `deadline`.
    pub(crate) async fn acquire(
        &self,
        service: Service,
        access: Access,
        deadline: Instant,
    ) -> Result<Slot<'_>, NotSent> {
        let probe = self.pass_gate(service, deadline).await?;
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
            Ok(Ok(permit)) => Ok(Slot {
                _permit: permit,
                _probe: probe,
            }),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(NotSent::Crowded),
        }
    }

    async fn pass_gate(&self, service: Service, deadline: Instant) -> Result<Option<Probe<'_>>, NotSent> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registers before the check, so that no change is missed.
            changed.as_mut().enable();
            let (end, answer) = match self.gate_step(service) {
                GateStep::Pass => return Ok(None),
                GateStep::PassAsProbe(probe) => return Ok(Some(probe)),
                GateStep::Wait(end, answer) => (end, answer),
            };
            if let Some(end) = end.filter(|end| *end >= deadline) {
                let remaining = end.saturating_duration_since(Instant::now());
                return Err(NotSent::Paused { remaining, answer });
            }
            let until = end.map_or(deadline, |end| {
                time_after(end, jitter(TIMING.throttle_spread, &self.sources))
            });
            let has_changed = timeout_at(until.min(deadline), changed).await.is_ok();
            if end.is_none() && !has_changed {
                return Err(NotSent::Probing { answer });
            }
        }
    }

    fn gate_step(&self, service: Service) -> GateStep<'_> {
        let mut gates = self.gates.lock();
        let Some(gate) = gates.get_mut(service.index()) else {
            return GateStep::Pass;
        };
        match gate {
            Gate::Open => GateStep::Pass,
            Gate::Probing(answer) => GateStep::Wait(None, answer.clone()),
            Gate::Paused(pause) if pause.end > Instant::now() => GateStep::Wait(Some(pause.end), pause.answer.clone()),
            Gate::Paused(pause) if pause.is_cut => {
                *gate = Gate::Probing(std::mem::take(&mut pause.answer));
                let throttle = self;
                GateStep::PassAsProbe(Probe { throttle, service })
            }
            Gate::Paused(_) => {
                *gate = Gate::Open;
                GateStep::Pass
            }
        }
    }

    /// Pauses a service as its `answer` requested, for at most `throttle_max`. A known later end remains in effect.
    /// Returns whether this pause is the later one.
    pub(crate) fn pause(&self, service: Service, requested: Duration, answer: String) -> bool {
        let pause = Pause {
            end: time_after(Instant::now(), requested.min(TIMING.throttle_max)),
            is_cut: requested > TIMING.throttle_max,
            answer,
        };
        let mut gates = self.gates.lock();
        let Some(gate) = gates.get_mut(service.index()) else {
            return false;
        };
        let is_later = match gate {
            Gate::Paused(current) => current.end < pause.end,
            Gate::Open | Gate::Probing(_) => true,
        };
        if is_later {
            *gate = Gate::Paused(pause);
        }
        is_later
    }

    /// Ends a probe: the service answered without a request for another pause.
    pub(crate) fn note_answer(&self, service: Service) {
        let mut gates = self.gates.lock();
        if let Some(gate) = gates.get_mut(service.index())
            && matches!(gate, Gate::Probing(_))
        {
            *gate = Gate::Open;
            self.changed.notify_waiters();
        }
    }

    /// Ends the pauses of all services.
    pub(crate) fn resume(&self) {
        *self.gates.lock() = Default::default();
        self.changed.notify_waiters();
    }

    /// Records the services' clock. A difference of more than a day counts as a day.
    pub(crate) fn set_clock(&self, theirs: Timestamp) {
        let most = TIMING.clock_difference_max;
        *self.ahead.lock() = theirs
            .duration_since(self.sources.now())
            .clamp(SignedDuration::ZERO.saturating_sub(most), most);
    }

    /// The difference between the services' clock and the local clock, in whole seconds. Positive when the services
    /// are ahead.
    pub(crate) fn ahead(&self) -> SignedDuration {
        *self.ahead.lock()
    }
}

/// The requested pause, at most `throttle_max`.
pub(crate) fn limit_pause(requested: Option<Duration>) -> Option<Duration> {
    requested.map(|requested| requested.min(TIMING.throttle_max))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pause_affects_one_service_only() {
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
    async fn pause_beyond_deadline_fails_at_once() {
        let throttle = Throttle::new(Sources::system());
        let pause = |requested, answer: &str| throttle.pause(Service::BlockStorage, requested, answer.to_owned());
        pause(Duration::from_secs(5), "five seconds");
        pause(Duration::from_mins(5), "five minutes");
        pause(Duration::from_secs(1), "one second");
        pause(Duration::MAX, "for ever");
        let until = Instant::now() + Duration::from_mins(1);
        let held = throttle.acquire(Service::BlockStorage, Access::Read, until).await.err();
        let longest = NotSent::Paused {
            remaining: Duration::from_mins(5),
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

    const PAUSE: Duration = Duration::from_mins(5);

    /// A throttle of which Cinder requested a pause of one day, and a deadline after it.
    fn cut_pause() -> (Throttle, Instant) {
        let throttle = Throttle::new(Sources::system());
        throttle.pause(Service::BlockStorage, Duration::from_hours(24), "one day".to_owned());
        (throttle, Instant::now() + 3 * PAUSE)
    }

    async fn read(throttle: &Throttle, deadline: Instant) -> Result<Slot<'_>, NotSent> {
        throttle.acquire(Service::BlockStorage, Access::Read, deadline).await
    }

    #[tokio::test(start_paused = true)]
    async fn single_probe_follows_shortened_pause() {
        let (throttle, deadline) = cut_pause();
        let started = Instant::now();
        let probe = read(&throttle, deadline).await.expect("the probe");
        let waited = started.elapsed();
        assert!(
            waited >= PAUSE && waited <= PAUSE + TIMING.throttle_spread,
            "{waited:?}"
        );
        // The other requests wait for its result, at most until their deadlines.
        let held = read(&throttle, Instant::now() + Duration::from_secs(1)).await.err();
        let expected = NotSent::Probing {
            answer: "one day".to_owned(),
        };
        assert_eq!(held, Some(expected));
        let others = futures::future::join_all((0..3).map(|_| read(&throttle, deadline)));
        let ((), others) = tokio::join!(async { throttle.note_answer(Service::BlockStorage) }, others);
        drop(probe);
        assert!(others.iter().all(Result::is_ok), "{others:?}");
        assert!(
            started.elapsed() < PAUSE + Duration::from_secs(2),
            "nothing else is waited for"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn another_probe_follows_unanswered_probe() {
        let (throttle, deadline) = cut_pause();
        drop(read(&throttle, deadline).await.expect("the probe"));
        let next = read(&throttle, deadline).await.expect("the next probe");
        let held = read(&throttle, Instant::now() + Duration::from_secs(1)).await.err();
        assert!(matches!(held, Some(NotSent::Probing { .. })), "{held:?}");
        let (waiting, ()) = tokio::join!(read(&throttle, deadline), async { drop(next) });
        assert!(waiting.is_ok(), "{waiting:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn rejected_probe_starts_another_pause() {
        let (throttle, deadline) = cut_pause();
        let started = Instant::now();
        for round in 1..=2 {
            let probe = read(&throttle, deadline).await.expect("the probe");
            assert!(started.elapsed() >= round * PAUSE, "{:?}", started.elapsed());
            throttle.pause(Service::BlockStorage, Duration::MAX, "still".to_owned());
            drop(probe);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn resume_releases_waiting_requests() {
        let (throttle, deadline) = cut_pause();
        let started = Instant::now();
        let (slot, ()) = tokio::join!(read(&throttle, deadline), async { throttle.resume() });
        slot.expect("at once");
        assert_eq!(started.elapsed(), Duration::ZERO);
    }

    #[rstest]
    #[case("9999-12-30T21:59:59Z", 24)]
    #[case("0001-01-01T00:00:00Z", -24)]
    #[case("1970-01-01T00:00:00Z", -24)]
    #[case("2026-01-01T01:00:00Z", 1)]
    fn clock_difference_is_bounded(#[case] theirs: &str, #[case] hours: i64) {
        let now = "2026-01-01T00:00:00Z".parse().expect("a time");
        let throttle = Throttle::new(Sources::seeded(1, now));
        throttle.set_clock(theirs.parse().expect("a time"));
        let ahead = throttle.ahead();
        assert!(
            (ahead - SignedDuration::from_hours(hours)).abs() < SignedDuration::from_mins(1),
            "{ahead}"
        );
    }
}
