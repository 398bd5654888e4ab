// SPDX-License-Identifier: Apache-2.0
//! Runs at most one operation per volume, in a task of its own.
//!
//! An RPC that changes something starts a task, or joins the task that runs for the same volume and an equal request.
//! It waits until shortly before its caller gives up. Consequences:
//!
//! * A caller that times out or disconnects never cancels the work, and its retry joins the running task. Without a
//!   waiting caller, however, no request that creates an object is sent ([`CallerLiveness`]).
//! * A *different* request for a busy volume is refused with `ABORTED`. Two requests are never interleaved.
//! * A result is delivered to its waiting callers and then dropped. There is no cache: the next call queries OpenStack
//!   and the host again. A restarted process therefore gives the same answers.
//! * It protects a single process only. Several processes serve at once, with a leader per sidecar. Exclusion between
//!   processes relies on the refusals of Cinder and Nova, or on age (see the groups of `cinder_cloud`).
//! * The number of running operations is bounded, and so is the wait for them at shutdown.

use std::any::Any;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use cinder_cloud::{CallerLiveness, LastFailure};
use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;
use tracing::Instrument;

mod deadline;

pub use deadline::Deadline;
pub(crate) use deadline::with_deadline;

use crate::status;
use crate::timing::TIMING;

/// The bounds of [`Operations`].
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The maximum number of running operations. A further one is refused with `UNAVAILABLE`.
    pub running: usize,
    /// How long a call without a deadline waits for its operation.
    pub wait: Duration,
}

impl Default for Limits {
    /// 1,000 operations and a wait of 2 minutes, which is the kubelet's limit for one CSI call.
    fn default() -> Self {
        Self {
            running: 1_000,
            wait: TIMING.operation_wait,
        }
    }
}

/// The object that an operation reserves. Two operations for one target never run at once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// A volume, by id.
    Volume(String),
    /// A volume that is being created, by name.
    Name(String),
    /// A snapshot or backup, by id.
    PointInTime(String),
    /// A snapshot or backup that is being created, by name.
    PointInTimeName(String),
    /// A group snapshot, by id, or by name while it is being created.
    GroupSnapshot(String),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume(id) => write!(f, "volume {id}"),
            Self::Name(name) => write!(f, "volume named {name}"),
            Self::PointInTime(id) => write!(f, "snapshot {id}"),
            Self::PointInTimeName(name) => write!(f, "snapshot named {name}"),
            Self::GroupSnapshot(group) => write!(f, "group snapshot {group}"),
        }
    }
}

/// The progress of an operation, which its waiting callers report when their time is up.
#[derive(Debug, Clone)]
pub struct Progress {
    state: Arc<Mutex<ProgressState>>,
    last_failure: LastFailure,
    withdrawn: CancellationToken,
}

struct ProgressState {
    sentence: String,
    detail: Option<Box<dyn Fn() -> Option<String> + Send>>,
}

impl fmt::Debug for ProgressState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgressState")
            .field("sentence", &self.sentence)
            .finish_non_exhaustive()
    }
}

impl Progress {
    fn new() -> Self {
        Self {
            state: Arc::new(Mutex::new(ProgressState {
                sentence: "started".into(),
                detail: None,
            })),
            last_failure: LastFailure::default(),
            withdrawn: CancellationToken::new(),
        }
    }

    /// Returns a token that is cancelled when the operation is obsolete ([`Operations::withdraw`]).
    ///
    /// The operation must check it before it begins to change anything.
    pub fn withdrawn(&self) -> CancellationToken {
        self.withdrawn.clone()
    }

    /// Replaces the description, such as `waiting for the volume to become available`.
    pub fn set(&self, sentence: impl Into<String>) {
        self.state.lock().sentence = sentence.into();
    }

    /// Appends the result of `look` to the description whenever it is read. `look` must not block.
    pub fn follow(&self, detail: impl Fn() -> Option<String> + Send + 'static) {
        self.state.lock().detail = Some(Box::new(detail));
    }

    fn get(&self) -> String {
        let (state, failure) = (self.state.lock(), &self.last_failure);
        match state.detail.as_ref().and_then(|detail| detail()) {
            Some(detail) => format!("{}; {detail}{failure}", state.sentence),
            None => format!("{}{failure}", state.sentence),
        }
    }
}

/// The running operations. Cheap to clone; all clones share one table.
#[derive(Debug, Clone)]
pub struct Operations {
    table: Arc<OperationTable>,
}

#[derive(Debug)]
struct OperationTable {
    limits: Limits,
    running: Mutex<HashMap<Target, RunningOperation>>,
    tasks: TaskTracker,
    aborted: CancellationToken,
}

/// One running operation. `handle` is a [`Handle`] with the types of the request and the response.
struct RunningOperation {
    rpc: &'static str,
    since: Instant,
    progress: Progress,
    handle: Box<dyn Any + Send>,
    /// Cancelled when the operation is removed from the table.
    ended: CancellationToken,
}

impl fmt::Debug for RunningOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The request may contain secrets.
        f.debug_struct("Running")
            .field("rpc", &self.rpc)
            .field("since", &self.since)
            .finish_non_exhaustive()
    }
}

type Outcome<R> = watch::Receiver<Option<Result<R, Status>>>;

struct Handle<Q, R> {
    request: Q,
    outcome: Outcome<R>,
}

/// Removes an operation from the table when its task ends, even by a panic.
struct RunningEntry {
    table: Arc<OperationTable>,
    target: Target,
}

impl Drop for RunningEntry {
    fn drop(&mut self) {
        let running = self.table.running.lock().remove(&self.target);
        if let Some(running) = running {
            running.ended.cancel();
        }
    }
}

impl Operations {
    pub fn new(limits: Limits) -> Self {
        let table = OperationTable {
            limits,
            running: Mutex::default(),
            tasks: TaskTracker::new(),
            aborted: CancellationToken::new(),
        };
        Self { table: Arc::new(table) }
    }

    /// Returns the moment until which a call waits for its operation.
    ///
    /// It is the client's `grpc-timeout` less a margin for the response, or [`Limits::wait`] if the client set none.
    pub fn deadline<T>(&self, request: &tonic::Request<T>) -> Deadline {
        Deadline::from_request(request, self.table.limits.wait)
    }

    /// The number of running operations.
    pub fn running(&self) -> usize {
        self.table.running.lock().len()
    }

    /// Runs `work` for `target` in a task of its own, or joins the running task with an equal `request`. Waits for the
    /// result until `deadline`.
    ///
    /// `request` distinguishes different calls from repeated ones. It must not contain values that a repeated call may
    /// change, such as secrets. `work` is not called if a task is joined. Dropping this future does not cancel the
    /// work.
    ///
    /// # Errors
    ///
    /// * `ABORTED` while a different request for the target runs
    /// * `DEADLINE_EXCEEDED` with the last state when the time is up
    /// * `UNAVAILABLE` if the table is full or closed, or if the work panicked
    /// * otherwise the error that the work returns
    pub async fn run<Q, R, W, F>(
        &self,
        rpc: &'static str,
        target: Target,
        request: Q,
        deadline: Deadline,
        work: W,
    ) -> Result<R, Status>
    where
        Q: PartialEq + Send + 'static,
        R: Clone + Send + Sync + 'static,
        W: FnOnce(Progress) -> F,
        F: Future<Output = Result<R, Status>> + Send + 'static,
    {
        let (outcome, progress, since) = self.start_or_join(rpc, &target, request, work)?;
        wait(outcome, deadline)
            .await
            .unwrap_or_else(|| Err(status::still_running(rpc, &target, since.elapsed(), &progress.get())))
    }

    /// Withdraws the operation of `rpc` that runs for `target` if `is_meant` accepts its request, and briefly waits for
    /// its end.
    ///
    /// Only an operation that has not begun ends ([`Progress::withdrawn`]). Every other one continues.
    pub async fn withdraw<Q, R>(&self, rpc: &'static str, target: &Target, is_meant: impl FnOnce(&Q) -> bool)
    where
        Q: 'static,
        R: 'static,
    {
        let ended = {
            let running = self.table.running.lock();
            let Some(operation) = running.get(target).filter(|operation| operation.rpc == rpc) else {
                return;
            };
            match operation.handle.downcast_ref::<Handle<Q, R>>() {
                Some(handle) if is_meant(&handle.request) => operation.progress.withdrawn.cancel(),
                _ => return,
            }
            operation.ended.clone()
        };
        // An operation that continues is reported to the caller as any other conflicting operation.
        let _ = tokio::time::timeout(TIMING.withdrawal, ended.cancelled()).await;
    }

    /// Refuses new operations and waits at most `limit` for the running ones. Returns the number of operations that
    /// still run.
    pub async fn close(&self, limit: Duration) -> usize {
        self.table.tasks.close();
        // Remaining operations are abandoned with the process. The next process resumes from the state of OpenStack and
        // the host.
        let _ = tokio::time::timeout(limit, self.table.tasks.wait()).await;
        self.running()
    }

    /// Refuses new operations and aborts the running ones immediately, as the end of the process does.
    pub fn abort(&self) {
        self.table.tasks.close();
        self.table.aborted.cancel();
    }

    fn start_or_join<Q, R, W, F>(
        &self,
        rpc: &'static str,
        target: &Target,
        request: Q,
        work: W,
    ) -> Result<(Outcome<R>, Progress, Instant), Status>
    where
        Q: PartialEq + Send + 'static,
        R: Clone + Send + Sync + 'static,
        W: FnOnce(Progress) -> F,
        F: Future<Output = Result<R, Status>> + Send + 'static,
    {
        let mut running = self.table.running.lock();
        let count = running.len();
        let vacant = match running.entry(target.clone()) {
            Entry::Occupied(entry) => {
                let other = entry.get();
                return match other.handle.downcast_ref::<Handle<Q, R>>() {
                    Some(handle) if other.rpc == rpc && handle.request == request => {
                        tracing::debug!(rpc, object = %target, "joined the running operation");
                        Ok((handle.outcome.clone(), other.progress.clone(), other.since))
                    }
                    _ => Err(status::other_operation(
                        rpc,
                        target,
                        other.rpc,
                        other.since.elapsed(),
                        &other.progress.get(),
                    )),
                };
            }
            Entry::Vacant(vacant) => vacant,
        };
        if self.table.tasks.is_closed() {
            return Err(status::shutting_down(rpc));
        }
        if count >= self.table.limits.running {
            return Err(status::too_many_operations(rpc, count));
        }
        let progress = Progress::new();
        let since = Instant::now();
        let (sender, outcome) = watch::channel(None);
        let sender = Arc::new(sender);
        // The table has one receiver. The task owns the sender, so that waiting callers notice when it ends.
        let weak = Arc::downgrade(&sender);
        let awaited = CallerLiveness::new(move || weak.upgrade().is_some_and(|sender| sender.receiver_count() > 1));
        vacant.insert(RunningOperation {
            rpc,
            since,
            progress: progress.clone(),
            handle: Box::new(Handle {
                request,
                outcome: outcome.clone(),
            }),
            ended: CancellationToken::new(),
        });
        let registration = RunningEntry {
            table: self.table.clone(),
            target: target.clone(),
        };
        drop(running);

        // Called outside the lock, because `work` is the caller's code. The box keeps the surrounding futures small:
        // each would otherwise reserve space for this one.
        let work = Box::pin(AssertUnwindSafe(work(progress.clone())).catch_unwind());
        let last_failure = progress.last_failure.clone();
        let task = async move {
            let result = awaited
                .during(last_failure.during(work))
                .await
                .unwrap_or_else(|_| Err(status::operation_panicked(rpc)));
            // The table entry is removed before the result is sent, so that a later call starts a new operation.
            drop(registration);
            sender.send_replace(Some(result));
        };
        let aborted = self.table.aborted.clone();
        let task = async move {
            aborted.run_until_cancelled(task).await;
        };
        self.table.tasks.spawn(task.instrument(tracing::Span::current()));
        Ok((outcome, progress, since))
    }
}

/// Waits for the outcome. Returns `None` if the deadline passes first.
async fn wait<R: Clone>(mut outcome: Outcome<R>, deadline: Deadline) -> Option<Result<R, Status>> {
    let answer = tokio::time::timeout_at(deadline.instant(), outcome.wait_for(Option::is_some))
        .await
        .ok()?;
    match answer.map(|value| value.clone()) {
        Ok(value) => value,
        // The task was dropped with the runtime.
        Err(_) => Some(Err(status::abandoned())),
    }
}

#[cfg(test)]
mod tests;
