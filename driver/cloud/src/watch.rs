//! The shared status watch: one task per cloud looks at all volumes that somebody waits for.
//!
//! A volume alone in its status is looked at directly. Where several wait in one status, one list of that status serves them all;
//! those that have left it are looked up, many at once by one list of the newest volumes in the status they should have now. So
//! polling costs by time and not by the number of volumes. The task lives while somebody waits.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout, timeout_at};

use crate::block_storage::{BlockStorage, Volume, VolumeStatus};
use crate::error::CloudError;
use crate::ids::VolumeId;
use crate::pace::{Kind, Pace};
use crate::transport::Transport;

/// Between two lists of one status.
const LIST_GAP: Duration = Duration::from_millis(250);
/// Waiters due this soon are served by the look that is due now.
const TOGETHER: Duration = Duration::from_millis(100);
/// So many that left a status at once are looked up by one list.
const MANY: usize = 3;
/// The longest page of such a list.
const PAGE: u32 = 100;
/// Direct looks at the same time.
const PARALLEL: usize = 8;
/// How long one look may take; the next tick begins afresh.
const LOOK_TIMEOUT: Duration = Duration::from_secs(20);

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

/// Where to look for volumes that have left a status during an operation of this kind, the status itself aside: on the way and at
/// its end, with the longest page where a list may hold many others. A deletion's end is no status.
fn further(kind: Kind) -> &'static [(VolumeStatus, Option<u32>)] {
    match kind {
        Kind::Create | Kind::Detach => &[(VolumeStatus::Available, Some(PAGE))],
        Kind::Attach => &[
            (VolumeStatus::Reserved, None),
            (VolumeStatus::Attaching, None),
            (VolumeStatus::InUse, Some(PAGE)),
        ],
        Kind::Delete | Kind::Settle => &[],
    }
}

/// What to wait for.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    pub(crate) kind: Kind,
    pub(crate) volume: &'a VolumeId,
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
            tokio::spawn(run(Arc::clone(&self.shared)));
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

async fn run(shared: Arc<Shared>) {
    loop {
        let due = {
            let mut state = shared.state();
            let Some(due) = state.waiters.values().map(|waiter| waiter.due).min() else {
                state.running = false;
                state.listed.clear();
                return;
            };
            due
        };
        tokio::select! {
            () = tokio::time::sleep_until(due) => {}
            () = shared.wake.notified() => continue,
        }
        let groups = due_groups(&mut shared.state());
        join_all(groups.into_iter().map(|group| look_at(&shared, group))).await;
    }
}

/// The volumes to look at now that share a status.
#[derive(Debug)]
struct Group {
    status: VolumeStatus,
    /// Waiters to serve, by registration.
    due: Vec<(u64, VolumeId, Kind)>,
    /// Whether there is more than one, so that a list serves them all.
    shared: bool,
}

fn due_groups(state: &mut State) -> Vec<Group> {
    let now = Instant::now();
    let soon = now + TOGETHER;
    let mut groups: HashMap<VolumeStatus, Group> = HashMap::new();
    for waiter in state.waiters.values().filter(|waiter| waiter.due <= now) {
        let status = waiter.status.clone();
        groups.entry(status.clone()).or_insert(Group {
            status,
            due: Vec::new(),
            shared: false,
        });
    }
    for (id, waiter) in &state.waiters {
        // Whoever was looked at before rides along; a request that has just been made is left its time.
        if let Some(group) = groups.get_mut(&waiter.status)
            && (waiter.due <= soon || waiter.looks > 0)
        {
            group.due.push((*id, waiter.volume.clone(), waiter.kind));
        }
    }
    for group in groups.values_mut() {
        group.shared = group.due.len() > 1;
    }
    let mut ready: Vec<Group> = groups.into_values().collect();
    // A group that was listed just now waits for its next turn.
    ready.retain(|group| {
        let again = state
            .listed
            .get(&group.status)
            .map(|listed| *listed + LIST_GAP)
            .filter(|again| *again > now);
        let Some(again) = again else { return true };
        for (id, ..) in &group.due {
            if let Some(waiter) = state.waiters.get_mut(id) {
                waiter.due = again;
            }
        }
        false
    });
    for group in ready.iter().filter(|group| group.shared) {
        state.listed.insert(group.status.clone(), now);
    }
    ready
}

async fn look_at(shared: &Shared, group: Group) {
    let cinder = BlockStorage::new(&shared.transport);
    if !group.shared {
        look_directly(shared, group.due).await;
        return;
    }
    let listed = match list(&cinder, &group.status, None).await {
        Ok(listed) => listed,
        Err(error) => {
            for (id, ..) in group.due {
                deliver(shared, id, Err(error.clone()));
            }
            return;
        }
    };
    let mut left = Vec::new();
    for (id, volume, kind) in group.due {
        match listed.get(&volume) {
            Some(found) => deliver(shared, id, Ok(Some(found.clone()))),
            None => left.push((id, volume, kind)),
        }
    }
    // Many that left together are likely together still; in Cinder's lists the newest volumes come first.
    let elsewhere = left.first().map_or(&[][..], |(_, _, kind)| further(*kind));
    for (status, limit) in elsewhere.iter().filter(|(status, _)| *status != group.status) {
        if left.len() < MANY {
            break;
        }
        let Ok(found) = list(&cinder, status, *limit).await else {
            break;
        };
        left.retain(|(id, volume, _)| match found.get(volume) {
            Some(found) => {
                deliver(shared, *id, Ok(Some(found.clone())));
                false
            }
            None => true,
        });
    }
    look_directly(shared, left).await;
}

async fn list(
    cinder: &BlockStorage<'_>,
    status: &VolumeStatus,
    limit: Option<u32>,
) -> Result<HashMap<VolumeId, Volume>, CloudError> {
    let filter = [("status", status.to_string())];
    let look = async {
        match limit {
            Some(_) => cinder.page(&filter, limit, None).await.map(|page| page.volumes),
            None => cinder.all(&filter, None).await,
        }
    };
    let volumes = within_look_timeout(&format!("list of volumes in status {status}"), look).await?;
    // The filter is a wish: what Cinder sends beyond it tells the truth about other volumes just the same.
    Ok(volumes.into_iter().map(|volume| (volume.id.clone(), volume)).collect())
}

async fn look_directly(shared: &Shared, waiters: Vec<(u64, VolumeId, Kind)>) {
    let cinder = BlockStorage::new(&shared.transport);
    for some in waiters.chunks(PARALLEL) {
        join_all(some.iter().map(async |(id, volume, _)| {
            let look = within_look_timeout(&format!("look at volume {volume}"), cinder.volume(volume)).await;
            deliver(shared, *id, look);
        }))
        .await;
    }
}

async fn within_look_timeout<T>(
    what: &str,
    look: impl Future<Output = Result<T, CloudError>>,
) -> Result<T, CloudError> {
    timeout(LOOK_TIMEOUT, look).await.unwrap_or_else(|_| {
        Err(CloudError::Unreachable {
            failure: crate::error::Failure {
                operation: "volume_get",
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

fn deliver(shared: &Shared, id: u64, look: Look) {
    let mut state = shared.state();
    let State { waiters, pace, .. } = &mut *state;
    let Some(waiter) = waiters.get_mut(&id) else { return };
    let elapsed = waiter.started.elapsed();
    waiter.looks += 1;
    waiter.look_before = waiter.last_look.replace(elapsed);
    waiter.due = Instant::now() + pace.next_gap(waiter.kind, elapsed, waiter.looks);
    if let Ok(Some(volume)) = &look {
        waiter.status = volume.status.clone();
    }
    // The other end is gone only when its registration is about to be.
    let _ = waiter.looks_out.send(look);
}
