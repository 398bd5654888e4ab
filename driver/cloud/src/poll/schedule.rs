// SPDX-License-Identifier: Apache-2.0
//! When to look: one remembered duration per kind of operation, then gaps that grow with the wait.
//!
//! A wait's first look comes when the last operation of its kind was found finished, or a little before; a look that comes too early
//! is followed by others, a quarter of the time waited apart.

use std::time::Duration;

use crate::timing::TIMING;

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Create,
    Delete,
    Attach,
    Detach,
    Extend,
    Retype,
    /// An operation that somebody else began comes to its end.
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

    /// The first guess, from the times of Cinder and Nova on an idle cloud with a file driver. One that is too short costs a few looks
    /// once; one that is too long makes the first operations late.
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

/// How much sooner the next first look comes when one found its operation finished, when two in a row did, and when more did: a look
/// that comes first does not tell since when its operation was finished.
const SOONER: [f64; 3] = [0.8, 0.7, 0.5];
/// How much later it comes at most when one came too early: one slow operation is no rule.
const LATER: f64 = 1.5;

/// What is remembered of a kind of operation.
#[derive(Debug, Clone, Copy)]
struct Remembered {
    /// The time to the next first look, in seconds.
    took: f64,
    /// How many first looks in a row found their operation finished.
    at_first: usize,
}

#[derive(Debug, Default)]
pub(crate) struct PollSchedule {
    remembered: [Option<Remembered>; KINDS],
}

impl PollSchedule {
    /// The time from the request to the first look.
    pub(crate) fn first_poll(&self, kind: Kind) -> Duration {
        let took = self.remembered[kind.index()].map_or(kind.prior(), |remembered| remembered.took);
        Duration::from_secs_f64(took).clamp(TIMING.first_poll_min, TIMING.first_poll_max)
    }

    /// An operation was found finished so long after its request, by look number `polls`; the first was to come after `first_poll`.
    pub(crate) fn finished(&mut self, kind: Kind, first_poll: Duration, polls: u32, found: Duration) {
        let next = self.first_poll(kind);
        let (found, expected) = (found.as_secs_f64(), next.as_secs_f64());
        let before = self.remembered[kind.index()];
        let at_first = before.map_or(0, |before| before.at_first);
        let (took, at_first) = match (polls, before) {
            // One of many that began before the first of them was found: it tells nothing new.
            (0 | 1, Some(_)) if first_poll > next => return,
            (0 | 1, _) => (found * SOONER[at_first.min(SOONER.len() - 1)], at_first + 1),
            // The first of a process takes longer than those after it.
            (_, None) => (expected, 0),
            (_, Some(_)) => (found.min(expected * LATER), 0),
        };
        self.remembered[kind.index()] = Some(Remembered { took, at_first });
    }
}

/// The time to the next look from one that found an operation unfinished so long after its request.
pub(crate) fn poll_interval(waited: Duration) -> Duration {
    let gap = (waited / 4).clamp(TIMING.poll_gap_min, TIMING.poll_gap_max);
    gap.max((waited / 30).min(TIMING.poll_gap_old_max))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The looks that an operation of this length takes, and how late it is noticed.
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
    fn operations_of_equal_length_take_two_looks_at_most_and_are_noticed_in_time() {
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
    fn operations_that_take_far_less_than_the_first_one_are_noticed_in_time_soon() {
        let mut schedule = PollSchedule::default();
        operation(&mut schedule, 1.1);
        let late: Vec<f64> = (0..4).map(|_| operation(&mut schedule, 0.2).1).collect();
        assert!(late[0] <= 0.9 && late[2] <= 0.5 && late[3] <= 0.1, "{late:?}");
    }

    #[test]
    fn one_slow_operation_does_not_make_the_next_one_late() {
        let mut schedule = PollSchedule::default();
        schedule.finished(Kind::Create, Duration::from_secs(1), 9, Duration::from_mins(10));
        assert!(schedule.first_poll(Kind::Create) <= Duration::from_secs(2));
        for _ in 0..9 {
            schedule.finished(Kind::Create, Duration::from_secs(1), 9, Duration::from_mins(10));
        }
        assert!(schedule.first_poll(Kind::Create) <= Duration::from_secs(3));
    }

    #[test]
    fn gaps_grow_with_the_wait_and_stay_bounded() {
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
