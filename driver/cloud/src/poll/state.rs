// SPDX-License-Identifier: Apache-2.0
//! The state that a watch shares with its callers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::pollable::Pollable;
use crate::error::CloudError;
use crate::http::transport::Transport;
use crate::poll::schedule::{Kind, PollSchedule};

pub(super) type PollResult<T> = Result<Option<T>, CloudError>;

#[derive(Debug)]
pub(super) struct Shared<T: Pollable> {
    pub(super) transport: Arc<Transport>,
    pub(super) state: Mutex<WatchState<T>>,
    pub(super) wake: Notify,
}

#[derive(Debug)]
pub(super) struct WatchState<T: Pollable> {
    /// The waiters in the order of their registration, which is also the order of their polls.
    pub(super) waiters: BTreeMap<u64, Waiter<T>>,
    pub(super) next_id: u64,
    pub(super) running: bool,
    /// The earliest time of the next poll, for each resource that has several waiters or is being polled.
    pub(super) next_polls: HashMap<T::Id, Instant>,
    /// The earliest time of the next list of changes.
    pub(super) next_list: Option<Instant>,
    /// The number of consecutive failed lists of changes.
    pub(super) failed_lists: u32,
    /// Until this time, all polls are direct because lists of changes fail.
    pub(super) lists_rest: Option<Instant>,
    /// The resources with a slow last poll.
    pub(super) slow: HashSet<T::Id>,
    pub(super) schedule: PollSchedule,
    /// Whether Cinder refused a list of changes.
    pub(super) no_changes: bool,
}

impl<T: Pollable> Default for WatchState<T> {
    fn default() -> Self {
        Self {
            waiters: BTreeMap::new(),
            next_id: 0,
            running: false,
            next_polls: HashMap::new(),
            next_list: None,
            failed_lists: 0,
            lists_rest: None,
            slow: HashSet::new(),
            schedule: PollSchedule::default(),
            no_changes: false,
        }
    }
}

#[derive(Debug)]
pub(super) struct Waiter<T: Pollable> {
    pub(super) id: T::Id,
    pub(super) name: Option<String>,
    pub(super) kind: Kind,
    pub(super) status: T::Status,
    pub(super) started: Instant,
    /// Polls that began before this time do not count for the operation.
    pub(super) registered: Instant,
    /// `started` as wall clock time.
    pub(super) since: Timestamp,
    /// The time from `started` to the first poll.
    pub(super) first_poll: Duration,
    pub(super) due: Instant,
    pub(super) at_most_every: Option<Duration>,
    pub(super) polls: u32,
    /// The time of the last report about the resource, or of the registration.
    pub(super) reported: Instant,
    pub(super) last_poll: Option<Duration>,
    /// Whether a list has contained the resource. Lists come when other waiters are due, so they do not show how long
    /// the operation takes.
    pub(super) listed: bool,
    /// Whether the waiter is due and the last list failed or lacked the resource. The resource is then polled directly.
    pub(super) unlisted: bool,
    pub(super) polls_out: mpsc::UnboundedSender<PollResult<T>>,
}

impl<T: Pollable> Shared<T> {
    pub(super) fn state(&self) -> MutexGuard<'_, WatchState<T>> {
        self.state.lock()
    }
}
