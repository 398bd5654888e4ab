// SPDX-License-Identifier: Apache-2.0
//! A volume by its id, until it is gone.

use tokio::time::{Instant, sleep};

use super::{ROUNDS, passing, passing_unseen};
use crate::api::block_storage::{BlockStorage, Snapshot, Volume, VolumeStatus};
use crate::context::Context;
use crate::error::{CloudError, ObjectKind};
use crate::http::retry::jitter;
use crate::ids::{ServerId, VolumeId};
use crate::operations::attachments::delete_stale_attachments;
use crate::operations::backups::clear_temporary;
use crate::operations::dependents::{or_unknown, volumes_built_on};
use crate::operations::groups::own::leave_own_group;
use crate::operations::volumes::{message, settle};
use crate::poll::Wait;
use crate::poll::schedule::Kind;
use crate::timing::TIMING;

/// See [`crate::Cloud::delete_volume`].
pub(crate) async fn delete_volume(cx: &Context, id: &VolumeId) -> Result<(), CloudError> {
    if !id.is_uuid() || cx.deleted.get(id).is_some() {
        return Ok(());
    }
    let cinder = BlockStorage::new(&cx.transport);
    let deadline = Instant::now() + cx.options.operation_timeout;
    let (mut rounds, mut missed) = (0, false);
    loop {
        rounds += 1;
        let started = Instant::now();
        let refusal = match cinder.delete(id).await {
            Ok(answer) if answer.missing() => return Ok(()),
            Ok(_) => return wait_gone(cx, id, started, deadline).await,
            Err(error @ (CloudError::BadRequest(_) | CloudError::Conflict(_))) => error,
            Err(error) if error.is_uncertain() => error,
            Err(error) => return Err(error),
        };
        // Refused, or the answer was lost: the volume tells why.
        let Some(volume) = cinder.volume(id).await? else {
            if is_gone_unseen(cx, refusal, rounds >= ROUNDS, &mut missed).await? {
                return Ok(());
            }
            continue;
        };
        let is_failed = volume.status.is_error() && volume.status != VolumeStatus::ErrorDeleting;
        if rounds < ROUNDS && (volume.is_in_attachment() || (is_failed && !volume.attachments.is_empty())) {
            let clean_up = delete_stale_attachments(cx, &volume).await?;
            if clean_up.removed {
                continue;
            }
            if !clean_up.offloaded.is_empty() {
                return Err(reserved_for(&volume, clean_up.offloaded, &refusal));
            }
        }
        match &volume.status {
            VolumeStatus::Deleting => return wait_gone(cx, id, started, deadline).await,
            VolumeStatus::InUse => return Err(in_use(&volume, &refusal)),
            // Cinder takes no second deletion of it.
            VolumeStatus::ErrorDeleting => return Err(not_deleted(cx, id, &volume.status, started).await),
            status if status.is_transition() && rounds < ROUNDS => {
                settle(cx, &volume, deadline, format!("volume {id}"))
                    .await
                    .map_err(|error| match error {
                        CloudError::Timeout { .. } => in_use(&volume, &refusal),
                        other => other,
                    })?;
            }
            _ if !volume.attachments.is_empty() => return Err(in_use(&volume, &refusal)),
            _ if rounds < ROUNDS && refusal.is_uncertain() => {
                sleep(jitter(TIMING.deletion_retry, &cx.options.sources)).await;
            }
            _ if rounds < ROUNDS && removed_obstacle(cx, id).await? => {}
            _ => return Err(dependents(cx, &volume, refusal).await?),
        }
    }
}

/// Whether a look that shows nothing means that the thing is gone, after a deletion that was refused or whose answer was lost. An API
/// node whose database lags does not show what was just made: the answer to the deletion tells, without one the second such look.
/// Pauses before that.
pub(crate) async fn is_gone_unseen(
    cx: &Context,
    refusal: CloudError,
    is_last_round: bool,
    missed: &mut bool,
) -> Result<bool, CloudError> {
    let missed_before = std::mem::replace(missed, true);
    if refusal.is_uncertain() && missed_before {
        return Ok(true);
    }
    if is_last_round {
        return Err(refusal);
    }
    sleep(jitter(TIMING.deletion_retry, &cx.options.sources)).await;
    Ok(false)
}

/// Removes what our own operations may have left at a volume that is to be deleted; true when there was something.
async fn removed_obstacle(cx: &Context, id: &VolumeId) -> Result<bool, CloudError> {
    let snapshots = snapshots_of(cx, id).await?;
    Ok(clear_temporary(cx, &snapshots).await? || leave_own_group(cx, id).await?)
}

async fn snapshots_of(cx: &Context, id: &VolumeId) -> Result<Vec<Snapshot>, CloudError> {
    let filter = [("volume_id", id.to_string())];
    BlockStorage::new(&cx.transport).snapshots(&filter).await
}

/// The refusal, with the names of the snapshots where there are any: they are independent of their volume, so the volume stays.
async fn dependents(cx: &Context, volume: &Volume, refusal: CloudError) -> Result<CloudError, CloudError> {
    let id = &volume.id;
    let snapshots = snapshots_of(cx, id).await?;
    if snapshots.is_empty() {
        let passing = passing(volume, &refusal).or_else(|| passing_unseen(volume, &refusal));
        return Ok(passing.unwrap_or(refusal));
    }
    let (CloudError::BadRequest(failure) | CloudError::Conflict(failure)) = refusal else {
        return Ok(refusal);
    };
    let names: Vec<String> = snapshots
        .iter()
        .map(|snapshot| format!("snapshot {} ({})", snapshot.name, snapshot.id))
        .collect();
    Ok(CloudError::VolumeHasDependents {
        volume: id.clone(),
        dependents: names.join(", "),
        failure,
    })
}

pub(super) async fn wait_gone(
    cx: &Context,
    id: &VolumeId,
    started: Instant,
    deadline: Instant,
) -> Result<(), CloudError> {
    let wait = Wait {
        kind: Kind::Delete,
        id,
        name: None,
        status: Some(VolumeStatus::Deleting),
        started,
        deadline,
        at_most_every: None,
        what: format!("volume {id}"),
    };
    let mut seen_available = false;
    let left = cx
        .watch
        .until(wait, |volume| match volume.map(|volume| &volume.status) {
            None => Some(Ok(None)),
            Some(VolumeStatus::Deleting) => None,
            // An API node whose database lags shows it as it was before the deletion.
            Some(VolumeStatus::Available) if !std::mem::replace(&mut seen_available, true) => None,
            Some(status) => Some(Ok(Some(status.clone()))),
        });
    match left.await? {
        None => {
            cx.deleted.insert(id.clone(), ());
            Ok(())
        }
        Some(VolumeStatus::Available) => Err(given_back(cx, id).await?),
        Some(status) => Err(not_deleted(cx, id, &status, started).await),
    }
}

/// The backend took the deletion back: something is built on the volume.
async fn given_back(cx: &Context, id: &VolumeId) -> Result<CloudError, CloudError> {
    let is_copy = |volume: &Volume| volume.source_volid.as_ref() == Some(id);
    let dependents = volumes_built_on(cx, id.as_str(), is_copy).await?;
    Ok(CloudError::StillNeeded {
        kind: ObjectKind::Volume,
        id: id.to_string(),
        dependents: or_unknown(dependents),
        message: message(cx, id).await,
    })
}

pub(super) async fn not_deleted(cx: &Context, id: &VolumeId, status: &VolumeStatus, started: Instant) -> CloudError {
    let mut message = message(cx, id).await;
    if *status == VolumeStatus::ErrorDeleting {
        let separator = if message.is_empty() { "" } else { "; " };
        let remedy = "an administrator has to find out why and reset its status to available or error";
        message = format!("{message}{separator}{remedy}");
    }
    CloudError::VolumeFailed {
        volume: id.clone(),
        status: status.to_string(),
        message,
        removed: false,
        elapsed: started.elapsed(),
    }
}

fn in_use(volume: &Volume, refusal: &CloudError) -> CloudError {
    reserved_for(volume, Vec::new(), refusal)
}

/// In use by the servers that Cinder shows, and by others for which Nova keeps the volume reserved.
fn reserved_for(volume: &Volume, others: Vec<ServerId>, refusal: &CloudError) -> CloudError {
    CloudError::VolumeInUse {
        volume: volume.id.clone(),
        status: volume.status.to_string(),
        servers: volume.servers().into_iter().chain(others).collect(),
        request_id: refusal.request_id().map(str::to_owned),
    }
}
