// SPDX-License-Identifier: Apache-2.0
//! Snapshots of several volumes at one moment, through Cinder's generic groups.
//!
//! Cinder takes such a snapshot only of a group, not of a list of volumes. Only groups of a type with
//! `consistent_group_snapshot_enabled` have snapshots of one moment. For other groups, Cinder takes one snapshot after
//! the other without an error.
//!
//! A volume in a group can neither be deleted nor retyped. The snapshot of a group stays valid when the volumes leave
//! the group, but the group must exist as long as its snapshot. Therefore every group snapshot has its own group: the
//! volumes join it, Cinder takes the snapshot, and the volumes leave at once. The empty group is deleted after its
//! snapshot. If the volumes are already in a group of another client, and the group has no other volumes, the snapshot
//! is taken of that group.
//!
//! The group has the snapshot's name and a mark of this driver in its description. These identify the remains of a
//! killed process.

pub(crate) mod delete;
pub(crate) mod members;
pub(crate) mod own;
pub(crate) mod poll;
mod snapshot;

use std::collections::BTreeSet;

use futures::StreamExt;
use futures::stream;
use tokio::time::{Instant, sleep, timeout_at};

use crate::api::block_storage::{
    BlockStorage, Group, GroupSnapshotRecord, GroupType, GroupedVolume, NewGroup, VolumeStatus,
};
use crate::context::Context;
use crate::error::{CloudError, ObjectKind};
use crate::http::retry::jitter;
use crate::ids::{GroupSnapshotId, VolumeId};
use crate::operations::clusters::other_cluster;
use crate::operations::deletion::final_if_removed;
use crate::operations::groups::delete::remove_group_snapshot;
use crate::operations::groups::members::with_members;
use crate::operations::groups::own::{
    age, dissolve_groups_named, dissolve_if_own, leave_own_group, own_group, try_free_volumes,
};
use crate::operations::groups::poll::{settled, wait_group_created, wait_group_members, wait_group_snapshot_created};
use crate::timing::TIMING;
pub use snapshot::GroupSnapshot;
pub use snapshot::NewGroupSnapshot;

/// The maximum number of attempts of a creation, each after the removal of an earlier attempt's remains.
const ROUNDS: u32 = 5;
/// Concurrent reads of volumes.
const PARALLEL: usize = 8;
/// The maximum number of volumes of one group snapshot. One request contains all of their ids.
const MOST_VOLUMES: usize = 100;

/// See [`crate::Cloud::create_group_snapshot`].
pub(crate) async fn create_group_snapshot(cx: &Context, new: &NewGroupSnapshot) -> Result<GroupSnapshot, CloudError> {
    let began = Instant::now();
    let deadline = began + cx.options.operation_timeout;
    // Other processes rely on this end, however slow the responses are: see `own`.
    let attempt = timeout_at(deadline, attempt_group_snapshot(cx, new, deadline));
    let created = attempt.await.unwrap_or_else(|_| {
        Err(CloudError::Timeout {
            what: format!("group snapshot {}", new.name),
            last_status: "not complete".to_owned(),
            last_error: String::new(),
            elapsed: began.elapsed(),
        })
    })?;
    cx.note_created(created.id.as_str());
    Ok(created)
}

async fn attempt_group_snapshot(
    cx: &Context,
    new: &NewGroupSnapshot,
    deadline: Instant,
) -> Result<GroupSnapshot, CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    if let Some(volume) = new.volumes.iter().find(|volume| !volume.is_uuid()) {
        return Err(CloudError::no_volume(volume));
    }
    if new.volumes.len() > MOST_VOLUMES {
        return Err(cannot(
            new,
            format!("it has {} volumes, and {MOST_VOLUMES} are the most", new.volumes.len()),
        ));
    }
    if !cinder.knows_groups().await? {
        return Err(cannot(
            new,
            "this Cinder has no groups of volumes (they take microversion 3.25)",
        ));
    }
    for _ in 0..ROUNDS {
        let Some(found) = group_snapshot_named(cx, &new.name).await? else {
            return create_grouped_snapshot(cx, new, deadline).await;
        };
        if let Some(difference) = other_cluster(own::cluster_of(&found.description), Some(&new.cluster)) {
            return Err(CloudError::SnapshotExists {
                kind: ObjectKind::GroupSnapshot,
                id: found.id,
                name: new.name.clone(),
                difference,
            });
        }
        let Some(settled) = settled(cx, found, deadline).await? else {
            continue;
        };
        if settled.status != "available" {
            if !own::is_own_snapshot(&settled) {
                return Err(CloudError::SnapshotExists {
                    kind: ObjectKind::GroupSnapshot,
                    id: settled.id,
                    name: new.name.clone(),
                    difference: format!(
                        "it is in status {} and was not made by this driver, so it stays; whoever made it has to remove it",
                        settled.status
                    ),
                });
            }
            tracing::warn!(
                group_snapshot = settled.id,
                status = settled.status,
                "removing a group snapshot that failed earlier"
            );
            remove_group_snapshot(cx, &settled, deadline).await?;
            continue;
        }
        let found = with_all_members(cx, &settled, new).await?;
        if found.lacks_volumes(&settled, new) {
            if age(cx, &settled.created_at) < cx.options.operation_timeout {
                return Err(CloudError::Busy {
                    kind: ObjectKind::GroupSnapshot,
                    id: settled.id,
                    status: format!(
                        "available with {} of {} volumes, and an earlier attempt may still be running",
                        found.snapshots.len(),
                        new.volumes.len()
                    ),
                    wanted: "complete or removed",
                });
            }
            tracing::warn!(
                group_snapshot = settled.id,
                "removing a group snapshot in which volumes are missing"
            );
            remove_group_snapshot(cx, &settled, deadline).await?;
            continue;
        }
        let found = found.of_all(new)?;
        // An earlier call may have been killed before this.
        try_free_volumes(cx, &settled, deadline).await?;
        return Ok(found);
    }
    Err(failed(new, "error", "it failed again and again"))
}

/// See [`crate::Cloud::group_snapshot`].
pub(crate) async fn group_snapshot(cx: &Context, id: &GroupSnapshotId) -> Result<Option<GroupSnapshot>, CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    if !id.is_uuid() || !cinder.knows_groups().await? {
        return Ok(None);
    }
    match cinder.group_snapshot(id.as_str()).await? {
        None => Ok(None),
        Some(record) => with_members(cx, &record).await.map(Some),
    }
}

async fn group_snapshot_named(cx: &Context, name: &str) -> Result<Option<GroupSnapshotRecord>, CloudError> {
    let all = BlockStorage::new(&cx.transport).group_snapshots().await?;
    let mut named: Vec<_> = all.into_iter().filter(|found| found.name == name).collect();
    // Complete ones first.
    named.sort_by_key(|found| (found.status != "available", found.created_at.clone()));
    Ok(named.into_iter().next())
}

/// Creates a complete group snapshot and takes its volumes out of the group again. After a failure, only resources
/// remain that the next attempt finds by name.
async fn create_grouped_snapshot(
    cx: &Context,
    new: &NewGroupSnapshot,
    deadline: Instant,
) -> Result<GroupSnapshot, CloudError> {
    let group = match group_for(cx, new, deadline).await {
        Ok(group) => group,
        Err(error) if error.is_transient() || matches!(error, CloudError::Busy { .. }) => return Err(error),
        Err(error) => {
            // The error may be final, so the remains of earlier attempts are removed too.
            let removal = dissolve_groups_named(cx, &new.name, &new.cluster, deadline).await;
            return Err(final_if_removed(error, ObjectKind::Group, &new.name, removal));
        }
    };
    match take_snapshot(cx, new, &group, deadline).await {
        Ok(record) => {
            let found = with_all_members(cx, &record, new).await?;
            if found.lacks_volumes(&record, new) {
                let removed = remove_group_snapshot(cx, &record, deadline).await;
                let removal_failure = removed
                    .as_ref()
                    .err()
                    .map(|error| format!("; its removal failed: {error}"));
                return Err(CloudError::SnapshotFailed {
                    kind: ObjectKind::GroupSnapshot,
                    id: record.id,
                    status: record.status,
                    message: format!(
                        "a volume left its group while it was taken{}",
                        removal_failure.unwrap_or_default()
                    ),
                    removed: removed.is_ok(),
                });
            }
            try_free_volumes(cx, &record, deadline).await?;
            found.of_all(new)
        }
        Err(error) => {
            if may_be_cut(cx, new, &error).await {
                // A volume that left the group now would be missing in the snapshot. The next attempt finds the group
                // by its name.
                tracing::warn!(%error, group = group.id, "the group of a group snapshot stays as it is, because Cinder may still work on it");
                return Err(error);
            }
            let removal = dissolve_if_own(cx, &group.id, deadline).await;
            Err(final_if_removed(error, ObjectKind::Group, &group.id, removal))
        }
    }
}

/// Whether Cinder may still take the snapshot in spite of this error, or another process uses its group.
async fn may_be_cut(cx: &Context, new: &NewGroupSnapshot, error: &CloudError) -> bool {
    if matches!(error, CloudError::Unawaited(_)) {
        return true;
    }
    let is_other = matches!(
        error,
        CloudError::Busy {
            kind: ObjectKind::GroupSnapshot,
            ..
        }
    );
    if !is_other && !error.is_uncertain() && !matches!(error, CloudError::Timeout { .. }) {
        return false;
    }
    match group_snapshot_named(cx, &new.name).await {
        Ok(found) => found.is_some(),
        Err(lookup) => {
            tracing::warn!(error = %lookup, name = new.name, "the look for a group snapshot by name failed");
            true
        }
    }
}

async fn take_snapshot(
    cx: &Context,
    new: &NewGroupSnapshot,
    group: &Group,
    deadline: Instant,
) -> Result<GroupSnapshotRecord, CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    let absent: Vec<VolumeId> = new
        .volumes
        .iter()
        .filter(|volume| !group.volumes.contains(volume))
        .cloned()
        .collect();
    if !absent.is_empty() {
        match cinder.update_group(&group.id, &absent, &[], None).await {
            Err(CloudError::BadRequest(failure)) => return Err(cannot(new, failure.to_string())),
            answer => answer?,
        }
        let ready = wait_group_members(cx, &group.id, &absent, deadline).await?;
        let ready = ready.ok_or_else(|| failed(new, "deleted", "its group vanished"))?;
        if ready.status != "available" || !new.volumes.iter().all(|volume| ready.volumes.contains(volume)) {
            return Err(failed(
                new,
                &ready.status,
                "its volumes did not get into the group; see the log of cinder-volume",
            ));
        }
    }
    // Since the first lookup by name, another process may have continued with the group.
    if let Some(found) = group_snapshot_named(cx, &new.name).await? {
        return Err(CloudError::Busy {
            kind: ObjectKind::GroupSnapshot,
            id: found.id,
            status: "made by another process at the same time".to_owned(),
            wanted: "made once",
        });
    }
    let description = own::description_of_snapshot(new.volumes.len(), &new.cluster);
    let id = match cinder.create_group_snapshot(&group.id, &new.name, &description).await {
        Err(CloudError::BadRequest(failure)) => return Err(cannot(new, failure.to_string())),
        answer => answer?,
    };
    let record = wait_group_snapshot_created(cx, &id, deadline).await?;
    let record = record.ok_or_else(|| failed(new, "deleted", "it vanished while it was waited for"))?;
    if record.status == "available" {
        return Ok(record);
    }
    let removed = remove_group_snapshot(cx, &record, deadline).await;
    Err(CloudError::SnapshotFailed {
        kind: ObjectKind::GroupSnapshot,
        id: record.id.clone(),
        status: record.status,
        message: removed
            .as_ref()
            .err()
            .map(|error| format!("its removal failed: {error}"))
            .unwrap_or_default(),
        removed: removed.is_ok(),
    })
}

/// The group snapshot with its members. Waits until all members are listed, because an API node with a lagging database
/// may not list them yet.
async fn with_all_members(
    cx: &Context,
    record: &GroupSnapshotRecord,
    new: &NewGroupSnapshot,
) -> Result<GroupSnapshot, CloudError> {
    let end = Instant::now() + TIMING.database_lag;
    let wanted = own::expected_members(record).unwrap_or(new.volumes.len());
    let mut found = with_members(cx, record).await?;
    while found.snapshots.len() < wanted && Instant::now() < end {
        sleep(jitter(TIMING.unshown_recheck, &cx.options.sources)).await;
        found = with_members(cx, record).await?;
    }
    Ok(found)
}

/// Gets the volumes, which must exist, be usable, and be in one zone.
async fn volumes_to_group(cx: &Context, new: &NewGroupSnapshot) -> Result<Vec<GroupedVolume>, CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    let reads = stream::iter(new.volumes.iter().cloned())
        .map(|id| async move {
            let found = cinder.grouped_volume(&id).await?;
            found.ok_or_else(|| CloudError::no_volume(&id))
        })
        .buffered(PARALLEL);
    let reads: Vec<Result<GroupedVolume, CloudError>> = reads.collect().await;
    let volumes = reads.into_iter().collect::<Result<Vec<_>, _>>()?;
    for GroupedVolume { volume, .. } in &volumes {
        match &volume.status {
            VolumeStatus::Available | VolumeStatus::InUse => {}
            status if status.is_error() => {
                return Err(CloudError::Broken {
                    kind: ObjectKind::Volume,
                    id: volume.id.to_string(),
                    status: status.to_string(),
                    message: String::new(),
                });
            }
            status => {
                return Err(CloudError::Busy {
                    kind: ObjectKind::Volume,
                    id: volume.id.to_string(),
                    status: status.to_string(),
                    wanted: "available or in-use",
                });
            }
        }
    }
    let zones: BTreeSet<_> = volumes
        .iter()
        .map(|one| one.volume.availability_zone.as_deref())
        .collect();
    if zones.len() > 1 {
        let zones: Vec<&str> = zones.into_iter().map(Option::unwrap_or_default).collect();
        return Err(cannot(
            new,
            format!("its volumes are in several zones ({})", zones.join(", ")),
        ));
    }
    Ok(volumes)
}

/// Gets the type of the group, which must have consistent snapshots. Cinder shows this property to administrators only.
/// For other users, the class that names the type is trusted.
async fn group_type(cx: &Context, new: &NewGroupSnapshot) -> Result<GroupType, CloudError> {
    let types = BlockStorage::new(&cx.transport).group_types().await?;
    let Some(wanted) = &new.group_type else {
        let found = types.into_iter().find(|one| one.is_consistent() == Some(true));
        return found.ok_or_else(|| {
            cannot(
                new,
                "no group type is known to be consistent; name one with consistent_group_snapshot_enabled in the class",
            )
        });
    };
    let found = types.into_iter().find(|one| one.name == *wanted || one.id == *wanted);
    let found = found.ok_or_else(|| cannot(new, format!("the project knows no group type {wanted}")))?;
    if found.is_consistent() == Some(false) {
        return Err(cannot(
            new,
            format!(
                "snapshots of groups of type {} are not of one moment; have an administrator set its group spec \
                 consistent_group_snapshot_enabled to \"<is> True\", or name another type",
                found.name
            ),
        ));
    }
    Ok(found)
}

/// Returns the group for the snapshot: the group that consists of exactly these volumes, or one of this driver.
async fn group_for(cx: &Context, new: &NewGroupSnapshot, deadline: Instant) -> Result<Group, CloudError> {
    let volumes = volumes_to_group(cx, new).await?;
    let group_type = group_type(cx, new).await?;
    let own = own_group(cx, &new.name, &new.cluster, &group_type, deadline).await?;
    let elsewhere =
        |one: &&GroupedVolume| !one.group_id.is_empty() && own.as_ref().is_none_or(|own| own.id != one.group_id);
    for placed in volumes.iter().filter(elsewhere) {
        let cinder = BlockStorage::new(&cx.transport);
        let Some(group) = cinder.group(&placed.group_id).await? else {
            // It was the group of an abandoned attempt, which was just removed.
            continue;
        };
        let members: BTreeSet<&VolumeId> = group.volumes.iter().collect();
        if own.is_none() && !own::is_own(&group) && members == new.volumes.iter().collect() {
            if group.type_id == group_type.id {
                return Ok(group);
            }
            return Err(cannot(
                new,
                format!(
                    "its volumes are in group {}, which is not of type {}",
                    group.id, group_type.name
                ),
            ));
        }
        if own::is_own(&group) && leave_own_group(cx, &placed.volume.id).await? {
            // The group of a killed process. The next attempt finds the volume outside of it.
            return Err(CloudError::Busy {
                kind: ObjectKind::Volume,
                id: placed.volume.id.to_string(),
                status: format!("taken out of the group {} of an abandoned snapshot", group.id),
                wanted: "in no group",
            });
        }
        return Err(cannot(
            new,
            format!(
                "volume {} is in group {}, and a volume is in one group at most; snapshot exactly the volumes of that group, or \
                 take it out",
                placed.volume.id, placed.group_id
            ),
        ));
    }
    if let Some(own) = own {
        return Ok(own);
    }
    let types: BTreeSet<&str> = volumes
        .iter()
        .filter_map(|one| one.volume.volume_type.as_deref())
        .collect();
    let id = BlockStorage::new(&cx.transport)
        .create_group(&NewGroup {
            name: &new.name,
            description: &own::description_of_group(&new.cluster),
            group_type: &group_type.id,
            volume_types: types.iter().map(|&name| name.to_owned()).collect(),
            availability_zone: volumes.first().and_then(|one| one.volume.availability_zone.as_deref()),
        })
        .await?;
    let group = wait_group_created(cx, &id, deadline).await?;
    let group = group.ok_or_else(|| failed(new, "deleted", "its group vanished"))?;
    if group.status == "available" {
        return Ok(group);
    }
    let status = group.status.clone();
    let error = cannot(
        new,
        format!(
            "its group went to {status}: no backend in the volumes' zone takes a group of type {} with volumes of {}",
            group_type.name,
            Vec::from_iter(types).join(" and ")
        ),
    );
    let removal = dissolve_if_own(cx, &id, deadline).await;
    Err(final_if_removed(error, ObjectKind::Group, &id, removal))
}

fn cannot(new: &NewGroupSnapshot, reason: impl Into<String>) -> CloudError {
    CloudError::CannotGroup {
        name: new.name.clone(),
        reason: reason.into(),
    }
}

fn failed(new: &NewGroupSnapshot, status: &str, message: &str) -> CloudError {
    CloudError::SnapshotFailed {
        kind: ObjectKind::GroupSnapshot,
        id: new.name.clone(),
        status: status.to_owned(),
        message: message.to_owned(),
        // Something may remain.
        removed: false,
    }
}

#[cfg(test)]
mod tests;
