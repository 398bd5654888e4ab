//! The shared status watch: one task per cloud looks at all volumes that somebody waits for.
//!
//! A volume alone in its status is looked at directly. Where several wait in one status, one list of that status serves them all;
//! those that have left it are looked up, many at once by one list of the newest volumes in the status they should have now. So
//! polling costs by time and not by the number of volumes. The task lives while somebody waits.

mod task;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout_at};

use crate::block_storage::{Volume, VolumeStatus};
use crate::error::CloudError;
use crate::ids::VolumeId;
use crate::pace::{Kind, Pace};
use crate::transport::Transport;

type Look = Result<Option<Volume>, CloudError>;

/// The watch of one cloud.
#[derive(Debug)]
pub(crate) struct Watch {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    transport: Arc<Transport>,
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiters: HashMap<u64, Waiter>,
    next_id: u64,
    running: bool,
    listed: HashMap<VolumeStatus, Instant>,
    /// Who looks without the watch, by kind of operation.
    alone: HashSet<Kind>,
    pace: Pace,
}

#[derive(Debug)]
struct Waiter {
    volume: VolumeId,
    name: Option<String>,
    kind: Kind,
    status: VolumeStatus,
    started: Instant,
    due: Instant,
    looks: u32,
    last_look: Option<Duration>,
    look_before: Option<Duration>,
    looks_out: mpsc::UnboundedSender<Look>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock; if it did, the table would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The status in which an operation of this kind is under way.
fn under_way(kind: Kind) -> VolumeStatus {
    match kind {
        Kind::Create => VolumeStatus::Creating,
        Kind::Delete => VolumeStatus::Deleting,
        Kind::Attach => VolumeStatus::Attaching,
        Kind::Detach | Kind::Settle => VolumeStatus::Detaching,
    }
}

/// How far a wait has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// `create`, `delete`, `attach`, `detach` or `settle`.
    pub operation: &'static str,
    /// The volume.
    pub volume: VolumeId,
    /// The status seen last, or expected where none was seen yet.
    pub status: VolumeStatus,
    /// Time since the request.
    pub waited: Duration,
}

/// What to wait for.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    pub(crate) kind: Kind,
    pub(crate) volume: &'a VolumeId,
    /// The name by which a progress report can be asked for besides the id.
    pub(crate) name: Option<&'a str>,
    /// The status seen last, where one was seen.
    pub(crate) status: Option<VolumeStatus>,
    /// When the request was accepted.
    pub(crate) started: Instant,
    pub(crate) deadline: Instant,
    /// When the caller itself has looked once, in vain.
    pub(crate) looked: Option<Duration>,
    /// For the error: `volume …, server …`.
    pub(crate) what: String,
}

impl Watch {
    pub(crate) fn new(transport: Arc<Transport>) -> Self {
        Self {
            shared: Arc::new(Shared {
                transport,
                state: Mutex::default(),
                wake: Notify::new(),
            }),
        }
    }

    /// Looks until `verdict` gives one about the volume (`None`: Cinder does not know it), or the deadline comes. A look that
    /// fails for reasons that pass is forgotten. May be cancelled: the looking ends with the last waiter.
    pub(crate) async fn until<T>(
        &self,
        wait: Wait<'_>,
        mut verdict: impl FnMut(Option<&Volume>) -> Option<Result<T, CloudError>>,
    ) -> Result<T, CloudError> {
        let mut registration = self.register(&wait);
        let mut last_status = wait
            .status
            .as_ref()
            .map_or_else(|| "not seen".to_owned(), ToString::to_string);
        let mut last_error = String::new();
        loop {
            let Ok(Some(look)) = timeout_at(wait.deadline, registration.looks.recv()).await else {
                return Err(CloudError::Timeout {
                    what: format!("{} of {}", wait.kind.name(), wait.what),
                    last_status,
                    last_error,
                    elapsed: wait.started.elapsed(),
                });
            };
            match look {
                Ok(volume) => {
                    if let Some(result) = verdict(volume.as_ref()) {
                        registration.learn(result.is_ok());
                        return result;
                    }
                    last_status =
                        volume.map_or_else(|| "unknown to Cinder".to_owned(), |volume| volume.status.to_string());
                    last_error.clear();
                }
                Err(error) if error.is_transient() => last_error = error.to_string(),
                Err(error) => return Err(error),
            }
        }
    }

    /// A first look by the caller itself, if nobody else waits for an operation of this kind: then another look than ours may be
    /// the cheaper one. `None` in company, which one list serves best.
    pub(crate) fn alone(&self, kind: Kind) -> Option<Lone> {
        let mut state = self.shared.state();
        if state.alone.contains(&kind) || state.waiters.values().any(|waiter| waiter.kind == kind) {
            return None;
        }
        state.alone.insert(kind);
        Some(Lone {
            kind,
            shared: Arc::clone(&self.shared),
            first_look: state.pace.first_look(kind),
        })
    }

    /// What is waited for about a volume, by id or name; the longest wait where there are several.
    pub(crate) fn progress(&self, volume: &str) -> Option<Progress> {
        let state = self.shared.state();
        let about = state
            .waiters
            .values()
            .filter(|waiter| waiter.volume.as_str() == volume || waiter.name.as_deref() == Some(volume));
        about.min_by_key(|waiter| waiter.started).map(|waiter| Progress {
            operation: waiter.kind.name(),
            volume: waiter.volume.clone(),
            status: waiter.status.clone(),
            waited: waiter.started.elapsed(),
        })
    }

    fn register(&self, wait: &Wait<'_>) -> Registration {
        let (looks_out, looks) = mpsc::unbounded_channel();
        let mut state = self.shared.state();
        let id = state.next_id;
        state.next_id += 1;
        let due = wait.started
            + match wait.looked {
                Some(elapsed) => elapsed + state.pace.next_gap(wait.kind, elapsed, 1),
                None => state.pace.first_look(wait.kind),
            };
        let waiter = Waiter {
            volume: wait.volume.clone(),
            name: wait.name.map(str::to_owned),
            kind: wait.kind,
            status: wait.status.clone().unwrap_or_else(|| under_way(wait.kind)),
            started: wait.started,
            due,
            looks: u32::from(wait.looked.is_some()),
            last_look: wait.looked,
            look_before: None,
            looks_out,
        };
        state.waiters.insert(id, waiter);
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
            looks,
        }
    }
}

/// A first look that the caller takes itself. Ends with its drop.
#[derive(Debug)]
pub(crate) struct Lone {
    kind: Kind,
    shared: Arc<Shared>,
    /// When to look, from the request on.
    pub(crate) first_look: Duration,
}

impl Lone {
    /// The look found the operation finished.
    pub(crate) fn found(self, started: Instant) {
        let waited = started.elapsed();
        self.shared.state().pace.finished(self.kind, 1, waited, None);
        self.shared
            .transport
            .observer()
            .wait_finished(self.kind.name(), waited, 1);
    }
}

impl Drop for Lone {
    fn drop(&mut self) {
        self.shared.state().alone.remove(&self.kind);
    }
}

struct Registration {
    id: u64,
    shared: Arc<Shared>,
    looks: mpsc::UnboundedReceiver<Look>,
}

impl Registration {
    /// Teaches the pace how long this took. A failure teaches nothing.
    fn learn(&self, succeeded: bool) {
        let mut state = self.shared.state();
        let State { waiters, pace, .. } = &mut *state;
        if let Some(waiter) = waiters.get(&self.id).filter(|_| succeeded)
            && let Some(found) = waiter.last_look
        {
            pace.finished(waiter.kind, waiter.looks, found, waiter.look_before);
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let waiter = self.shared.state().waiters.remove(&self.id);
        if let Some(waiter) = waiter {
            let observer = self.shared.transport.observer();
            observer.wait_finished(waiter.kind.name(), waiter.started.elapsed(), waiter.looks);
        }
        self.shared.wake.notify_one();
    }
}
