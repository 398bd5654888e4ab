//! When to look: learned from how long each kind of operation took before, so that most waits need one look and none comes late.
//!
//! A wait's first look is aimed at the time that the operation last needed. A hit lets the aim creep towards the latest time at
//! which a look was known to come too early; one kind of operation at a time, so that at most one look per volume's life is spent on
//! learning. A cloud that has only answered hits may be far quicker than assumed: until the first miss every hit makes the aims a
//! fraction of what they were. The first operation of a kind often waits for what the cloud has yet to set up (connections, caches):
//! a miss there tells nothing about the next ones.

use std::time::Duration;

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

    /// Whether every volume's life has one. Of the others the next one may be days away: they keep nobody from learning.
    fn is_in_every_life(self) -> bool {
        matches!(self, Self::Create | Self::Delete | Self::Attach | Self::Detach)
    }

    /// The first guess, from the times of Cinder and Nova on an idle cloud with a file driver.
    fn prior(self) -> f64 {
        match self {
            Self::Create => 0.9,
            Self::Delete => 0.4,
            Self::Attach => 1.2,
            Self::Detach | Self::Extend => 0.7,
            Self::Retype => 1.0,
            Self::Settle => 0.5,
        }
    }
}

/// No look comes sooner than this after a request.
const SOONEST: f64 = 0.02;
/// No first look comes later: one slow operation must not make the next, quick one late.
const LATEST_FIRST: f64 = 3.0;
/// Between aim and floor there is nothing left to win below this, or below this share of the aim.
const CLOSE: f64 = 0.06;
const CLOSE_SHARE: f64 = 0.06;
/// So much longer than usual is an exception, from which nothing is learned unless it becomes the rule.
const EXCEPTION: f64 = 1.25;
/// By how much the aims sink with each hit before the first miss.
const SEARCH: f64 = 2.0;
/// In the company of others a first look is shared, and may come so much sooner.
const IN_COMPANY: f64 = 0.6;

#[derive(Debug, Clone, Copy, Default)]
struct Learned {
    /// When the next first look is due.
    aim: f64,
    /// When an operation was last found finished.
    good: f64,
    /// The latest look that came too early; sinks slowly, for a cloud may get quicker.
    floor: f64,
    /// How many exceptions came in a row.
    exceptions: u32,
}

/// What was learned about all kinds.
#[derive(Debug)]
pub(crate) struct Pace {
    kinds: [Option<Learned>; KINDS],
    scale: f64,
    searching: bool,
    probing: Option<Kind>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            kinds: [None; KINDS],
            scale: 1.0,
            searching: true,
            probing: None,
        }
    }
}

impl Pace {
    /// The time from the request to the first look.
    pub(crate) fn first_look(&self, kind: Kind) -> Duration {
        let guess = kind.prior() * self.scale;
        let aim = match self.kinds[kind.index()] {
            None => guess,
            Some(learned) if self.searching => learned.aim.min(guess),
            Some(learned) => learned.aim,
        };
        Duration::from_secs_f64(aim.clamp(SOONEST, LATEST_FIRST))
    }

    /// The same for one that does not wait alone.
    pub(crate) fn first_look_in_company(&self, kind: Kind) -> Duration {
        self.first_look(kind).mul_f64(IN_COMPANY)
    }

    /// The time from a look at `elapsed`, the `looks`th, that found the operation unfinished to the next one. After a first
    /// look that came too early the last known good time comes next; then gaps that grow with age.
    pub(crate) fn next_gap(&self, kind: Kind, elapsed: Duration, looks: u32) -> Duration {
        let elapsed = elapsed.as_secs_f64();
        let gap = if elapsed < 30.0 {
            (elapsed / 7.0).clamp(0.1, 1.0)
        } else {
            (elapsed / 30.0).clamp(1.0, 10.0)
        };
        let guess = kind.prior() * self.scale_before_last();
        let known = match self.kinds[kind.index()] {
            None => guess,
            Some(learned) if self.searching => learned.good.min(guess),
            Some(learned) => learned.good,
        };
        let to_known = known - elapsed;
        let gap = if looks == 1 && to_known > 0.05 {
            to_known.min(1.0)
        } else {
            gap
        };
        Duration::from_secs_f64(gap)
    }

    fn scale_before_last(&self) -> f64 {
        if self.searching {
            (self.scale * SEARCH).min(1.0)
        } else {
            self.scale
        }
    }

    /// An operation was found finished at `found`, by look number `looks`; the look before came at `too_early`.
    pub(crate) fn finished(&mut self, kind: Kind, looks: u32, found: Duration, too_early: Option<Duration>) {
        let found = found.as_secs_f64();
        let is_first = self.kinds[kind.index()].is_none();
        let before = self.kinds[kind.index()].unwrap_or_default();
        if self.probing == Some(kind) {
            self.probing = None;
        }
        let usual = if before.good > 0.0 { before.good } else { kind.prior() };
        let learned = match too_early {
            Some(too_early)
                if looks > 1
                    && !self.searching
                    && before.exceptions < 2
                    && too_early.as_secs_f64() > usual * EXCEPTION =>
            {
                Learned {
                    aim: usual,
                    good: usual,
                    floor: before.floor,
                    exceptions: before.exceptions + 1,
                }
            }
            Some(too_early) if looks > 1 => {
                let is_cold = is_first && self.searching && self.scale >= 1.0;
                if self.searching && !is_cold {
                    self.scale = self.scale_before_last();
                    self.searching = false;
                }
                // One slow operation moves the aim only part of the way.
                let good = found.min(usual * 1.5).max(SOONEST);
                Learned {
                    aim: good,
                    good,
                    floor: if is_cold {
                        0.0
                    } else {
                        too_early.as_secs_f64().min(good)
                    },
                    exceptions: before.exceptions,
                }
            }
            _ => {
                let room = found - before.floor;
                let may_probe = !kind.is_in_every_life() || self.probing.is_none();
                let aim = if self.searching {
                    // From what was found: many that one look found finished are one hit.
                    self.scale = self.scale.min(found / kind.prior() / SEARCH);
                    found / SEARCH
                } else if room > CLOSE.max(found * CLOSE_SHARE) && may_probe {
                    if kind.is_in_every_life() {
                        self.probing = Some(kind);
                    }
                    before.floor + room * 0.6
                } else {
                    found
                };
                Learned {
                    aim,
                    good: found,
                    floor: before.floor * 0.97,
                    exceptions: 0,
                }
            }
        };
        self.kinds[kind.index()] = Some(learned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lives of a volume in a cloud with fixed latencies: the looks needed in each, and the worst lateness in the last one.
    fn lives(count: usize, latencies: [(Kind, f64); 4]) -> (Vec<u32>, f64) {
        lives_after(latencies, count, latencies)
    }

    /// The same where the first life had others.
    fn lives_after(first: [(Kind, f64); 4], count: usize, latencies: [(Kind, f64); 4]) -> (Vec<u32>, f64) {
        let mut pace = Pace::default();
        let mut looks_per_life = Vec::new();
        let mut late = 0.0_f64;
        for life in 0..count {
            let mut total = 0;
            late = 0.0;
            for (kind, latency) in if life == 0 { first } else { latencies } {
                let mut at = pace.first_look(kind);
                let mut before = None;
                let mut looks = 1;
                while at.as_secs_f64() < latency {
                    before = Some(at);
                    at += pace.next_gap(kind, at, looks);
                    looks += 1;
                }
                pace.finished(kind, looks, at, before);
                total += looks;
                late = late.max(at.as_secs_f64() - latency);
            }
            looks_per_life.push(total);
        }
        (looks_per_life, late)
    }

    #[test]
    fn at_the_latencies_of_real_services_a_life_takes_six_looks_at_most() {
        let real = [
            (Kind::Create, 0.8),
            (Kind::Attach, 1.1),
            (Kind::Detach, 0.6),
            (Kind::Delete, 0.3),
        ];
        let (looks, late) = lives(40, real);
        assert!(looks.iter().all(|looks| *looks <= 6), "{looks:?}");
        assert!(looks.iter().sum::<u32>() <= 40 * 5, "{looks:?}");
        assert!(late <= 0.2, "{late}");
    }

    #[test]
    fn a_cloud_that_answers_at_once_is_found_out_and_never_needs_a_second_look() {
        let at_once = [
            (Kind::Create, 0.0),
            (Kind::Attach, 0.0),
            (Kind::Detach, 0.0),
            (Kind::Delete, 0.0),
        ];
        let (looks, late) = lives(6, at_once);
        assert!(looks.iter().all(|looks| *looks == 4), "{looks:?}");
        assert!(late <= 0.05, "{late}");
        let (_, late) = lives(2, at_once);
        assert!(late <= 0.2, "found out soon: {late}");
    }

    #[test]
    fn a_cloud_that_is_quicker_than_assumed_is_found_out_in_the_first_life() {
        let quick = [
            (Kind::Create, 0.3),
            (Kind::Attach, 0.4),
            (Kind::Detach, 0.2),
            (Kind::Delete, 0.1),
        ];
        let (looks, late) = lives(2, quick);
        assert!(looks.iter().all(|looks| *looks <= 6), "{looks:?}");
        assert!(late <= 0.2, "{late} {looks:?}");
    }

    #[test]
    fn a_cloud_that_is_slow_to_begin_with_is_not_taken_for_a_slow_one() {
        let quick = [
            (Kind::Create, 0.25),
            (Kind::Attach, 0.3),
            (Kind::Detach, 0.25),
            (Kind::Delete, 0.1),
        ];
        let mut cold = quick;
        cold[0].1 = 1.2;
        let (_, late) = lives_after(cold, 3, quick);
        assert!(late <= 0.2, "a cold creation: {late}");
        cold[1].1 = 1.6;
        let (looks, late) = lives_after(cold, 5, quick);
        assert!(late <= 0.2, "a cold attachment, too: {late}");
        assert!(looks[1..].iter().all(|looks| *looks <= 6), "{looks:?}");
    }

    #[test]
    fn many_that_one_look_finds_finished_are_one_hit() {
        let after = |hits: u32| {
            let mut pace = Pace::default();
            for _ in 0..hits {
                pace.finished(Kind::Create, 1, Duration::from_millis(900), None);
            }
            pace.first_look(Kind::Attach)
        };
        assert_eq!(after(1), after(40));
    }

    #[test]
    fn a_rare_operation_keeps_nobody_from_learning() {
        let mut pace = Pace::default();
        let (late, early) = (Duration::from_secs(2), Some(Duration::from_millis(900)));
        for _ in 0..2 {
            pace.finished(Kind::Attach, 2, late, early);
        }
        pace.finished(Kind::Extend, 1, Duration::from_secs(1), None);
        let before = pace.first_look(Kind::Attach);
        pace.finished(Kind::Attach, 1, before, None);
        assert!(pace.first_look(Kind::Attach) < before);
    }

    #[test]
    fn one_slow_operation_does_not_make_the_next_one_late() {
        let mut pace = Pace::default();
        pace.finished(Kind::Create, 9, Duration::from_mins(10), Some(Duration::from_mins(9)));
        assert!(pace.first_look(Kind::Create) <= Duration::from_secs(2));
    }

    #[test]
    fn gaps_grow_with_age_and_stay_bounded() {
        let pace = Pace::default();
        let gap = |elapsed| {
            pace.next_gap(Kind::Create, Duration::from_secs_f64(elapsed), 5)
                .as_secs_f64()
        };
        assert!((gap(0.2) - 0.1).abs() < 1e-6);
        assert!((gap(20.0) - 1.0).abs() < 1e-6);
        assert!((gap(3600.0) - 10.0).abs() < 1e-6);
    }
}
