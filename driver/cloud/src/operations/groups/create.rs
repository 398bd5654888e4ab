// SPDX-License-Identifier: Apache-2.0
//! Takes a group snapshot, or adopts the one that an earlier attempt took under the same name.

use tokio::time::{Instant, sleep, timeout_at};

use super::delete::remove_group_snapshot;
use super::members::with_members;
use super::own::{self, age, dissolve_groups_named, dissolve_if_own, try_free_volumes};
use super::poll::{settled, wait_group_members, wait_group_snapshot_created};
use super::preparation::group_for;
use super::types::{GroupSnapshot, NewGroupSnapshot};
use crate::api::block_storage::{BlockStorage, Group, GroupSnapshotRecord};
use crate::context::Context;
use crate::error::{CloudError, ObjectKind};
use crate::http::retry::jitter;
use crate::ids::VolumeId;
use crate::operations::clusters::other_cluster;
use crate::operations::deletion::final_if_removed;
use crate::timing::TIMING;

/// The maximum number of attempts of a creation, each after the removal of an earlier attempt's remains.
const ROUNDS: u32 = 5;
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
    new.check_volumes()?;
    if !cinder.knows_groups().await? {
        return Err(new.impossible_error("this Cinder has no groups of volumes (they take microversion 3.25)"));
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
    Err(new.failed_error("error", "it failed again and again"))
}

async fn group_snapshot_named(cx: &Context, name: &str) -> Result<Option<GroupSnapshotRecord>, CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    let mut named = cinder.group_snapshots(|listed| listed.name == name).await?;
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
                // The snapshot would not contain a volume that the driver removes from the group now. The next attempt
                // finds the group by its name.
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
            Err(CloudError::BadRequest(failure)) => return Err(new.impossible_error(failure.to_string())),
            answer => answer?,
        }
        let ready = wait_group_members(cx, &group.id, &absent, deadline).await?;
        let ready = ready.ok_or_else(|| new.failed_error("deleted", "its group vanished"))?;
        if ready.status != "available" || !new.volumes.iter().all(|volume| ready.volumes.contains(volume)) {
            return Err(new.failed_error(
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
        Err(CloudError::BadRequest(failure)) => return Err(new.impossible_error(failure.to_string())),
        answer => answer?,
    };
    let record = wait_group_snapshot_created(cx, &id, deadline).await?;
    let record = record.ok_or_else(|| new.failed_error("deleted", "it vanished while it was waited for"))?;
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

#[cfg(test)]
mod tests;
