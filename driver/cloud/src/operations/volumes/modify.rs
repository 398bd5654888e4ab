// SPDX-License-Identifier: Apache-2.0
//! Changes the type and the metadata of a volume.
//!
//! The driver detects impossible changes before it changes anything. The type is changed first, because Cinder may
//! refuse or fail to change it, and then nothing else has changed. After a failed change of type, the volume has its
//! old type and is not in an error status. Only the resulting type shows the success.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::{blocked_error_with, hidden_work_conflict, pending_work_conflict, settle};
use crate::api::block_storage::{BlockStorage, Volume, VolumeStatus, VolumeType};
use crate::context::Context;
use crate::error::CloudError;
use crate::ids::VolumeId;
use crate::migration::MigrationPolicy;
use crate::operations::ROUNDS;
use crate::operations::capacity::find_type;
use crate::operations::groups::own::leave_own_group;
use crate::operations::messages::{cinder_messages, join_texts};
use crate::poll::schedule::Kind;
use crate::poll::{PollVerdict, Wait};

/// The desired changes of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// The type by name or id; `None` for no change.
    pub volume_type: Option<String>,
    /// Whether the data may move to another backend for the type.
    pub migration: MigrationPolicy,
    /// Metadata to set. Other keys stay unchanged.
    pub metadata: BTreeMap<String, String>,
}

/// See [`crate::Cloud::modify_volume`].
pub(crate) async fn modify_volume(cx: &Context, id: &VolumeId, changes: &Changes) -> Result<Volume, CloudError> {
    if !id.is_uuid() {
        return Err(CloudError::no_volume(id));
    }
    let cinder = BlockStorage::new(&cx.transport);
    let deadline = Instant::now() + cx.options.operation_timeout;
    let mut volume = find_volume(cx, id).await?;
    let mut rounds = 0;
    while let Some(wanted) = another_type(cx, &volume, changes).await? {
        if volume.status.is_transition() {
            // A change of an earlier call, or another operation that ends by itself.
            volume = if volume.status == VolumeStatus::Retyping {
                wait_retyped(cx, id, &wanted, Instant::now(), deadline).await?
            } else {
                let settled = settle(cx, &volume, deadline, format!("volume {id}")).await?;
                settled.ok_or_else(|| CloudError::no_volume(id))?
            };
            continue;
        }
        suits(&volume, &wanted)?;
        rounds += 1;
        let started = Instant::now();
        match cinder.retype(id, &wanted.name, changes.migration).await {
            Ok(true) => {
                volume = wait_retyped(cx, id, &wanted, started, deadline).await?;
                if volume.volume_type.as_deref() == Some(&wanted.name) {
                    break;
                }
                let message = cinder_messages(cx, id.as_str()).await;
                return Err(CloudError::RetypeFailed {
                    message: join_texts(&message, &migration_text(&volume)),
                    volume: id.clone(),
                    wanted: wanted.name,
                    found: volume.volume_type.unwrap_or_default(),
                    migration: changes.migration,
                    elapsed: started.elapsed(),
                });
            }
            // 404.
            Ok(false) => return Err(CloudError::no_volume(id)),
            Err(error) => {
                let refused = error.is_refused();
                if !(refused || error.is_uncertain()) || rounds >= ROUNDS {
                    return Err(error);
                }
                // The volume shows the obstacle (400, 409), or the result of a request with a lost response.
                volume = find_volume(cx, id).await?;
                let is_unchanged =
                    !volume.status.is_transition() && another_type(cx, &volume, changes).await?.is_some();
                if is_unchanged && !(refused && leave_own_group(cx, id).await?) {
                    let passing =
                        pending_work_conflict(&volume, &error).or_else(|| hidden_work_conflict(&volume, &error));
                    return Err(passing.unwrap_or(error));
                }
            }
        }
    }
    let missing: BTreeMap<String, String> = changes
        .metadata
        .iter()
        .filter(|(key, value)| volume.metadata.get(*key) != Some(value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if !missing.is_empty() {
        if !cinder.merge_metadata(id, &missing).await? {
            return Err(CloudError::no_volume(id));
        }
        volume.metadata.extend(missing);
    }
    Ok(volume)
}

async fn find_volume(cx: &Context, id: &VolumeId) -> Result<Volume, CloudError> {
    let found = BlockStorage::new(&cx.transport).volume(id).await?;
    found.ok_or_else(|| CloudError::no_volume(id))
}

/// The requested type; `None` if the volume has it, or if no type is requested.
async fn another_type(cx: &Context, volume: &Volume, changes: &Changes) -> Result<Option<VolumeType>, CloudError> {
    let Some(wanted) = &changes.volume_type else {
        return Ok(None);
    };
    if volume.volume_type.as_ref() == Some(wanted) {
        return Ok(None);
    }
    let found = find_type(cx, wanted).await?;
    let found = found.ok_or_else(|| cannot(volume, format!("the project knows no volume type {wanted}")))?;
    Ok((volume.volume_type.as_ref() != Some(&found.name)).then_some(found))
}

async fn wait_retyped(
    cx: &Context,
    id: &VolumeId,
    wanted: &VolumeType,
    started: Instant,
    deadline: Instant,
) -> Result<Volume, CloudError> {
    let wait = Wait {
        kind: Kind::Retype,
        id,
        name: None,
        status: Some(VolumeStatus::Retyping),
        started,
        deadline,
        at_most_every: None,
        what: format!("volume {id}"),
    };
    cx.watch
        .until(wait, |now| match now {
            None => PollVerdict::Unchanged(Err(CloudError::no_volume(id))),
            Some(now) if now.status == VolumeStatus::Retyping => PollVerdict::Pending,
            Some(now) if now.volume_type.as_ref() == Some(&wanted.name) || now.status.is_error() => {
                PollVerdict::Done(Ok(now.clone()))
            }
            Some(now) => PollVerdict::Unchanged(Ok(now.clone())),
        })
        .await
}

/// Checks whether the volume can have the type, as far as this is known before the request.
fn suits(volume: &Volume, wanted: &VolumeType) -> Result<(), CloudError> {
    if let Some(zone) = volume
        .availability_zone
        .as_deref()
        .filter(|zone| !wanted.allows_zone(zone))
    {
        return Err(cannot(
            volume,
            format!(
                "volumes of type {} cannot be in zone {zone}, where its pods look for it",
                wanted.name
            ),
        ));
    }
    match &volume.status {
        VolumeStatus::Available => Ok(()),
        VolumeStatus::InUse if volume.multiattach == wanted.multiattach() => Ok(()),
        VolumeStatus::InUse => Err(cannot(
            volume,
            format!(
                "type {} differs in multiattach, which takes a volume that is not in use; stop its pods first",
                wanted.name
            ),
        )),
        _ => Err(blocked_error_with(volume, "its type cannot be changed in this status")),
    }
}

fn migration_text(volume: &Volume) -> String {
    match volume.migration_status.as_deref() {
        None | Some("" | "none" | "success") => String::new(),
        Some(status) => format!("the migration is {status}"),
    }
}

fn cannot(volume: &Volume, reason: String) -> CloudError {
    CloudError::CannotModify {
        volume: volume.id.clone(),
        reason,
    }
}
