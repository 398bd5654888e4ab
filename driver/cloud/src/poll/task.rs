// SPDX-License-Identifier: Apache-2.0
//! The task that polls for all who wait: a few things directly, many by one list of what has changed.
//!
//! What a list shows is news. What it does not show says nothing (an API node whose database lags does not list what has changed),
//! so the waits that are due are looked at directly then: only a 404 for the thing itself says that it is gone.

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

/// So many things are looked at directly; more by one list.
const FEW: usize = 4;
/// Direct looks at the same time.
const PARALLEL: usize = 8;

/// One request that is due.
#[derive(Debug)]
enum PollRequest<I> {
    One(I),
    ChangedSince(Timestamp),
}

/// Polls until the last waiter has left. A look under way ends with it: no waiter is left for its answer.
pub(super) async fn run<T: Pollable>(shared: Arc<Shared<T>>) {
    let direct = Arc::new(Semaphore::new(PARALLEL));
    let mut polls = JoinSet::new();
    loop {
        let due = {
            let mut state = shared.state();
            let Some(due) = next_due(&state) else {
                state.running = false;
                state.next_list = None;
                state.next_polls.clear();
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
        while polls.try_join_next().is_some() {}
        let ahead = shared.transport.cinder_is_ahead();
        for request in requests(&mut shared.state(), ahead) {
            // On its own, so that an answer that does not come delays no other.
            let (shared, direct) = (Arc::clone(&shared), Arc::clone(&direct));
            polls.spawn(async move {
                match request {
                    PollRequest::One(id) => look_at(&shared, &direct, &id).await,
                    PollRequest::ChangedSince(since) => list(&shared, since).await,
                }
            });
        }
    }
}

/// Whether a list of changes serves the waiters that are young.
fn lists<T: Pollable>(state: &WatchState<T>, now: Instant) -> bool {
    let young = || state.waiters.values().filter(|waiter| is_young(waiter, now));
    T::LISTS && !state.no_changes && young().map(|waiter| &waiter.id).collect::<BTreeSet<_>>().len() > FEW
}

/// How long a request that serves all of these is good for.
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

/// When the waiter is to be served, and whether by a list.
fn turn<T: Pollable>(state: &WatchState<T>, waiter: &Waiter<T>, lists: bool, now: Instant) -> (Instant, bool) {
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
    waiters.map(|waiter| turn(state, waiter, lists, now).0).min()
}

/// The requests to make now; none is made again before it has ended. `ahead` is by how much Cinder's clock is ahead of ours.
fn requests<T: Pollable>(state: &mut WatchState<T>, ahead: SignedDuration) -> Vec<PollRequest<T::Id>> {
    let now = Instant::now();
    let lists = lists(state, now);
    let due = state.waiters.values().filter_map(|waiter| {
        let (at, by_list) = turn(state, waiter, lists, now);
        (at <= now).then(|| (!by_list).then(|| waiter.id.clone()))
    });
    // `None` is the list, which comes once, too.
    let due: BTreeSet<Option<T::Id>> = due.collect();
    // Also those that are left of waiters who have gone.
    state.next_polls.retain(|_, next| *next > now);
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
        state.next_polls.insert(id.clone(), now + TIMING.poll_timeout);
        requests.push(PollRequest::One(id));
    }
    requests
}

async fn look_at<T: Pollable>(shared: &Shared<T>, direct: &Semaphore, id: &T::Id) {
    let (asked, result) = within_time(&format!("look at {id}"), async {
        // Never closed. Its place in the queue is part of the time.
        let _permit = direct.acquire().await;
        (Instant::now(), T::get(&shared.transport, id).await)
    })
    .await;
    let mut state = shared.state();
    let waiters: Vec<u64> = (state.waiters.iter())
        .filter(|(_, waiter)| waiter.id == *id && waiter.registered <= asked)
        .map(|(number, _)| *number)
        .collect();
    if waiters.len() > 1 {
        let gap = shared_gap(waiters.iter().filter_map(|number| state.waiters.get(number)));
        state.next_polls.insert(id.clone(), asked + gap);
    } else {
        state.next_polls.remove(id);
    }
    for number in waiters {
        deliver(&mut state, number, result.clone(), false);
    }
    drop(state);
    shared.wake.notify_one();
}

/// One list tells about all that have changed since their requests.
async fn list<T: Pollable>(shared: &Shared<T>, since: Timestamp) {
    let (asked, listed) = within_time("list of changes", async {
        (Instant::now(), T::changed_since(&shared.transport, since).await)
    })
    .await;
    let mut state = shared.state();
    state.next_list = Some(asked + shared_gap(state.waiters.values()));
    let now = Instant::now();
    let served = |waiter: &Waiter<T>| waiter.registered <= asked && is_young(waiter, now);
    match listed {
        Ok(Some(things)) => {
            let things: HashMap<T::Id, T> = things.into_iter().map(|thing| (thing.id().clone(), thing)).collect();
            let numbers: Vec<u64> = state.waiters.keys().copied().collect();
            for number in numbers {
                let Some(waiter) = state.waiters.get_mut(&number).filter(|waiter| served(waiter)) else {
                    continue;
                };
                match things.get(&waiter.id) {
                    // All who wait are told, also those that are not due.
                    Some(thing) => deliver(&mut state, number, Ok(Some(thing.clone())), true),
                    None if waiter.due > asked => {}
                    None if waiter.kind == Kind::Create && waiter.reported.elapsed() < TIMING.unlisted_creation => {
                        waiter.due = now + poll_interval(waiter.started.elapsed());
                    }
                    None => waiter.unlisted = true,
                }
            }
        }
        Ok(None) => state.no_changes = true,
        // A filter that Cinder's operator has not enabled.
        Err(CloudError::BadRequest(failure)) => {
            tracing::info!(%failure, "Cinder does not list changes; what is waited for is looked at directly");
            state.no_changes = true;
        }
        Err(error) => {
            let due = |waiter: &Waiter<T>| served(waiter) && waiter.due <= asked;
            let numbers: Vec<u64> = (state.waiters.iter())
                .filter(|(_, waiter)| due(waiter))
                .map(|(number, _)| *number)
                .collect();
            for number in numbers {
                deliver(&mut state, number, Err(error.clone()), true);
            }
        }
    }
    drop(state);
    shared.wake.notify_one();
}

/// The look, with the time at which it was asked for; an error when it takes longer than `poll_timeout`.
async fn within_time<R>(
    what: &str,
    result: impl Future<Output = (Instant, Result<R, CloudError>)>,
) -> (Instant, Result<R, CloudError>) {
    let begun = Instant::now();
    timeout(TIMING.poll_timeout, result).await.unwrap_or_else(|_| {
        let failure = Failure {
            operation: "look",
            object: what.to_owned(),
            status: None,
            fault: "no answer in time".to_owned(),
            request_id: None,
            elapsed: TIMING.poll_timeout,
        };
        (begun, Err(CloudError::Unreachable { failure, sent: true }))
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
    waiter.last_look = Some(elapsed);
    waiter.unlisted = false;
    waiter.listed |= by_list;
    if let Ok(Some(thing)) = &result {
        waiter.status = thing.status().clone();
    }
    // The other end is gone only when its registration is about to be.
    let _ = waiter.polls_out.send(result);
}
