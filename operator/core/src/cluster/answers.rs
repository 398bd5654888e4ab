// SPDX-License-Identifier: Apache-2.0
//! Responses of API servers about their own properties, until they are confirmed.
//!
//! During an upgrade of the control plane, several API servers may have different versions, and each request may
//! reach another one. The lowest value is compatible with all of them, so it takes effect.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{OptionalApi, OptionalApis};

/// Validity of a response, and time until a value is confirmed. It exceeds the duration of a control plane upgrade.
pub const ANSWERS_HOLD: Duration = Duration::from_hours(1);

/// Responses about one property: the first and the last time of each value.
#[derive(Debug, Clone)]
pub struct Answers<T>(BTreeMap<T, (Instant, Instant)>);

impl<T> Default for Answers<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Ord + Copy> Answers<T> {
    pub fn add(&mut self, answer: T, now: Instant) {
        self.0.retain(|_, (_, last)| is_recent(*last, now));
        self.0.entry(answer).or_insert((now, now)).1 = now;
    }

    /// Returns the confirmed value. This is the lowest recent value if it has been reported for [`ANSWERS_HOLD`], and
    /// `current` until then. Without a `current` value nothing depends on it, and the lowest value takes effect
    /// immediately.
    pub fn confirmed(&self, current: Option<T>, now: Instant) -> Option<T> {
        let mut recent = self.0.iter().filter(|(_, (_, last))| is_recent(*last, now));
        let lowest = recent.next();
        match (lowest, current) {
            (Some((answer, (first, _))), Some(current)) if is_recent(*first, now) && *answer != current => {
                Some(current)
            }
            (Some((answer, _)), _) => Some(*answer),
            (None, current) => current,
        }
    }
}

fn is_recent(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < ANSWERS_HOLD
}

/// Responses about all optional APIs.
#[derive(Debug, Clone, Default)]
pub struct ApiAnswers(BTreeMap<OptionalApi, Answers<bool>>);

impl ApiAnswers {
    pub fn add(&mut self, api: OptionalApi, is_served: bool, now: Instant) {
        self.0.entry(api).or_default().add(is_served, now);
    }

    /// Returns the confirmed APIs, as in [`Answers::confirmed`].
    pub fn confirmed(&self, current: Option<OptionalApis>, now: Instant) -> OptionalApis {
        let is_confirmed = |api: &OptionalApi| {
            let current = current.map(|apis| apis.has(*api));
            let answers = self.0.get(api);
            let confirmed = answers.map_or(current, |answers| answers.confirmed(current, now));
            confirmed.unwrap_or_default()
        };
        OptionalApi::ALL.into_iter().filter(is_confirmed).collect()
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the clock is read once")]
mod tests {
    use rstest::rstest;

    use super::*;

    /// Returns the confirmed value after each response. A response has the minute of its arrival.
    fn follow(start: Option<u32>, answers: &[(u64, u32)]) -> Vec<u32> {
        let (begun, mut known, mut current) = (Instant::now(), Answers::default(), start);
        let mut confirmed = Vec::new();
        for (minute, answer) in answers {
            let now = begun + Duration::from_mins(*minute);
            known.add(*answer, now);
            current = known.confirmed(current, now);
            confirmed.extend(current);
        }
        confirmed
    }

    #[rstest]
    #[case::nothing_runs(None, &[(0, 35)], &[35])]
    #[case::upgrade(Some(35), &[(0, 36), (30, 35), (40, 36), (89, 36), (90, 36)], &[35, 35, 35, 35, 36])]
    #[case::upgrade_without_mixture(Some(35), &[(0, 36), (30, 36), (59, 36), (60, 36)], &[35, 35, 35, 36])]
    #[case::one_lower_answer(Some(36), &[(0, 36), (10, 35), (40, 36), (70, 36), (80, 36)], &[36; 5])]
    #[case::lower_server_stays(Some(36), &[(0, 36), (10, 35), (40, 36), (69, 35), (70, 36)], &[36, 36, 36, 36, 35])]
    #[case::changing_for_less_than_an_hour(Some(35), &[(0, 36), (10, 35), (20, 36), (30, 35), (40, 36), (50, 35)], &[35; 6])]
    fn value_changes_when_confirmed(
        #[case] start: Option<u32>,
        #[case] answers: &[(u64, u32)],
        #[case] expected: &[u32],
    ) {
        assert_eq!(follow(start, answers), expected);
    }

    #[test]
    fn expired_answers_change_nothing() {
        let (begun, mut known) = (Instant::now(), Answers::default());
        known.add(36, begun);
        let later = begun + ANSWERS_HOLD * 2;
        assert_eq!(known.confirmed(Some(35), later), Some(35));
        known.add(36, later);
        assert_eq!(known.confirmed(Some(35), later), Some(35), "the hour begins again");
        assert_eq!(Answers::<u32>::default().confirmed(None, begun), None);
    }

    #[test]
    fn each_api_is_confirmed_alone() {
        let (begun, mut known) = (Instant::now(), ApiAnswers::default());
        known.add(OptionalApi::Snapshots, true, begun);
        known.add(OptionalApi::VolumeAttributesClasses, false, begun);
        let current = OptionalApis::default().with(OptionalApi::VolumeAttributesClasses, true);
        assert_eq!(known.confirmed(Some(current), begun), current);
        let confirmed = known.confirmed(None, begun);
        assert!(confirmed.snapshots && !confirmed.volume_attributes_classes);
    }
}
