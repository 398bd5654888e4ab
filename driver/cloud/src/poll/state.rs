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
    /// In the order in which they came, which is the order of the looks for them.
    pub(super) waiters: BTreeMap<u64, Waiter<T>>,
    pub(super) next_id: u64,
    pub(super) running: bool,
    /// Before then no thing is looked at again that was looked at for several waiters, or is being looked at.
    pub(super) next_polls: HashMap<T::Id, Instant>,
    /// Before then no list of changes is asked for.
    pub(super) next_list: Option<Instant>,
    /// Failed lists of changes in a row.
    pub(super) failed_lists: u32,
    /// Before then all polls are direct, because lists of changes fail.
    pub(super) lists_rest: Option<Instant>,
    /// The things with a slow last poll.
    pub(super) slow: HashSet<T::Id>,
    pub(super) schedule: PollSchedule,
    /// Whether a list of changes was refused.
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
    /// No look that was begun before tells about the operation.
    pub(super) registered: Instant,
    /// `started`, by the calendar.
    pub(super) since: Timestamp,
    /// From `started` to the first look.
    pub(super) first_poll: Duration,
    pub(super) due: Instant,
    pub(super) at_most_every: Option<Duration>,
    pub(super) polls: u32,
    /// When something was last seen of it, or it began.
    pub(super) reported: Instant,
    pub(super) last_look: Option<Duration>,
    /// Whether a list has told of it: that happens when others are due, and says nothing about how long the operation takes.
    pub(super) listed: bool,
    /// Whether it is due, and the last list failed or did not contain it. It is polled directly then.
    pub(super) unlisted: bool,
    pub(super) polls_out: mpsc::UnboundedSender<PollResult<T>>,
}

impl<T: Pollable> Shared<T> {
    pub(super) fn state(&self) -> MutexGuard<'_, WatchState<T>> {
        self.state.lock()
    }
}
