// SPDX-License-Identifier: Apache-2.0
//! The groups that this driver creates: their marks, their reuse, and their removal.
//!
//! A volume that leaves a group while its snapshot is taken is missing in the snapshot. No record shows which process
//! takes the snapshot, so the age of the group decides. An attempt ends within the operation timeout, and uses an
//! existing group only if the group is younger than that. A group older than twice the operation timeout plus the
//! timeout of a last request belongs to no attempt any more.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::Instant;

use super::poll::is_settled;
use crate::api::block_storage::{BlockStorage, Group, GroupSnapshotRecord, GroupType};
use crate::context::Context;
use crate::error::{CloudError, ObjectKind};
use crate::ids::VolumeId;
use crate::operations::clusters::other_cluster;
use crate::operations::groups::poll::{poll_until_shown, wait_group_created, wait_group_deleted, wait_group_settled};
use crate::timestamp::parse_timestamp;

/// The beginning of the description of every group snapshot and every group of this driver. In a group snapshot, the
/// number of volumes follows. In a group, the id of the snapshot follows once it is known.
pub(super) const MARK: &str = "Made by the OpenStack Cinder CSI driver for one snapshot of several volumes.";

/// Introduces the cluster in a description.
const CLUSTER: &str = " Cluster: ";
/// A longer name of a cluster is omitted, because a description has 255 characters.
const LONGEST_CLUSTER: usize = 128;

pub(super) fn is_own(group: &Group) -> bool {
    group.description.starts_with(MARK)
}

/// Whether a group snapshot has the mark of this driver. Only such a group snapshot is removed without a request for
/// its id.
pub(super) fn is_own_snapshot(record: &GroupSnapshotRecord) -> bool {
    record.description.starts_with(MARK)
}

/// The description of a group snapshot of so many volumes.
pub(super) fn description_of_snapshot(volumes: usize, cluster: &str) -> String {
    format!("{MARK} Volumes: {volumes}.{}", cluster_text(cluster))
}

/// The description of a group before its snapshot is complete.
pub(super) fn description_of_group(cluster: &str) -> String {
    format!("{MARK}{}", cluster_text(cluster))
}

fn cluster_text(cluster: &str) -> String {
    if cluster.is_empty() || cluster.chars().count() > LONGEST_CLUSTER {
        String::new()
    } else {
        format!("{CLUSTER}{cluster}.")
    }
}

/// The cluster for which this driver created a group or group snapshot, by its description.
pub(super) fn cluster_of(description: &str) -> Option<&str> {
    let (_, cluster) = description.strip_prefix(MARK)?.split_once(CLUSTER)?;
    cluster.strip_suffix('.')
}

/// The number of volumes of a group snapshot of this driver. The snapshot has fewer members if a volume left the group
/// too early.
pub(super) fn expected_members(record: &GroupSnapshotRecord) -> Option<usize> {
    let rest = record.description.strip_prefix(MARK)?;
    let (volumes, _) = rest.strip_prefix(" Volumes: ")?.split_once('.')?;
    volumes.parse().ok()
}

/// The description of the group of a group snapshot.
fn description_of(id: &str) -> String {
    format!("{MARK} Group snapshot {id}.")
}

/// Whether this driver created the group for a snapshot of this name in this cluster.
fn belongs_to_request(group: &Group, name: &str, cluster: &str) -> bool {
    group.name == name && is_own(group) && other_cluster(cluster_of(&group.description), Some(cluster)).is_none()
}

/// Returns a usable group of an earlier attempt with this name, and removes the other groups of the name.
pub(super) async fn own_group(
    cx: &Context,
    name: &str,
    cluster: &str,
    group_type: &GroupType,
    deadline: Instant,
) -> Result<Option<Group>, CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    let named = cinder.groups(|group| belongs_to_request(group, name, cluster)).await?;
    let mut usable: Option<Group> = None;
    for found in named {
        let Some(group) = wait_group_settled(cx, &found.id, deadline).await? else {
            continue;
        };
        let is_good = group.status == "available" && group.type_id == group_type.id;
        let age = age(cx, &group.created_at);
        if is_good && usable.is_none() && age < cx.options.operation_timeout {
            usable = Some(group);
        } else if is_good && age < attempts_end(cx) {
            return Err(CloudError::Busy {
                kind: ObjectKind::Group,
                id: group.id,
                status: "in use by an earlier attempt at its snapshot, which may still be under way".to_owned(),
                wanted: "unused",
            });
        } else {
            dissolve_if_own(cx, &found.id, deadline).await?;
        }
    }
    Ok(usable)
}

/// Deletes the groups of earlier attempts at the group snapshot of this name, without their volumes.
pub(super) async fn dissolve_groups_named(
    cx: &Context,
    name: &str,
    cluster: &str,
    deadline: Instant,
) -> Result<(), CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    let named = cinder.groups(|group| belongs_to_request(group, name, cluster)).await?;
    for found in named {
        dissolve_if_own(cx, &found.id, deadline).await?;
    }
    Ok(())
}

/// Takes the volumes out of the group of a complete group snapshot, if the group is from this driver, and records the
/// snapshot in the group. If the status of a volume does not allow it now, the next call does it. A volume in the group
/// cannot be deleted.
pub(super) async fn free_volumes(
    cx: &Context,
    record: &GroupSnapshotRecord,
    deadline: Instant,
) -> Result<(), CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    let Some(group) = cinder.group(&record.group_id).await?.filter(is_own) else {
        return Ok(());
    };
    let description = description_of(&record.id);
    if group.volumes.is_empty() && group.description == description {
        return Ok(());
    }
    empty_group(cx, &group, Some(&description), deadline).await
}

/// Removes all volumes from a group, sets its description, and waits until Cinder shows the group without volumes.
///
/// Cinder refuses (400) to remove a volume that was removed before. An API node with a lagging database may still show
/// it in the group.
pub(super) async fn empty_group(
    cx: &Context,
    group: &Group,
    description: Option<&str>,
    deadline: Instant,
) -> Result<(), CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    let update = cinder.update_group(&group.id, &[], &group.volumes, description).await;
    let refused = match update {
        Ok(()) => None,
        Err(error @ CloudError::BadRequest(_)) => Some(error),
        Err(error) => return Err(error),
    };
    let read = || wait_group_settled(cx, &group.id, deadline);
    let is_empty = |remaining: Option<&Group>| remaining.is_none_or(|remaining| remaining.volumes.is_empty());
    let remaining = poll_until_shown(cx, deadline, read, is_empty).await?;
    match (remaining, refused) {
        (Some(remaining), refused) if !remaining.volumes.is_empty() => Err(refused.unwrap_or(CloudError::Busy {
            kind: ObjectKind::Group,
            id: remaining.id,
            status: remaining.status,
            wanted: "empty",
        })),
        (Some(remaining), Some(_)) if description.is_some_and(|description| remaining.description != description) => {
            cinder.update_group(&group.id, &[], &[], description).await
        }
        _ => Ok(()),
    }
}

/// The same for a complete group snapshot. Only a transient error delays its result. A volume that remains in the group
/// is removed from it before the volume is deleted or retyped.
pub(super) async fn try_free_volumes(
    cx: &Context,
    record: &GroupSnapshotRecord,
    deadline: Instant,
) -> Result<(), CloudError> {
    match free_volumes(cx, record, deadline).await {
        Err(error) if !error.is_transient() => {
            tracing::warn!(%error, group = record.group_id, group_snapshot = record.id, "volumes stay in the group of a complete snapshot");
            Ok(())
        }
        result => result,
    }
}

/// Empties and deletes a new or existing group, if it is from this driver, and waits until it is deleted. Does not
/// change its volumes.
pub(super) async fn dissolve_if_own(cx: &Context, id: &str, deadline: Instant) -> Result<(), CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    let Some(group) = wait_group_created(cx, id, deadline).await?.filter(is_own) else {
        return Ok(());
    };
    if !group.volumes.is_empty() {
        empty_group(cx, &group, None, deadline).await?;
    }
    match cinder.delete_group(id).await {
        // The snapshot of the group still exists (400). An API node with a lagging database may have shown otherwise.
        Err(CloudError::BadRequest(failure)) => return Err(CloudError::Conflict(failure)),
        result => result?,
    }
    wait_group_deleted(cx, id, deadline).await
}

/// Deletes the group of a group snapshot that does not exist any more.
pub(super) async fn dissolve_group_of(cx: &Context, group_snapshot: &str, deadline: Instant) -> Result<(), CloudError> {
    let description = description_of(group_snapshot);
    let cinder = BlockStorage::new(&cx.transport);
    let of_snapshot = cinder.groups(|group| group.description == description).await?;
    for group in of_snapshot {
        dissolve_if_own(cx, &group.id, deadline).await?;
    }
    Ok(())
}

/// The age of a resource by Cinder's clock; zero if its time is invalid.
pub(super) fn age(cx: &Context, created_at: &str) -> Duration {
    let created = parse_timestamp(created_at);
    let age = created.map(|created| cx.transport.time_of_cinder().duration_since(created));
    age.and_then(|age| Duration::try_from(age).ok()).unwrap_or_default()
}

/// Takes a volume out of a group of this driver that a killed process did not remove. `false`: it is in no group, or in
/// a group of another client.
///
/// # Errors
///
/// Fails with [`CloudError::Busy`] while a process may work on the group's snapshot.
pub(crate) fn leave_own_group<'a>(cx: &'a Context, volume: &'a VolumeId) -> BoxFuture<'a, Result<bool, CloudError>> {
    // On the heap, because it is rarely used.
    Box::pin(take_out(cx, volume))
}

async fn take_out(cx: &Context, volume: &VolumeId) -> Result<bool, CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    if !cinder.knows_groups().await? {
        return Ok(false);
    }
    let Some(found) = cinder
        .grouped_volume(volume)
        .await?
        .filter(|found| !found.group_id.is_empty())
    else {
        return Ok(false);
    };
    let Some(group) = cinder.group(&found.group_id).await?.filter(is_own) else {
        return Ok(false);
    };
    if !is_abandoned(cx, &group).await? {
        return Err(CloudError::Busy {
            kind: ObjectKind::Volume,
            id: volume.to_string(),
            status: format!("in group {} for a snapshot that may still be taken", group.id),
            wanted: "in no group",
        });
    }
    tracing::warn!(%volume, group = group.id, "taking a volume out of the group of an abandoned snapshot");
    let deadline = Instant::now() + cx.options.operation_timeout;
    cinder
        .update_group(&group.id, &[], std::slice::from_ref(volume), None)
        .await?;
    let is_out = |remaining: Option<&Group>| remaining.is_none_or(|remaining| !remaining.volumes.contains(volume));
    let remaining = poll_until_shown(cx, deadline, || wait_group_settled(cx, &group.id, deadline), is_out).await?;
    let out = remaining
        .as_ref()
        .is_none_or(|remaining| !remaining.volumes.contains(volume));
    if out && remaining.is_some_and(|remaining| remaining.volumes.is_empty()) {
        // Cinder refuses this while the group's snapshot exists. The deletion of the snapshot then deletes the group.
        drop(dissolve_if_own(cx, &group.id, deadline).await);
    }
    Ok(out)
}

/// Whether volumes may leave a group of this driver: its snapshot is complete, or no process can use the group any
/// more.
async fn is_abandoned(cx: &Context, group: &Group) -> Result<bool, CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    let snapshots = cinder.group_snapshots(|snapshot| snapshot.group_id == group.id).await?;
    if !snapshots.is_empty() {
        return Ok(snapshots.iter().all(|snapshot| is_settled(&snapshot.status)));
    }
    Ok(age(cx, &group.created_at) >= attempts_end(cx))
}

/// The age after which no attempt uses a group.
fn attempts_end(cx: &Context) -> Duration {
    2 * cx.options.operation_timeout + cx.options.request_timeout
}
