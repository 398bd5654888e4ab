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

/// How much sooner the next first look comes when one found its operation finished: it may have been so for a while.
const SOONER: f64 = 0.8;
/// How much later it comes at most when one came too early: one slow operation is no rule.
const LATER: f64 = 1.5;

/// The remembered durations, in seconds.
#[derive(Debug, Default)]
pub(crate) struct PollSchedule {
    took: [Option<f64>; KINDS],
}

impl PollSchedule {
    /// The time from the request to the first look.
    pub(crate) fn first_poll(&self, kind: Kind) -> Duration {
        let took = self.took[kind.index()].unwrap_or(kind.prior());
        Duration::from_secs_f64(took).clamp(TIMING.first_poll_min, TIMING.first_poll_max)
    }

    /// An operation was found finished so long after its request, by look number `polls`.
    pub(crate) fn finished(&mut self, kind: Kind, polls: u32, found: Duration) {
        let (found, expected) = (found.as_secs_f64(), self.first_poll(kind).as_secs_f64());
        let took = if polls > 1 {
            found.min(expected * LATER)
        } else {
            found * SOONER
        };
        self.took[kind.index()] = Some(took);
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
        let (mut at, mut polls) = (schedule.first_poll(Kind::Attach), 1);
        while at.as_secs_f64() < latency {
            at += poll_interval(at);
            polls += 1;
        }
        schedule.finished(Kind::Attach, polls, at);
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
    fn one_slow_operation_does_not_make_the_next_one_late() {
        let mut schedule = PollSchedule::default();
        schedule.finished(Kind::Create, 9, Duration::from_mins(10));
        assert!(schedule.first_poll(Kind::Create) <= Duration::from_secs(2));
        for _ in 0..9 {
            schedule.finished(Kind::Create, 9, Duration::from_mins(10));
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
