// SPDX-License-Identifier: Apache-2.0
//! The task that polls for all waiters: a few resources directly, many by one list of changes.
//!
//! A resource in a list has changed. A resource that is not in the list may have changed too, because an API node with
//! a lagging database does not list recent changes. Direct polls follow then, and also after a failed list. Only a 404
//! for the resource itself proves that it is deleted.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::pollable::Pollable;
use super::{PollResult, Shared, Waiter, WatchState};
use crate::error::{CloudError, Failure};
use crate::poll::schedule::{Kind, poll_interval};
use crate::timing::TIMING;

/// Up to this number of resources are polled directly, more of them by one list.
const FEW: usize = 4;
const PARALLEL: usize = 8;
/// After this number of consecutive failed lists, all polls are direct for a while.
const FAILED_LISTS: u32 = 2;

/// Limits the concurrent direct polls. Slow resources have permits of their own, so that servers of an unreachable Nova
/// cell do not delay other servers.
#[derive(Debug)]
struct Lanes {
    fast: Semaphore,
    slow: Semaphore,
}

/// A request that is due.
#[derive(Debug)]
enum PollRequest<I> {
    One(I),
    ChangedSince(Timestamp),
}

/// Polls until the last waiter disappears. Aborts the pending polls at the end, which have no waiter any more.
pub(super) async fn run<T: Pollable>(shared: Arc<Shared<T>>) {
    let lanes = Arc::new(Lanes {
        fast: Semaphore::new(PARALLEL),
        slow: Semaphore::new(PARALLEL),
    });
    let mut polls = JoinSet::new();
    loop {
        let due = {
            let mut state = shared.state();
            let Some(due) = next_due(&state) else {
                state.running = false;
                state.next_list = None;
                state.next_polls.clear();
                state.slow.clear();
                return;
            };
            due
        };
        tokio::select! {
            biased;
            () = shared.wake.notified() => continue,
            () = tokio::time::sleep_until(due) => {}
        }
        // Reaps the finished polls.
        while polls.try_join_next().is_some() {}
        let ahead = shared.transport.cinder_is_ahead();
        for request in due_requests(&mut shared.state(), ahead) {
            // In a task of its own, so that a slow response delays no other poll.
            let (shared, lanes) = (Arc::clone(&shared), Arc::clone(&lanes));
            polls.spawn(async move {
                match request {
                    PollRequest::One(id) => poll_one(&shared, &lanes, &id).await,
                    PollRequest::ChangedSince(since) => poll_changes(&shared, since).await,
                }
            });
        }
    }
}

/// Whether lists of changes serve the recent waiters.
fn lists<T: Pollable>(state: &WatchState<T>, now: Instant) -> bool {
    let young = || state.waiters.values().filter(|waiter| is_young(waiter, now));
    let may_list = T::LISTS && !state.no_changes && state.lists_rest.is_none_or(|end| end <= now);
    may_list && young().map(|waiter| &waiter.id).collect::<BTreeSet<_>>().len() > FEW
}

/// The interval until the next request that serves all of these waiters.
fn shared_gap<'a, T: Pollable>(mut waiters: impl Iterator<Item = &'a Waiter<T>>) -> Duration {
    if waiters.any(|waiter| waiter.kind == Kind::Attach) {
        TIMING.shared_poll_interval_attach
    } else {
        TIMING.shared_poll_interval
    }
}

fn is_young<T: Pollable>(waiter: &Waiter<T>, now: Instant) -> bool {
    waiter.started + TIMING.list_horizon > now
}

/// The time at which the waiter is due, and whether a list serves it.
fn next_turn<T: Pollable>(state: &WatchState<T>, waiter: &Waiter<T>, lists: bool, now: Instant) -> (Instant, bool) {
    let by_list = lists && !waiter.unlisted && is_young(waiter, now);
    let not_before = if by_list {
        state.next_list
    } else {
        state.next_polls.get(&waiter.id).copied()
    };
    (not_before.map_or(waiter.due, |next| next.max(waiter.due)), by_list)
}

fn next_due<T: Pollable>(state: &WatchState<T>) -> Option<Instant> {
    let now = Instant::now();
    let lists = lists(state, now);
    let waiters = state.waiters.values();
    waiters.map(|waiter| next_turn(state, waiter, lists, now).0).min()
}

/// Returns the requests that are due. A request does not start again before it has ended. `ahead` is the lead of
/// Cinder's clock over the local clock.
fn due_requests<T: Pollable>(state: &mut WatchState<T>, ahead: SignedDuration) -> Vec<PollRequest<T::Id>> {
    let now = Instant::now();
    let lists = lists(state, now);
    let due = state.waiters.values().filter_map(|waiter| {
        let (at, by_list) = next_turn(state, waiter, lists, now);
        (at <= now).then(|| (!by_list).then(|| waiter.id.clone()))
    });
    // `None` is the list of changes. The set contains it once at most.
    let due: BTreeSet<Option<T::Id>> = due.collect();
    // This also drops the entries of resources without a waiter.
    state.next_polls.retain(|_, next| *next > now);
    let WatchState { waiters, slow, .. } = &mut *state;
    slow.retain(|id| waiters.values().any(|waiter| waiter.id == *id));
    let mut requests = Vec::new();
    for id in due {
        let Some(id) = id else {
            state.next_list = Some(now + TIMING.poll_timeout);
            let young = state.waiters.values().filter(|waiter| is_young(waiter, now));
            let since = young.map(|waiter| {
                waiter
                    .since
                    .checked_sub(TIMING.clock_skew - ahead)
                    .unwrap_or(Timestamp::MIN)
            });
            requests.push(PollRequest::ChangedSince(since.min().unwrap_or(Timestamp::MIN)));
            continue;
        };
        // The entry lasts until the poll ends, however long it waits for a permit.
        state.next_polls.insert(id.clone(), now + TIMING.operation_timeout);
        requests.push(PollRequest::One(id));
    }
    requests
}

async fn poll_one<T: Pollable>(shared: &Shared<T>, lanes: &Lanes, id: &T::Id) {
    let was_slow = shared.state().slow.contains(id);
    let lane = if was_slow { &lanes.slow } else { &lanes.fast };
    // The semaphore is never closed.
    let permit = lane.acquire().await;
    let requested_at = Instant::now();
    let what = format!("look at {id}");
    let mut poll = std::pin::pin!(within_time(&what, T::get(&shared.transport, id)));
    let in_time = timeout(TIMING.slow_poll, &mut poll).await;
    let is_slow = in_time.is_err();
    let result = if let Ok(result) = in_time {
        result
    } else {
        let _permit = Some(permit).filter(|_| was_slow);
        poll.await
    };
    let mut state = shared.state();
    if is_slow {
        state.slow.insert(id.clone());
    } else if was_slow {
        state.slow.remove(id);
    }
    let waiters: Vec<u64> = (state.waiters.iter())
        .filter(|(_, waiter)| waiter.id == *id && waiter.registered <= requested_at)
        .map(|(number, _)| *number)
        .collect();
    if waiters.len() > 1 {
        let gap = shared_gap(waiters.iter().filter_map(|number| state.waiters.get(number)));
        state.next_polls.insert(id.clone(), requested_at + gap);
    } else {
        state.next_polls.remove(id);
    }
    for number in waiters {
        deliver(&mut state, number, result.clone(), false);
    }
    drop(state);
    shared.wake.notify_one();
}

/// Polls all recent waiters by one list of changes.
async fn poll_changes<T: Pollable>(shared: &Shared<T>, since: Timestamp) {
    let requested_at = Instant::now();
    let ids = shared
        .state()
        .waiters
        .values()
        .map(|waiter| waiter.id.clone())
        .collect();
    let listed = within_time("list of changes", T::changed_since(&shared.transport, since, &ids)).await;
    let mut state = shared.state();
    state.next_list = Some(requested_at + shared_gap(state.waiters.values()));
    let now = Instant::now();
    let served = |waiter: &Waiter<T>| waiter.registered <= requested_at && is_young(waiter, now);
    match listed {
        Ok(Some(things)) => {
            state.failed_lists = 0;
            let things: HashMap<T::Id, T> = things.into_iter().map(|thing| (thing.id().clone(), thing)).collect();
            let numbers: Vec<u64> = state.waiters.keys().copied().collect();
            for number in numbers {
                let Some(waiter) = state.waiters.get_mut(&number).filter(|waiter| served(waiter)) else {
                    continue;
                };
                match things.get(&waiter.id) {
                    // Waiters that are not due get the result too.
                    Some(thing) => deliver(&mut state, number, Ok(Some(thing.clone())), true),
                    None if waiter.due > requested_at => {}
                    None if waiter.kind == Kind::Create && waiter.reported.elapsed() < TIMING.unlisted_creation => {
                        waiter.due = now + poll_interval(waiter.started.elapsed());
                    }
                    None => waiter.unlisted = true,
                }
            }
        }
        Ok(None) => state.no_changes = true,
        // A filter that the administrator of Cinder has not enabled (400).
        Err(CloudError::BadRequest(failure)) => {
            tracing::info!(%failure, "Cinder does not list changes; what is waited for is looked at directly");
            state.no_changes = true;
        }
        Err(error) => {
            state.failed_lists += 1;
            if state.failed_lists >= FAILED_LISTS {
                state.lists_rest = Some(now + TIMING.list_rest);
            }
            tracing::debug!(%error, failures = state.failed_lists, "a list of changes failed; its waits are polled directly");
            let due = |waiter: &&mut Waiter<T>| served(waiter) && waiter.due <= requested_at;
            for waiter in state.waiters.values_mut().filter(due) {
                waiter.unlisted = true;
            }
        }
    }
    drop(state);
    shared.wake.notify_one();
}

/// Returns the result of a poll, or an error after `poll_timeout`.
async fn within_time<R>(what: &str, poll: impl Future<Output = Result<R, CloudError>>) -> Result<R, CloudError> {
    timeout(TIMING.poll_timeout, poll).await.unwrap_or_else(|_| {
        let failure = Failure {
            operation: "look",
            object: what.to_owned(),
            status: None,
            fault: "no answer in time".to_owned(),
            request_id: None,
            elapsed: TIMING.poll_timeout,
        };
        Err(CloudError::Unreachable { failure, sent: true })
    })
}

fn deliver<T: Pollable>(state: &mut WatchState<T>, number: u64, result: PollResult<T>, by_list: bool) {
    let Some(waiter) = state.waiters.get_mut(&number) else {
        return;
    };
    let elapsed = waiter.started.elapsed();
    let gap = poll_interval(elapsed);
    let gap = waiter.at_most_every.map_or(gap, |least| least.max(gap));
    waiter.due = waiter.due.max(Instant::now() + gap);
    waiter.polls += 1;
    waiter.reported = Instant::now();
    waiter.last_poll = Some(elapsed);
    waiter.unlisted = false;
    waiter.listed |= by_list;
    if let Ok(Some(thing)) = &result {
        waiter.status = thing.status().clone();
    }
    // The receiver closes only when its registration is about to be dropped.
    drop(waiter.polls_out.send(result));
}
