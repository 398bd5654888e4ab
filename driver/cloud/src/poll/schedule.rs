// SPDX-License-Identifier: Apache-2.0
//! The times of polls: one learned duration per kind of operation, then intervals that grow with the wait.
//!
//! The first poll comes at the learned duration of the operation or a little earlier. Later polls follow at a quarter
//! of the elapsed time.

use std::time::Duration;

use crate::timing::TIMING;

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Create,
    Delete,
    Attach,
    Detach,
    Extend,
    Retype,
    /// The end of an operation that another client started.
    Settle,
}

const KINDS: usize = 7;

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Attach => "attach",
            Self::Detach => "detach",
            Self::Extend => "extend",
            Self::Retype => "retype",
            Self::Settle => "settle",
        }
    }

    fn index(self) -> usize {
        self as usize
    }

    /// The initial estimate in seconds, measured with Cinder and Nova on an idle cloud with a file driver. An estimate
    /// that is too short costs a few polls once. An estimate that is too long delays the first operations.
    fn prior(self) -> f64 {
        match self {
            Self::Create => 0.9,
            Self::Delete => 0.4,
            Self::Detach | Self::Extend => 0.7,
            Self::Attach | Self::Retype => 1.0,
            Self::Settle => 0.5,
        }
    }
}

/// The reduction of the next first poll after one, two, or more consecutive operations that had finished by their first
/// poll. Such a poll does not show when the operation finished.
const SOONER: [f64; 3] = [0.8, 0.7, 0.5];
/// The maximum increase after a first poll that came too early. A single slow operation has a limited effect.
const LATER: f64 = 1.5;

/// The learned duration of a kind of operation.
#[derive(Debug, Clone, Copy)]
struct LearnedDuration {
    /// The time to the next first poll, in seconds.
    took: f64,
    /// The number of consecutive operations that had finished by their first poll.
    at_first: usize,
}

#[derive(Debug, Default)]
pub(crate) struct PollSchedule {
    learned: [Option<LearnedDuration>; KINDS],
}

impl PollSchedule {
    /// The time from the request to the first poll.
    pub(crate) fn first_poll(&self, kind: Kind) -> Duration {
        let took = self.learned[kind.index()].map_or(kind.prior(), |learned| learned.took);
        Duration::from_secs_f64(took).clamp(TIMING.first_poll_min, TIMING.first_poll_max)
    }

    /// Records an operation that poll number `polls` saw finished `found` after its request. `first_poll` was its time
    /// to the first poll.
    pub(crate) fn finished(&mut self, kind: Kind, first_poll: Duration, polls: u32, found: Duration) {
        let next = self.first_poll(kind);
        let (found, expected) = (found.as_secs_f64(), next.as_secs_f64());
        let previous = self.learned[kind.index()];
        let at_first = previous.map_or(0, |previous| previous.at_first);
        let (took, at_first) = match (polls, previous) {
            // One of many operations that started before the first of them was seen finished. It adds no information.
            (0 | 1, Some(_)) if first_poll > next => return,
            (0 | 1, _) => (found * SOONER[at_first.min(SOONER.len() - 1)], at_first + 1),
            // The first operation of a process takes longer than later ones.
            (_, None) => (expected, 0),
            (_, Some(_)) => (found.min(expected * LATER), 0),
        };
        self.learned[kind.index()] = Some(LearnedDuration { took, at_first });
    }
}

/// The interval to the next poll of an operation that was pending `waited` after its request.
pub(crate) fn poll_interval(waited: Duration) -> Duration {
    let gap = (waited / 4).clamp(TIMING.poll_gap_min, TIMING.poll_gap_max);
    gap.max((waited / 30).min(TIMING.poll_gap_old_max))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates an operation. Returns its number of polls and the delay until its end is seen.
    fn operation(schedule: &mut PollSchedule, latency: f64) -> (u32, f64) {
        let first_poll = schedule.first_poll(Kind::Attach);
        let (mut at, mut polls) = (first_poll, 1);
        while at.as_secs_f64() < latency {
            at += poll_interval(at);
            polls += 1;
        }
        schedule.finished(Kind::Attach, first_poll, polls, at);
        (polls, at.as_secs_f64() - latency)
    }

    #[test]
    fn equal_operations_take_two_polls_at_most() {
        for latency in [0.0, 0.05, 0.3, 0.8, 1.2, 2.5] {
            let mut schedule = PollSchedule::default();
            for _ in 0..20 {
                operation(&mut schedule, latency);
            }
            let (polls, late): (Vec<u32>, Vec<f64>) = (0..20).map(|_| operation(&mut schedule, latency)).unzip();
            assert!(polls.iter().all(|polls| *polls <= 2), "{latency}: {polls:?}");
            assert!(late.iter().all(|late| *late <= 0.4), "{latency}: {late:?}");
        }
    }

    #[test]
    fn schedule_adapts_to_much_faster_operations() {
        let mut schedule = PollSchedule::default();
        operation(&mut schedule, 1.1);
        let late: Vec<f64> = (0..4).map(|_| operation(&mut schedule, 0.2).1).collect();
        assert!(late[0] <= 0.9 && late[2] <= 0.5 && late[3] <= 0.1, "{late:?}");
    }

    #[test]
    fn slow_operation_does_not_delay_next_poll() {
        let mut schedule = PollSchedule::default();
        schedule.finished(Kind::Create, Duration::from_secs(1), 9, Duration::from_mins(10));
        assert!(schedule.first_poll(Kind::Create) <= Duration::from_secs(2));
        for _ in 0..9 {
            schedule.finished(Kind::Create, Duration::from_secs(1), 9, Duration::from_mins(10));
        }
        assert!(schedule.first_poll(Kind::Create) <= Duration::from_secs(3));
    }

    #[test]
    fn poll_intervals_grow_and_are_bounded() {
        for (waited, gap) in [
            (0.2, 0.1),
            (2.0, 0.5),
            (20.0, 2.0),
            (60.0, 2.0),
            (90.0, 3.0),
            (3600.0, 10.0),
        ] {
            let is = poll_interval(Duration::from_secs_f64(waited)).as_secs_f64();
            assert!((is - gap).abs() < 1e-6, "{waited}: {is}");
        }
    }
}
