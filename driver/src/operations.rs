// SPDX-License-Identifier: Apache-2.0
//! One operation per volume, in a task of its own.
//!
//! An RPC that changes something starts a task, or joins the one that already runs for the same volume and the same
//! request, and waits for it until shortly before its caller gives up. What follows from that:
//!
//! * A caller that times out or goes away never cancels the work; its retry joins what goes on. Only what would make
//!   something ends instead while it has no caller ([`Awaited`]).
//! * A *different* request for a volume that is being worked on is answered `ABORTED`, never interleaved.
//! * A result goes to those who waited for it and is then forgotten. There is no cache: the next call looks at the world
//!   anew, so that a killed and restarted process gives the same answers as one that lived on.
//! * It guards one process. Several serve at once, with a leader per sidecar: what excludes across them rests on what Cinder and Nova
//!   refuse, or on age (see the groups of `cinder_cloud`).
//! * The number of running operations is bounded, and so is the wait for them at shutdown.

use std::any::Any;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use cinder_cloud::{Awaited, LastFailure};
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
    /// Most operations that may run at once; one more is answered `UNAVAILABLE`.
    pub running: usize,
    /// How long a call without a deadline of its own waits for its operation.
    pub wait: Duration,
}

impl Default for Limits {
    /// 1,000 operations, and a wait of 2 minutes, which is the kubelet's own limit for one CSI call.
    fn default() -> Self {
        Self {
            running: 1_000,
            wait: TIMING.operation_wait,
        }
    }
}

/// What an operation excludes others from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// A volume, by its id.
    Volume(String),
    /// A volume that is to be created, by its name.
    Name(String),
    /// A snapshot or backup, by its id.
    PointInTime(String),
    /// A snapshot or backup that is to be made, by its name.
    PointInTimeName(String),
    /// A group snapshot, by its id, or by its name while it is made.
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

/// How far an operation has come: what its waiters read when their time is up.
#[derive(Debug, Clone)]
pub struct Progress {
    state: Arc<Mutex<ProgressState>>,
    last_failure: LastFailure,
    withdrawn: CancellationToken,
}

struct ProgressState {
    sentence: String,
    look: Option<Box<dyn Fn() -> Option<String> + Send>>,
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
                look: None,
            })),
            last_failure: LastFailure::default(),
            withdrawn: CancellationToken::new(),
        }
    }

    /// Cancelled when the operation is no longer wanted ([`Operations::withdraw`]). To be heeded before anything has begun.
    pub fn withdrawn(&self) -> CancellationToken {
        self.withdrawn.clone()
    }

    /// Replaces the sentence, such as `waiting for the volume to become available`.
    pub fn set(&self, sentence: impl Into<String>) {
        self.state.lock().sentence = sentence.into();
    }

    /// Adds to the sentence what `look` says at the moment of reading. It must not block.
    pub fn follow(&self, look: impl Fn() -> Option<String> + Send + 'static) {
        self.state.lock().look = Some(Box::new(look));
    }

    fn get(&self) -> String {
        let (state, failure) = (self.state.lock(), &self.last_failure);
        match state.look.as_ref().and_then(|look| look()) {
            Some(detail) => format!("{}; {detail}{failure}", state.sentence),
            None => format!("{}{failure}", state.sentence),
        }
    }
}

/// The operations that run now. Cheap to clone; all clones are the same table.
#[derive(Debug, Clone)]
pub struct Operations {
    table: Arc<Table>,
}

#[derive(Debug)]
struct Table {
    limits: Limits,
    running: Mutex<HashMap<Target, Running>>,
    tasks: TaskTracker,
    aborted: CancellationToken,
}

/// One running operation. `handle` is a [`Handle`] of the request's and the answer's type.
struct Running {
    rpc: &'static str,
    since: Instant,
    progress: Progress,
    handle: Box<dyn Any + Send>,
    /// Cancelled when it is out of the table.
    ended: CancellationToken,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The request may hold what no log should.
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

/// Takes an operation out of the table when its task ends, however it ends.
struct RunningEntry {
    table: Arc<Table>,
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
        let table = Table {
            limits,
            running: Mutex::default(),
            tasks: TaskTracker::new(),
            aborted: CancellationToken::new(),
        };
        Self { table: Arc::new(table) }
    }

    /// The moment until which a call waits for its operation: its client's `grpc-timeout` less a margin for the answer's
    /// way back, or [`Limits::wait`] where the client set none.
    pub fn deadline<T>(&self, request: &tonic::Request<T>) -> Deadline {
        Deadline::of(request, self.table.limits.wait)
    }

    /// How many operations run now.
    pub fn running(&self) -> usize {
        self.table.running.lock().len()
    }

    /// Runs `work` for `target` in a task of its own, or joins the equal `request` that already runs, and waits for the
    /// answer until `deadline`.
    ///
    /// `request` tells equal calls from different ones; leave out of it what a repeated call may change, secrets first
    /// of all. `work` is called only if nothing is joined. Dropping this future leaves the work alone.
    ///
    /// Errors: `ABORTED` while a different request for the target runs, `DEADLINE_EXCEEDED` with the last state when the
    /// time is up, `UNAVAILABLE` when the table is full or closed or the work panicked, else what the work answers.
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

    /// Takes back the operation of `rpc` that runs for `target`, where `is_meant` says of its request that it is the one, and waits for
    /// its end for a moment. Only one that has not begun anything ends by that ([`Progress::withdrawn`]); every other goes on.
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
        // What goes on is answered as any other operation that is in the way.
        let _ = tokio::time::timeout(TIMING.withdrawal, ended.cancelled()).await;
    }

    /// Refuses new operations from now on and waits for those that run, `limit` at most. Returns how many were left.
    pub async fn close(&self, limit: Duration) -> usize {
        self.table.tasks.close();
        // What is left is abandoned with the process: the next one finds the state of the world and goes on from there.
        let _ = tokio::time::timeout(limit, self.table.tasks.wait()).await;
        self.running()
    }

    /// Refuses new operations from now on and ends those that run where they stand, as the end of the process does.
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
        // One receiver is the table's. The sender itself goes with its task, so that those who wait learn of that end.
        let weak = Arc::downgrade(&sender);
        let awaited = Awaited::new(move || weak.upgrade().is_some_and(|sender| sender.receiver_count() > 1));
        vacant.insert(Running {
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

        // Called outside the lock: `work` is the caller's code.
        // In a box: each of the futures around it has room for what it is given and for what it makes of that.
        let work = Box::pin(AssertUnwindSafe(work(progress.clone())).catch_unwind());
        let last_failure = progress.last_failure.clone();
        let task = async move {
            let result = awaited
                .during(last_failure.during(work))
                .await
                .unwrap_or_else(|_| Err(status::operation_panicked(rpc)));
            // First out of the table, then the answer: whoever comes after this line starts anew.
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

/// The outcome, or nothing when the deadline came first.
async fn wait<R: Clone>(mut outcome: Outcome<R>, deadline: Deadline) -> Option<Result<R, Status>> {
    let answer = tokio::time::timeout_at(deadline.instant(), outcome.wait_for(Option::is_some))
        .await
        .ok()?;
    match answer.map(|value| value.clone()) {
        Ok(value) => value,
        // The task was torn down with the runtime.
        Err(_) => Some(Err(status::abandoned())),
    }
}

#[cfg(test)]
mod tests;
