// SPDX-License-Identifier: Apache-2.0
//! Deletes a volume.

use tokio::time::Instant;

use super::{blocked_error, hidden_work_conflict, pending_work_conflict, settle};
use crate::api::block_storage::{BlockStorage, Snapshot, Volume, VolumeStatus};
use crate::context::Context;
use crate::error::text::names_text;
use crate::error::{CloudError, ObjectKind};
use crate::ids::{ServerId, VolumeId};
use crate::operations::attachments::delete_stale_attachments;
use crate::operations::deletion::{Attempt, Deletable, NextStep, delete, next_step_after, remedy};
use crate::operations::dependents::{or_unknown_dependents, volumes_built_on};
use crate::operations::groups::own::leave_own_group;
use crate::operations::messages::{cinder_messages, join_texts};
use crate::operations::snapshots::temporary::{clear_temporary, is_temporary};
use crate::poll::Watch;

/// See [`crate::Cloud::delete_volume`].
pub(crate) async fn delete_volume(cx: &Context, id: &VolumeId) -> Result<(), CloudError> {
    if !id.is_uuid() || cx.deleted.get(id).is_some() {
        return Ok(());
    }
    delete::<Volume>(cx, id).await
}

impl Deletable for Volume {
    const KIND: ObjectKind = ObjectKind::Volume;

    fn watch(cx: &Context) -> &Watch<Self> {
        &cx.watch
    }

    async fn request(cx: &Context, id: &VolumeId, _attempt: &mut Attempt) -> Result<NextStep, CloudError> {
        let answer = BlockStorage::new(&cx.transport).delete(id).await?;
        Ok(next_step_after(&answer))
    }

    async fn resolve_refusal(
        self,
        cx: &Context,
        attempt: &Attempt,
        refusal: CloudError,
    ) -> Result<NextStep, CloudError> {
        let is_failed = self.status.is_error() && self.status != VolumeStatus::ErrorDeleting;
        if !attempt.is_last && (self.is_in_attachment() || (is_failed && !self.attachments.is_empty())) {
            let clean_up = delete_stale_attachments(cx, &self).await?;
            if clean_up.removed {
                return Ok(NextStep::Retry);
            }
            if !clean_up.offloaded.is_empty() {
                return Err(reserved_for(&self, clean_up.offloaded, &refusal));
            }
        }
        match &self.status {
            VolumeStatus::Deleting => Ok(NextStep::Wait),
            VolumeStatus::InUse => Err(in_use_error(&self, &refusal)),
            status if status.is_transition() && !attempt.is_last => {
                match settle(cx, &self, attempt.deadline, format!("volume {}", self.id)).await {
                    Err(CloudError::Timeout { .. }) if self.attachments.is_empty() => {
                        Err(blocked_error(cx, &self).await)
                    }
                    Err(CloudError::Timeout { .. }) => Err(in_use_error(&self, &refusal)),
                    settled => settled.map(|_| NextStep::Retry),
                }
            }
            _ if !self.attachments.is_empty() => Err(in_use_error(&self, &refusal)),
            _ if !attempt.is_last && refusal.is_uncertain() => Ok(NextStep::Pause),
            _ if !attempt.is_last && remove_obstacle(cx, &self.id).await? => Ok(NextStep::Retry),
            _ => Err(dependents(cx, &self, refusal).await?),
        }
    }

    fn record_deletion(cx: &Context, id: &VolumeId) {
        cx.deleted.insert(id.clone(), ());
    }

    async fn remaining_error(self, cx: &Context, started: Instant) -> Result<CloudError, CloudError> {
        if self.status != VolumeStatus::Available {
            return Ok(not_deleted(cx, &self, started).await);
        }
        // The backend refused the deletion: the volume has dependents.
        let is_copy = |volume: &Volume| volume.source_volid.as_ref() == Some(&self.id);
        let dependents = volumes_built_on(cx, self.id.as_str(), is_copy).await?;
        Ok(CloudError::StillNeeded {
            kind: ObjectKind::Volume,
            id: self.id.to_string(),
            dependents: or_unknown_dependents(dependents),
            message: cinder_messages(cx, self.id.as_str()).await,
        })
    }
}

/// Removes remains of the driver's own operations from a volume before its deletion. Returns whether there were any.
async fn remove_obstacle(cx: &Context, id: &VolumeId) -> Result<bool, CloudError> {
    let temporary = |snapshot| Some(snapshot).filter(is_temporary);
    let snapshots = BlockStorage::new(&cx.transport).snapshots_of(id, temporary).await?;
    Ok(clear_temporary(cx, &snapshots).await? || leave_own_group(cx, id).await?)
}

/// Adds the names of the snapshots to a refusal. Users manage the snapshots independently, so the driver does not
/// delete them.
async fn dependents(cx: &Context, volume: &Volume, refusal: CloudError) -> Result<CloudError, CloudError> {
    let id = &volume.id;
    let name = |snapshot: Snapshot| Some(format!("snapshot {} ({})", snapshot.name, snapshot.id));
    let snapshots = BlockStorage::new(&cx.transport).snapshots_of(id, name).await?;
    if snapshots.is_empty() {
        return Ok(
            match pending_work_conflict(volume, &refusal).or_else(|| hidden_work_conflict(volume, &refusal)) {
                Some(conflict) => conflict,
                None if !volume.status.is_deletable() => blocked_error(cx, volume).await,
                None => refusal,
            },
        );
    }
    let (CloudError::BadRequest(failure) | CloudError::Conflict(failure)) = refusal else {
        return Ok(refusal);
    };
    Ok(CloudError::VolumeHasDependents {
        volume: id.clone(),
        dependents: names_text(snapshots.into_iter()),
        failure,
    })
}

async fn not_deleted(cx: &Context, volume: &Volume, started: Instant) -> CloudError {
    let message = cinder_messages(cx, volume.id.as_str()).await;
    CloudError::VolumeFailed {
        volume: volume.id.clone(),
        status: volume.status.to_string(),
        message: join_texts(&message, remedy(volume.status.as_str())),
        removed: false,
        elapsed: started.elapsed(),
    }
}

fn in_use_error(volume: &Volume, refusal: &CloudError) -> CloudError {
    reserved_for(volume, Vec::new(), refusal)
}

/// The error about a volume that is in use by the servers in Cinder's record, or reserved for others by Nova.
fn reserved_for(volume: &Volume, others: Vec<ServerId>, refusal: &CloudError) -> CloudError {
    CloudError::VolumeInUse {
        volume: volume.id.clone(),
        status: volume.status.to_string(),
        servers: volume.servers().into_iter().chain(others).collect(),
        request_id: refusal.request_id().map(str::to_owned),
    }
}
