//! When to look: learned from how long each kind of operation took before, so that most waits need one look and none comes late.
//!
//! A wait's first look is aimed at the time that the operation last needed. A hit lets the aim creep towards the latest time at
//! which a look was known to come too early: at once where much is to be won, and else one kind of operation at a time, so that at
//! most one look per volume's life is spent on learning. A cloud that has only answered hits may be far quicker than assumed: until
//! the first miss every hit makes the aims a fraction of what they were. The first operation of a kind often waits for what the cloud
//! has yet to set up (connections, caches): what came too early for it tells nothing about the next ones.

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
/// How much of the room between floor and aim is left after a hit.
const LEFT: f64 = 0.5;
/// Where more than this is left to win, the aim moves without waiting for its turn.
const FAR: f64 = 0.2;
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
        let aim = self.expected(kind, self.scale, |learned| learned.aim);
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
        let to_known = self.expected(kind, self.scale_before_last(), |learned| learned.good) - elapsed;
        let gap = if looks == 1 && to_known > 0.05 {
            to_known.min(1.0)
        } else {
            gap
        };
        Duration::from_secs_f64(gap)
    }

    /// What was learned, and no more than the guess where nothing is known to come too early.
    fn expected(&self, kind: Kind, scale: f64, time: impl FnOnce(Learned) -> f64) -> f64 {
        let guess = kind.prior() * scale;
        match self.kinds[kind.index()] {
            None => guess,
            Some(learned) if self.searching || learned.floor == 0.0 => time(learned).min(guess),
            Some(learned) => time(learned),
        }
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
                if self.searching {
                    self.scale = self.scale_before_last();
                    self.searching = is_first;
                }
                // One slow operation moves the aim only part of the way.
                let good = found.min(usual * 1.5).max(SOONEST);
                let too_early = too_early.as_secs_f64().min(good);
                Learned {
                    aim: good,
                    good,
                    floor: if is_first { 0.0 } else { too_early },
                    exceptions: before.exceptions,
                }
            }
            _ => {
                let room = found - before.floor;
                let waits_for_its_turn = kind.is_in_every_life() && room <= FAR;
                let aim = if self.searching {
                    // From what was found: many that one look found finished are one hit.
                    self.scale = self.scale.min(found / kind.prior() / SEARCH);
                    found / SEARCH
                } else if room > CLOSE.max(found * CLOSE_SHARE) && !(waits_for_its_turn && self.probing.is_some()) {
                    if waits_for_its_turn {
                        self.probing = Some(kind);
                    }
                    before.floor + room * LEFT
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

    /// The latencies of a volume's life, in seconds.
    fn taking(create: f64, attach: f64, detach: f64, delete: f64) -> [(Kind, f64); 4] {
        [
            (Kind::Create, create),
            (Kind::Attach, attach),
            (Kind::Detach, detach),
            (Kind::Delete, delete),
        ]
    }

    /// Lives of a volume in a cloud with fixed latencies: the looks needed in each, and the worst lateness in the last one.
    fn lives(count: usize, latencies: [(Kind, f64); 4]) -> (Vec<u32>, f64) {
        lives_after(latencies, count, latencies)
    }

    /// The same where the first life had others.
    fn lives_after(first: [(Kind, f64); 4], count: usize, latencies: [(Kind, f64); 4]) -> (Vec<u32>, f64) {
        let (looks, late) = each_life_after(first, count, latencies);
        (looks, late[count - 1].into_iter().fold(0.0, f64::max))
    }

    /// The same, with the lateness of each operation in each life.
    fn each_life_after(
        first: [(Kind, f64); 4],
        count: usize,
        latencies: [(Kind, f64); 4],
    ) -> (Vec<u32>, Vec<[f64; 4]>) {
        let mut pace = Pace::default();
        let mut life = |latencies: [(Kind, f64); 4]| {
            let mut total = 0;
            let late = latencies.map(|(kind, latency)| {
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
                at.as_secs_f64() - latency
            });
            (total, late)
        };
        (0..count)
            .map(|number| life(if number == 0 { first } else { latencies }))
            .unzip()
    }

    #[test]
    fn at_the_latencies_of_real_services_a_life_takes_six_looks_at_most() {
        let real = taking(0.8, 1.1, 0.6, 0.3);
        let (looks, late) = lives(40, real);
        assert!(looks.iter().all(|looks| *looks <= 6), "{looks:?}");
        assert!(looks.iter().sum::<u32>() <= 40 * 5, "{looks:?}");
        assert!(late <= 0.2, "{late}");
    }

    #[test]
    fn a_cloud_that_answers_at_once_is_found_out_and_never_needs_a_second_look() {
        let at_once = taking(0.0, 0.0, 0.0, 0.0);
        let (looks, late) = lives(6, at_once);
        assert!(looks.iter().all(|looks| *looks == 4), "{looks:?}");
        assert!(late <= 0.05, "{late}");
        let (_, late) = lives(2, at_once);
        assert!(late <= 0.2, "found out soon: {late}");
    }

    #[test]
    fn a_cloud_that_is_quicker_than_assumed_is_found_out_in_the_first_life() {
        let quick = taking(0.3, 0.4, 0.2, 0.1);
        let (looks, late) = lives(2, quick);
        assert!(looks.iter().all(|looks| *looks <= 6), "{looks:?}");
        assert!(late <= 0.2, "{late} {looks:?}");
    }

    #[test]
    fn a_cloud_that_is_slow_to_begin_with_is_not_taken_for_a_slow_one() {
        let quick = taking(0.25, 0.3, 0.25, 0.1);
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
    fn a_quick_cloud_tells_of_its_attachments_in_time_whatever_the_first_life_was_like() {
        for create in [0.3, 0.5, 0.8, 1.0, 1.5] {
            for attach in [0.3, 0.5, 0.7, 1.0, 1.4, 2.0] {
                for usual in [0.15, 0.2, 0.3] {
                    let first = taking(create, attach, 0.3, 0.15);
                    let (looks, late) = each_life_after(first, 5, taking(0.3, usual, 0.15, 0.1));
                    let mut attachments: Vec<f64> = late.iter().map(|[_, attachment, ..]| *attachment).collect();
                    attachments.sort_by(f64::total_cmp);
                    assert!(attachments[2] <= 0.2, "{first:?}, then {usual}: {late:?}");
                    assert!(looks[1..].iter().all(|looks| *looks <= 7), "{looks:?}");
                }
            }
        }
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
