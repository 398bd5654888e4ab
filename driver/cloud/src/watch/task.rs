//! The task that looks, for all who wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::{Instant, timeout};

use super::{Look, Shared, State};
use crate::block_storage::{BlockStorage, Volume, VolumeStatus};
use crate::error::{CloudError, Failure};
use crate::ids::VolumeId;
use crate::pace::Kind;

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

/// Looks until nobody waits any more.
pub(super) async fn run(shared: Arc<Shared>) {
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
        for group in due_groups(&mut shared.state()) {
            // On its own, so that an answer that does not come holds nobody up.
            let shared = Arc::clone(&shared);
            tokio::spawn(async move { look_at(&shared, group).await });
        }
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
    for group in &ready {
        if group.shared {
            state.listed.insert(group.status.clone(), now);
        }
        // Not again before this look has ended, which sets the next one's time.
        for (id, ..) in &group.due {
            if let Some(waiter) = state.waiters.get_mut(id) {
                waiter.due = now + LOOK_TIMEOUT.saturating_mul(4);
            }
        }
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
            failure: Failure {
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
    drop(state);
    shared.wake.notify_one();
}
