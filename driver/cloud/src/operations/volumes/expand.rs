// SPDX-License-Identifier: Apache-2.0
//! Expands volumes and waits until Cinder shows the new size.

use tokio::time::{Instant, sleep};

use super::{blocked_error, pending_work_conflict, settle};
use crate::api::block_storage::{BlockStorage, Volume, VolumeStatus};
use crate::context::Context;
use crate::error::CloudError;
use crate::http::retry::jitter;
use crate::ids::{GiB, VolumeId};
use crate::operations::ROUNDS;
use crate::operations::attachments::delete_stale_attachments;
use crate::operations::messages::{cinder_messages, join_texts};
use crate::poll::schedule::Kind;
use crate::poll::{PollVerdict, Wait};
use crate::timing::TIMING;

/// See [`crate::Cloud::expand_volume`].
pub(crate) async fn expand_volume(cx: &Context, id: &VolumeId, size: GiB) -> Result<Volume, CloudError> {
    if !id.is_uuid() {
        return Err(CloudError::no_volume(id));
    }
    let cinder = BlockStorage::new(&cx.transport);
    let deadline = Instant::now() + cx.options.operation_timeout;
    let mut rounds = 0;
    loop {
        rounds += 1;
        let started = Instant::now();
        let volume = cinder.volume(id).await?.ok_or_else(|| CloudError::no_volume(id))?;
        if volume.status == VolumeStatus::Extending {
            // Usually an earlier request of this driver. Its result determines the next step.
            let grown = wait_extended(cx, &volume, size, started, deadline).await?;
            if grown.size >= size {
                return Ok(grown);
            }
            if rounds >= ROUNDS {
                return Err(not_expanded(cx, &grown, size, started).await);
            }
            continue;
        }
        if volume.size >= size {
            return Ok(volume);
        }
        let is_extendable = volume.status == VolumeStatus::InUse && cinder.extends_in_use().await?;
        if rounds < ROUNDS && volume.is_in_attachment() && !is_extendable {
            let clean_up = delete_stale_attachments(cx, &volume).await?;
            if clean_up.removed {
                continue;
            }
            if volume.status == VolumeStatus::Reserved && !clean_up.offloaded.is_empty() {
                return Err(blocked_error(cx, &volume).await);
            }
        }
        if volume.status.is_transition() && volume.status != VolumeStatus::Deleting && rounds < ROUNDS {
            match settle(cx, &volume, deadline, format!("volume {id}")).await {
                Err(CloudError::Timeout { .. }) => return Err(blocked_error(cx, &volume).await),
                settled => settled?,
            };
            continue;
        }
        match volume.status {
            VolumeStatus::Available => {}
            VolumeStatus::InUse if is_extendable => {}
            VolumeStatus::InUse => {
                return Err(CloudError::OnlineExpansion {
                    servers: volume.servers(),
                    volume: volume.id,
                });
            }
            _ => return Err(blocked_error(cx, &volume).await),
        }
        let refusal = match cinder.extend(&volume, size).await {
            // 404.
            Ok(answer) if answer.missing() => return Err(CloudError::no_volume(id)),
            Ok(_) => {
                let grown = wait_extended(cx, &volume, size, started, deadline).await?;
                // Cinder restores the former status of a volume for which it found no space, so only the size shows
                // success.
                return if grown.size >= size {
                    Ok(grown)
                } else {
                    Err(not_expanded(cx, &grown, size, started).await)
                };
            }
            // 400 or 409: the status may have changed since it was read. After a lost response, the next read shows the
            // result.
            Err(error) if error.is_refused() || error.is_uncertain() => error,
            Err(error) => return Err(error),
        };
        if rounds >= ROUNDS {
            return Err(refusal);
        }
        if !refusal.is_uncertain() {
            let now = cinder.volume(id).await?.ok_or_else(|| CloudError::no_volume(id))?;
            if now.status == volume.status && now.size == volume.size {
                return Err(pending_work_conflict(&now, &refusal).unwrap_or(refusal));
            }
        }
        sleep(jitter(TIMING.expand_retry, &cx.options.sources)).await;
    }
}

/// Waits until the volume is no longer `extending`, and returns it in any resulting status.
async fn wait_extended(
    cx: &Context,
    volume: &Volume,
    wanted: GiB,
    started: Instant,
    deadline: Instant,
) -> Result<Volume, CloudError> {
    let wait = Wait {
        kind: Kind::Extend,
        id: &volume.id,
        name: None,
        status: Some(VolumeStatus::Extending),
        started,
        deadline,
        at_most_every: None,
        what: format!("volume {}", volume.id),
    };
    cx.watch
        .until(wait, |now| match now {
            None => PollVerdict::Unchanged(Err(CloudError::no_volume(&volume.id))),
            Some(now) if now.status == VolumeStatus::Extending => PollVerdict::Pending,
            Some(now) if now.size >= wanted || now.status.is_error() => PollVerdict::Done(Ok(now.clone())),
            Some(now) => PollVerdict::Unchanged(Ok(now.clone())),
        })
        .await
}

async fn not_expanded(cx: &Context, volume: &Volume, wanted: GiB, started: Instant) -> CloudError {
    let mut message = cinder_messages(cx, volume.id.as_str()).await;
    if volume.status.is_error() {
        let remedy = "an administrator has to find out why and reset its status to what it was, available or in-use";
        message = join_texts(&message, remedy);
    }
    CloudError::ExpandFailed {
        volume: volume.id.clone(),
        size: volume.size,
        wanted,
        status: volume.status.to_string(),
        message,
        elapsed: started.elapsed(),
    }
}
