// SPDX-License-Identifier: Apache-2.0
//! Waits for groups and their snapshots. They are rare, so each is polled on its own.

use tokio::time::{Instant, sleep};

use crate::api::block_storage::{BlockStorage, Group, GroupSnapshotRecord};
use crate::context::Context;
use crate::error::CloudError;
use crate::http::retry::jitter;
use crate::ids::VolumeId;
use crate::timing::TIMING;

/// Waits until a new group is complete; `None` if it was deleted.
pub(super) async fn wait_group_created(cx: &Context, id: &str, deadline: Instant) -> Result<Option<Group>, CloudError> {
    poll_until_shown(
        cx,
        deadline,
        || wait_group_settled(cx, id, deadline),
        |found| found.is_some(),
    )
    .await
}

/// Waits until the group is settled and contains these volumes. Returns it without them if they do not join.
pub(super) async fn wait_group_members(
    cx: &Context,
    id: &str,
    volumes: &[VolumeId],
    deadline: Instant,
) -> Result<Option<Group>, CloudError> {
    let has_all = |group: &Group| volumes.iter().all(|one| group.volumes.contains(one));
    let are_in = |group: Option<&Group>| group.is_some_and(|group| group.status != "available" || has_all(group));
    poll_until_shown(cx, deadline, || wait_group_settled(cx, id, deadline), are_in).await
}

/// Waits until a new group snapshot is complete; `None` if it was deleted.
pub(super) async fn wait_group_snapshot_created(
    cx: &Context,
    id: &str,
    deadline: Instant,
) -> Result<Option<GroupSnapshotRecord>, CloudError> {
    poll_until_shown(
        cx,
        deadline,
        || wait_group_snapshot_settled(cx, id, deadline),
        |found| found.is_some(),
    )
    .await
}

/// Polls until Cinder shows the result of a request. An API node with a lagging database shows the state before the
/// request. A result that is not shown within `database_lag` does not exist.
pub(super) async fn poll_until_shown<T, L: Future<Output = Result<Option<T>, CloudError>>>(
    cx: &Context,
    deadline: Instant,
    read: impl Fn() -> L,
    is_shown: impl Fn(Option<&T>) -> bool,
) -> Result<Option<T>, CloudError> {
    let last = (Instant::now() + TIMING.database_lag).min(deadline);
    loop {
        let found = read().await?;
        if is_shown(found.as_ref()) || Instant::now() >= last {
            return Ok(found);
        }
        sleep(jitter(TIMING.unshown_recheck, &cx.options.sources)).await;
    }
}

/// Waits until no operation on the group is pending; `None` if it is deleted (404).
pub(super) async fn wait_group_settled(cx: &Context, id: &str, deadline: Instant) -> Result<Option<Group>, CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    let read = || cinder.group(id);
    until_settled(cx, "group", id, deadline, read, |group| &group.status).await
}

/// Waits until the group is deleted (404).
pub(super) async fn wait_group_deleted(cx: &Context, id: &str, deadline: Instant) -> Result<(), CloudError> {
    match poll_until_shown(
        cx,
        deadline,
        || wait_group_settled(cx, id, deadline),
        |remaining| remaining.is_none(),
    )
    .await?
    {
        None => Ok(()),
        Some(group) => Err(CloudError::Busy {
            kind: crate::error::ObjectKind::Group,
            id: group.id,
            status: group.status,
            wanted: "deleted",
        }),
    }
}

/// Waits until no operation on the group snapshot is pending; `None` if it is deleted (404).
pub(super) async fn wait_group_snapshot_settled(
    cx: &Context,
    id: &str,
    deadline: Instant,
) -> Result<Option<GroupSnapshotRecord>, CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    let read = || cinder.group_snapshot(id);
    until_settled(cx, "group_snapshot", id, deadline, read, |record| &record.status).await
}

/// As [`wait_group_snapshot_settled`], without a request for a record that is settled already.
pub(super) async fn settled(
    cx: &Context,
    record: GroupSnapshotRecord,
    deadline: Instant,
) -> Result<Option<GroupSnapshotRecord>, CloudError> {
    if is_settled(&record.status) {
        return Ok(Some(record));
    }
    wait_group_snapshot_settled(cx, &record.id, deadline).await
}

async fn until_settled<T, L: Future<Output = Result<Option<T>, CloudError>>>(
    cx: &Context,
    what: &'static str,
    id: &str,
    deadline: Instant,
    read: impl Fn() -> L,
    status: impl Fn(&T) -> &String,
) -> Result<Option<T>, CloudError> {
    let started = Instant::now();
    let (mut pause, mut polls) = (TIMING.group_poll_first, 0);
    let (mut last_status, mut last_error) = ("not seen".to_owned(), String::new());
    loop {
        polls += 1;
        match read().await {
            Ok(found) if found.as_ref().is_none_or(|found| is_settled(status(found))) => {
                cx.transport.observer().wait_finished(what, started.elapsed(), polls);
                return Ok(found);
            }
            Ok(found) => {
                last_status = found.as_ref().map(|found| status(found).clone()).unwrap_or_default();
                last_error.clear();
            }
            Err(error) if error.is_transient() => last_error = error.to_string(),
            Err(error) => return Err(error),
        }
        if Instant::now() + pause >= deadline {
            return Err(CloudError::Timeout {
                what: format!("{what} {id}"),
                last_status,
                last_error,
                elapsed: started.elapsed(),
            });
        }
        sleep(jitter(pause, &cx.options.sources)).await;
        pause = (pause * 3 / 2).min(TIMING.group_poll_max);
    }
}

/// Whether no operation is pending. Cinder shows `deleted` for a moment, before it removes the record.
pub(super) fn is_settled(status: &str) -> bool {
    !matches!(status, "creating" | "updating" | "deleting" | "deleted")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::is_settled;

    #[rstest]
    #[case("creating", false)]
    #[case("updating", false)]
    #[case("deleting", false)]
    #[case("deleted", false)]
    #[case("available", true)]
    #[case("error", true)]
    #[case("error_deleting", true)]
    fn pending_statuses_are_not_settled(#[case] status: &str, #[case] settled: bool) {
        assert_eq!(is_settled(status), settled);
    }
}
