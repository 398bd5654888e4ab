//! Taking a look, and telling those who wait for it.

use std::collections::HashMap;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::{Instant, timeout};

use super::due::Due;
use super::watched::{List, Watched};
use super::{Key, Look, Shared, State};
use crate::error::{CloudError, Failure};
use crate::pace::Kind;

/// So many that left a status at once are looked up by one list.
const MANY: usize = 3;
/// What no list has told of for so long is looked at on its own.
const UNTOLD: Duration = Duration::from_secs(10);
/// Direct looks at the same time.
const PARALLEL: usize = 8;
/// How long one look may take; the next tick begins afresh.
pub(super) const LOOK_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) async fn take<T: Watched>(shared: &Shared<T>, due: Due<T>) {
    let asked = Instant::now();
    match &due.key {
        Key::One(id) => {
            let look = within_time(&format!("look at {id}"), T::get(&shared.transport, id)).await;
            for (waiter, ..) in &due.waiters {
                deliver(shared, *waiter, asked, look.clone());
            }
        }
        Key::Changes => {
            changes(shared, due, asked).await;
            listed(shared);
        }
        Key::Status(status) => in_status(shared, status, due.waiters, asked).await,
    }
}

/// A list of changes has been dealt with: who waited for its end may have the next one.
fn listed<T: Watched>(shared: &Shared<T>) {
    let mut state = shared.state();
    let end = state.listing_until.take();
    let now = Instant::now();
    for waiter in state.waiters.values_mut().filter(|waiter| Some(waiter.due) == end) {
        waiter.due = now;
    }
    drop(state);
    shared.wake.notify_one();
}

/// One list tells about all that have changed since their requests.
async fn changes<T: Watched>(shared: &Shared<T>, due: Due<T>, asked: Instant) {
    let list = List::ChangedSince(due.since);
    let found = match within_time("list of changes", T::list(&shared.transport, &list)).await {
        Ok(Some(found)) => by_id(found),
        Ok(None) => return without_changes(shared, &due),
        // A filter that Cinder's operator has not enabled.
        Err(CloudError::BadRequest(failure)) => {
            tracing::info!(%failure, "Cinder does not list changes; it is asked by status instead");
            return without_changes(shared, &due);
        }
        Err(error) => {
            for (waiter, ..) in &due.waiters {
                deliver(shared, *waiter, asked, Err(error.clone()));
            }
            return;
        }
    };
    let mut told = Vec::new();
    let mut left = Vec::new();
    {
        let mut state = shared.state();
        // All who wait are told what is known, also those whose time has not come.
        for (waiter, what) in &state.waiters {
            if let Some(thing) = found.get(&what.id).filter(|_| what.registered <= asked) {
                told.push((*waiter, thing.clone()));
            }
        }
        state.proven |= !told.is_empty();
        let State {
            waiters, pace, proven, ..
        } = &mut *state;
        for (id, thing, kind) in due.waiters.into_iter().filter(|(_, id, _)| !found.contains_key(id)) {
            // That it is not in the list says nothing: an API node whose database lags does not list what has changed. Only a 404
            // for the thing itself says that it is gone.
            match waiters.get_mut(&id) {
                // What is made changes when it is given a place, and once more when it is complete: until then there is no news.
                Some(waiter) if *proven && kind == Kind::Create && waiter.told.elapsed() < UNTOLD => {
                    let elapsed = waiter.started.elapsed();
                    waiter.due = Instant::now() + pace.next_gap(kind, elapsed, waiter.looks.max(2));
                }
                Some(_) => left.push((id, thing, kind)),
                None => {}
            }
        }
    }
    for (waiter, thing) in told {
        deliver(shared, waiter, asked, Ok(Some(thing)));
    }
    // Many that were not seen yet are likely all on their way still.
    let (new, others): (Vec<_>, Vec<_>) = left.into_iter().partition(|(.., kind)| *kind == Kind::Create);
    left = others;
    if new.len() >= MANY {
        in_status(shared, &T::under_way(Kind::Create), new, Instant::now()).await;
    } else {
        left.extend(new);
    }
    directly(shared, left).await;
}

fn without_changes<T: Watched>(shared: &Shared<T>, due: &Due<T>) {
    let mut state = shared.state();
    state.no_changes = true;
    let now = Instant::now();
    for (waiter, ..) in &due.waiters {
        if let Some(waiter) = state.waiters.get_mut(waiter) {
            waiter.due = now;
        }
    }
    drop(state);
    shared.wake.notify_one();
}

async fn in_status<T: Watched>(
    shared: &Shared<T>,
    status: &T::Status,
    waiters: Vec<(u64, T::Id, Kind)>,
    asked: Instant,
) {
    let listed = match list(shared, status, None).await {
        Ok(listed) => listed,
        Err(error) => {
            for (waiter, ..) in waiters {
                deliver(shared, waiter, asked, Err(error.clone()));
            }
            return;
        }
    };
    let mut left = Vec::new();
    for (waiter, id, kind) in waiters {
        match listed.get(&id) {
            Some(found) => deliver(shared, waiter, asked, Ok(Some(found.clone()))),
            None => left.push((waiter, id, kind)),
        }
    }
    // Many that left together are likely together still; in Cinder's lists the newest come first.
    let elsewhere = left.first().map_or_else(Vec::new, |(_, _, kind)| T::further(*kind));
    for (other, limit) in elsewhere.iter().filter(|(other, _)| other != status) {
        if left.len() < MANY {
            break;
        }
        let asked = Instant::now();
        let Ok(found) = list(shared, other, *limit).await else {
            break;
        };
        left.retain(|(waiter, id, _)| match found.get(id) {
            Some(found) => {
                deliver(shared, *waiter, asked, Ok(Some(found.clone())));
                false
            }
            None => true,
        });
    }
    directly(shared, left).await;
}

async fn list<T: Watched>(
    shared: &Shared<T>,
    status: &T::Status,
    limit: Option<u32>,
) -> Result<HashMap<T::Id, T>, CloudError> {
    let list = List::InStatus(status, limit);
    let found = within_time(&format!("list of what is {status}"), T::list(&shared.transport, &list)).await?;
    // The filter is a wish: what Cinder sends beyond it tells the truth about others just the same.
    Ok(by_id(found.unwrap_or_default()))
}

fn by_id<T: Watched>(things: Vec<T>) -> HashMap<T::Id, T> {
    things.into_iter().map(|thing| (thing.id().clone(), thing)).collect()
}

async fn directly<T: Watched>(shared: &Shared<T>, waiters: Vec<(u64, T::Id, Kind)>) {
    for some in waiters.chunks(PARALLEL) {
        join_all(some.iter().map(async |(waiter, id, _)| {
            let asked = Instant::now();
            let look = within_time(&format!("look at {id}"), T::get(&shared.transport, id)).await;
            deliver(shared, *waiter, asked, look);
        }))
        .await;
    }
}

async fn within_time<R>(what: &str, look: impl Future<Output = Result<R, CloudError>>) -> Result<R, CloudError> {
    timeout(LOOK_TIMEOUT, look).await.unwrap_or_else(|_| {
        Err(CloudError::Unreachable {
            failure: Failure {
                operation: "look",
                object: what.to_owned(),
                status: None,
                fault: "no answer in time".to_owned(),
                request_id: None,
                elapsed: LOOK_TIMEOUT,
            },
            sent: true,
        })
    })
}

fn deliver<T: Watched>(shared: &Shared<T>, id: u64, asked: Instant, look: Look<T>) {
    let mut state = shared.state();
    let State { waiters, pace, .. } = &mut *state;
    let Some(waiter) = waiters.get_mut(&id).filter(|waiter| waiter.registered <= asked) else {
        return;
    };
    let elapsed = waiter.started.elapsed();
    waiter.looks += 1;
    waiter.told = Instant::now();
    waiter.look_before = waiter.last_look.replace(elapsed);
    let gap = pace.next_gap(waiter.kind, elapsed, waiter.looks);
    waiter.due = Instant::now() + waiter.at_most_every.map_or(gap, |least| least.max(gap));
    if let Ok(Some(thing)) = &look {
        waiter.status = thing.status().clone();
    }
    // The other end is gone only when its registration is about to be.
    let _ = waiter.looks_out.send(look);
    drop(state);
    shared.wake.notify_one();
}
