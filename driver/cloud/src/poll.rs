// SPDX-License-Identifier: Apache-2.0
//! Polls the status of resources. One task per cloud and resource type polls on behalf of all waiters.
//!
//! The task polls a few resources directly. For more, it requests one list of all changes since the oldest of the
//! waiters' requests. That list serves every waiter, so the cost grows with time and not with the number of resources.
//! A Cinder that cannot list changes is polled directly. The task ends with the last waiter.

mod pollable;
pub(crate) mod schedule;
mod state;
mod task;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout_at};

use crate::error::CloudError;
use crate::http::transport::Transport;
use crate::last_failure;
use crate::poll::schedule::Kind;
use crate::timing::TIMING;

pub(crate) use pollable::{Pollable, ServerRecords};
use state::{PollResult, Shared, Waiter, WatchState};

/// The operation name of polls in the record of the last failure.
const POLL_OPERATION: &str = "look";

/// The polls of one cloud for one type of resource.
#[derive(Debug)]
pub(crate) struct Watch<T: Pollable> {
    shared: Arc<Shared<T>>,
}

/// Progress of a pending operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// `create`, `delete`, `attach` and so on.
    pub operation: &'static str,
    /// The id of the resource, for instance a volume.
    pub id: String,
    /// The last known status, or the expected one before the first poll.
    pub status: String,
    /// Time since the request.
    pub waited: Duration,
}

/// Result of a poll for a wait.
#[derive(Debug)]
pub(crate) enum PollVerdict<R> {
    /// The operation continues.
    Pending,
    /// The wait has ended.
    Done(Result<R, CloudError>),
    /// The state may be the one from before the request. It ends the wait once no API node shows such a state any more.
    Unchanged(Result<R, CloudError>),
}

/// The subject and the limits of a wait.
#[derive(Debug)]
pub(crate) struct Wait<'a, T: Pollable> {
    pub(crate) kind: Kind,
    pub(crate) id: &'a T::Id,
    /// A name under which [`Watch::progress`] finds the wait too.
    pub(crate) name: Option<&'a str>,
    /// The status before the wait, if known.
    pub(crate) status: Option<T::Status>,
    /// When the request was accepted.
    pub(crate) started: Instant,
    pub(crate) deadline: Instant,
    /// The minimum interval of polls for this wait. Polls for other waiters serve it too. The duration of such a wait
    /// does not change the schedule.
    pub(crate) at_most_every: Option<Duration>,
    /// The subject in errors: `volume …, server …`.
    pub(crate) what: String,
}

impl<T: Pollable> Watch<T> {
    pub(crate) fn new(transport: Arc<Transport>) -> Self {
        Self {
            shared: Arc::new(Shared {
                transport,
                state: Mutex::default(),
                wake: Notify::new(),
            }),
        }
    }

    /// Polls until `verdict` ends the wait, or until the deadline. The argument of `verdict` is `None` if the cloud
    /// does not know the resource (404). Transient errors of a poll are ignored. Cancel safe: the polls end with the
    /// last waiter.
    pub(crate) async fn until<R>(
        &self,
        wait: Wait<'_, T>,
        mut verdict: impl FnMut(Option<&T>) -> PollVerdict<R>,
    ) -> Result<R, CloudError> {
        // The request was accepted by now, and `wait.started` may be earlier than the time at which it was sent.
        let began = Instant::now();
        let mut registration = self.register(&wait);
        let mut last_status = wait
            .status
            .as_ref()
            .map_or_else(|| "not seen".to_owned(), ToString::to_string);
        let mut last_error = String::new();
        loop {
            let Ok(Some(result)) = timeout_at(wait.deadline, registration.polls.recv()).await else {
                return Err(CloudError::Timeout {
                    what: format!("{} of {}", wait.kind.name(), wait.what),
                    last_status,
                    last_error,
                    elapsed: wait.started.elapsed(),
                });
            };
            match result {
                Ok(thing) => {
                    match verdict(thing.as_ref()) {
                        PollVerdict::Unchanged(_) if self.may_precede(began, thing.as_ref()) => {}
                        PollVerdict::Done(result) | PollVerdict::Unchanged(result) => {
                            registration.learn(result.is_ok());
                            return result;
                        }
                        PollVerdict::Pending => {}
                    }
                    last_status =
                        thing.map_or_else(|| "unknown to the cloud".to_owned(), |thing| thing.status().to_string());
                    last_error.clear();
                    last_failure::answered(POLL_OPERATION);
                }
                Err(error) if error.is_transient() => {
                    last_error = error.to_string();
                    // The task of the watch sent the request for all waiters, so it recorded no failure for this
                    // operation.
                    last_failure::met(POLL_OPERATION, &error);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether a polled state may be older than a request that was accepted before `began`. An API node with a lagging
    /// database shows such a state for up to [`database_lag`](crate::timing::Timing::database_lag). A state that
    /// changed after the request is new.
    fn may_precede(&self, began: Instant, thing: Option<&T>) -> bool {
        let elapsed = began.elapsed();
        if elapsed >= TIMING.database_lag {
            return false;
        }
        let now = self.shared.transport.time_of_cinder();
        let changed_for = thing.and_then(T::changed_at).map(|at| now.duration_since(at));
        !changed_for.is_some_and(|changed_for| is_newer(elapsed, changed_for))
    }

    /// Progress of the waits for a resource, by id or name. Of several waits, the longest one.
    pub(crate) fn progress(&self, what: &str) -> Option<Progress> {
        let state = self.shared.state();
        let about = state
            .waiters
            .values()
            .filter(|waiter| waiter.name.as_deref() == Some(what) || waiter.id.to_string() == what);
        about.min_by_key(|waiter| waiter.started).map(|waiter| Progress {
            operation: T::operation(waiter.kind),
            id: waiter.id.to_string(),
            status: waiter.status.to_string(),
            waited: waiter.started.elapsed(),
        })
    }

    fn register(&self, wait: &Wait<'_, T>) -> Registration<T> {
        let (polls_out, polls) = mpsc::unbounded_channel();
        let registered = Instant::now();
        let age = wait.started.elapsed();
        let mut state = self.shared.state();
        let id = state.next_id;
        state.next_id += 1;
        // A short wait polls once before its end.
        let longest = wait.deadline.saturating_duration_since(wait.started) / 2;
        let first_poll = state.schedule.first_poll(wait.kind).min(longest);
        let first_poll = wait.at_most_every.unwrap_or(first_poll);
        let waiter = Waiter {
            id: wait.id.clone(),
            name: wait.name.map(str::to_owned),
            kind: wait.kind,
            status: wait.status.clone().unwrap_or_else(|| T::under_way(wait.kind)),
            started: wait.started,
            registered,
            since: (self.shared.transport.sources().now())
                .checked_sub(SignedDuration::try_from(age).unwrap_or(SignedDuration::ZERO))
                .unwrap_or(Timestamp::MIN),
            first_poll,
            due: wait.started + first_poll,
            at_most_every: wait.at_most_every,
            polls: 0,
            reported: registered,
            last_poll: None,
            listed: false,
            unlisted: false,
            polls_out,
        };
        state.waiters.insert(id, waiter);
        self.shared.transport.observer().queue_changed("wait", 1);
        if state.running {
            self.shared.wake.notify_one();
        } else {
            state.running = true;
            tokio::spawn(task::run(Arc::clone(&self.shared)));
        }
        drop(state);
        Registration {
            id,
            shared: Arc::clone(&self.shared),
            polls,
        }
    }
}

struct Registration<T: Pollable> {
    id: u64,
    shared: Arc<Shared<T>>,
    polls: mpsc::UnboundedReceiver<PollResult<T>>,
}

impl<T: Pollable> Registration<T> {
    /// Records the duration of a successful operation in the schedule.
    fn learn(&self, succeeded: bool) {
        let mut state = self.shared.state();
        let WatchState { waiters, schedule, .. } = &mut *state;
        let waiter =
            (waiters.get(&self.id)).filter(|waiter| succeeded && waiter.at_most_every.is_none() && !waiter.listed);
        if let Some((waiter, found)) = waiter.and_then(|waiter| Some((waiter, waiter.last_poll?))) {
            schedule.finished(waiter.kind, waiter.first_poll, waiter.polls, found);
        }
    }
}

impl<T: Pollable> Drop for Registration<T> {
    fn drop(&mut self) {
        let waiter = self.shared.state().waiters.remove(&self.id);
        let observer = self.shared.transport.observer();
        if waiter.is_some() {
            observer.queue_changed("wait", -1);
        }
        // A wait with a minimum interval accompanies another wait, which is counted.
        if let Some(waiter) = waiter.filter(|waiter| waiter.at_most_every.is_none()) {
            observer.wait_finished(T::operation(waiter.kind), waiter.started.elapsed(), waiter.polls);
        }
        self.shared.wake.notify_one();
    }
}

/// Whether a state that changed `changed_for` ago is newer than a request of `elapsed` ago. Cinder rounds its
/// timestamps and its clock to seconds, so a change before the request can appear to be in the future.
fn is_newer(elapsed: Duration, changed_for: SignedDuration) -> bool {
    elapsed
        .checked_sub(TIMING.whole_seconds)
        .and_then(|since| SignedDuration::try_from(since).ok())
        .is_some_and(|since| changed_for < since)
}

#[cfg(test)]
mod tests;
