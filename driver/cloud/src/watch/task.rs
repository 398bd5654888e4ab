//! When to look, and at what: the task that serves all who wait.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::due::Due;
use super::look::{self, LOOK_TIMEOUT};
use super::watched::Watched;
use super::{COMPANY, Key, Shared, State, Waiter};
use crate::pace::Kind;

/// Between two equal looks, at least.
const GAP: Duration = Duration::from_millis(300);
/// … for one that waits alone.
const GAP_ALONE: Duration = Duration::from_millis(100);
/// … and at most, among those that several wait for.
const LONGEST_GAP: Duration = Duration::from_secs(2);
/// … and at most, while one of them is an attachment, for which a pod waits.
const LONGEST_GAP_FOR_PODS: Duration = Duration::from_millis(700);
/// Waiters due this soon are served by the look that is due now.
const TOGETHER: Duration = Duration::from_millis(100);
/// How far apart the clocks of Cinder's processes may be.
const CLOCKS: SignedDuration = SignedDuration::from_secs(30);
/// What is waited for longer is looked at on its own, so that the list of changes stays short.
const OLD: Duration = Duration::from_mins(5);

/// Polls until the last waiter has left. A poll under way ends with it: no waiter is left for its answer.
pub(super) async fn run<T: Watched>(shared: Arc<Shared<T>>) {
    let mut looks = JoinSet::new();
    loop {
        let due = {
            let mut state = shared.state();
            let Some(due) = state.waiters.values().map(|waiter| waiter.due).min() else {
                state.running = false;
                state.looked.clear();
                state.listing_until = None;
                return;
            };
            due
        };
        tokio::select! {
            biased;
            () = shared.wake.notified() => continue,
            () = tokio::time::sleep_until(due) => {}
        }
        // Those that have ended.
        while looks.try_join_next().is_some() {}
        let ahead = shared.transport.cinder_is_ahead();
        for look in due_looks(&mut shared.state(), ahead) {
            // On its own, so that an answer that does not come holds nobody up.
            let shared = Arc::clone(&shared);
            looks.spawn(async move { look::take(&shared, look).await });
        }
    }
}

/// The looks to take now. `ahead` is by how much Cinder's clock is ahead of ours.
fn due_looks<T: Watched>(state: &mut State<T>, ahead: SignedDuration) -> Vec<Due<T>> {
    let now = Instant::now();
    postpone(state, now);
    let mut looks = choose(state, now, ahead);
    // What was looked at just now waits for its next turn.
    looks.retain(|look| {
        let gap = match look.key {
            Key::Changes => Duration::ZERO,
            Key::One(_) if look.waiters.len() > COMPANY => gap(ages(
                look.waiters.iter().filter_map(|(id, ..)| state.waiters.get(id)),
                now,
            )),
            Key::One(_) if look.waiters.len() < 2 => GAP_ALONE,
            Key::One(_) | Key::Status(_) => GAP,
        };
        let again = state
            .looked
            .get(&look.key)
            .map(|looked| *looked + gap)
            .filter(|again| *again > now);
        let next = again.unwrap_or(now + LOOK_TIMEOUT.saturating_mul(4));
        for (id, ..) in &look.waiters {
            if let Some(waiter) = state.waiters.get_mut(id) {
                // Not again before this look has ended, which sets the next one's time.
                waiter.due = next;
            }
        }
        again.is_none()
    });
    state.looked.retain(|_, looked| *looked + LONGEST_GAP > now);
    for look in &looks {
        state.looked.insert(look.key.clone(), now);
        if look.key == Key::Changes {
            state.listing_until = Some(now + LOOK_TIMEOUT);
        }
    }
    looks
}

/// One list of changes at a time, and not more often than the waits are worth: who is due meanwhile waits for the next one.
fn postpone<T: Watched>(state: &mut State<T>, now: Instant) {
    if !in_company(state, now) {
        return;
    }
    let young = || state.waiters.values().filter(|waiter| is_young(waiter, now));
    let longest = if young().any(|waiter| waiter.kind == Kind::Attach) {
        LONGEST_GAP_FOR_PODS
    } else {
        LONGEST_GAP
    };
    let gap = gap(ages(young(), now)).min(longest);
    let next = state.looked.get(&Key::Changes).map(|looked| *looked + gap);
    let next = next.max(state.listing_until);
    if let Some(next) = next.filter(|next| *next > now) {
        for waiter in state.waiters.values_mut().filter(|waiter| is_young(waiter, now)) {
            waiter.due = waiter.due.max(next);
        }
    }
}

/// Whether so many wait that they are served by lists and not one by one.
fn in_company<T: Watched>(state: &State<T>, now: Instant) -> bool {
    let young = state.waiters.values().filter(|waiter| is_young(waiter, now));
    T::LISTS && !state.no_changes && young.count() > COMPANY
}

fn is_young<T: Watched>(waiter: &Waiter<T>, now: Instant) -> bool {
    waiter.started + OLD > now
}

/// How long each has waited, as far as that makes it patient: an attachment never is, for a pod waits for it.
fn ages<'a, T: Watched>(waiters: impl Iterator<Item = &'a Waiter<T>>, now: Instant) -> Vec<Duration> {
    waiters
        .map(|waiter| match waiter.kind {
            Kind::Attach => Duration::ZERO,
            _ => now.saturating_duration_since(waiter.started),
        })
        .collect()
}

/// Between two looks for several waits of these ages: who has waited for long can wait a little longer.
fn gap(mut ages: Vec<Duration>) -> Duration {
    ages.sort_unstable();
    // Of two the younger one, so that one that takes for ever keeps nobody waiting.
    let middle = ages.get(ages.len().saturating_sub(1) / 2).copied().unwrap_or_default();
    (middle / 3).clamp(GAP, LONGEST_GAP)
}

fn choose<T: Watched>(state: &State<T>, now: Instant, ahead: SignedDuration) -> Vec<Due<T>> {
    let is_due = |waiter: &Waiter<T>| waiter.due <= now;
    // Whoever was looked at before rides along; a request that has just been made is left its time.
    let rides = |waiter: &Waiter<T>| waiter.due <= now + TOGETHER || waiter.looks > 0;
    let due: BTreeSet<&T::Id> = state.waiters.values().filter(|w| is_due(w)).map(|w| &w.id).collect();
    if due.is_empty() {
        return Vec::new();
    }
    let young = |waiter: &Waiter<T>| is_young(waiter, now);
    let company: BTreeSet<&T::Id> = state
        .waiters
        .values()
        .filter(|waiter| rides(waiter) && young(waiter))
        .map(|waiter| &waiter.id)
        .collect();
    let entry = |(id, waiter): (&u64, &Waiter<T>)| (*id, waiter.id.clone(), waiter.kind);
    let one = |id: &T::Id| Due {
        key: Key::One(id.clone()),
        since: Timestamp::MIN,
        waiters: state
            .waiters
            .iter()
            .filter(|(_, waiter)| waiter.id == *id && rides(waiter))
            .map(entry)
            .collect(),
    };
    if !T::LISTS || (company.len() < 2 && !in_company(state, now)) {
        return due.into_iter().map(one).collect();
    }
    let mut looks: Vec<Due<T>> = Vec::new();
    let mut listed: Vec<(&u64, &Waiter<T>)> = Vec::new();
    for (id, waiter) in &state.waiters {
        if rides(waiter) && young(waiter) {
            listed.push((id, waiter));
        } else if is_due(waiter) {
            looks.push(one(&waiter.id));
        }
    }
    // Only the old ones are due: the others have their own time.
    if !listed.iter().any(|(_, waiter)| is_due(waiter)) {
        return looks;
    }
    if state.no_changes {
        let mut groups: Vec<Due<T>> = Vec::new();
        for (id, waiter) in listed {
            let key = Key::Status(waiter.status.clone());
            match groups.iter_mut().find(|group| group.key == key) {
                Some(group) => group.waiters.push(entry((id, waiter))),
                None => groups.push(Due {
                    key,
                    since: Timestamp::MIN,
                    waiters: vec![entry((id, waiter))],
                }),
            }
        }
        looks.extend(
            groups
                .into_iter()
                .filter(|group| {
                    group
                        .waiters
                        .iter()
                        .any(|(id, ..)| state.waiters.get(id).is_some_and(is_due))
                })
                .map(|group| match group.waiters.as_slice() {
                    [(_, id, _)] => one(id),
                    _ => group,
                }),
        );
        return looks;
    }
    let since = listed.iter().map(|(_, waiter)| since(waiter, ahead)).min();
    looks.push(Due {
        key: Key::Changes,
        since: since.unwrap_or(Timestamp::MIN),
        waiters: listed.into_iter().map(entry).collect(),
    });
    looks
}

/// From when on a list of changes must reach back to hold what has changed since a waiter's request.
fn since<T: Watched>(waiter: &Waiter<T>, ahead: SignedDuration) -> Timestamp {
    waiter.since.checked_sub(CLOCKS - ahead).unwrap_or(Timestamp::MIN)
}
