// SPDX-License-Identifier: Apache-2.0
//! The common course of the deletions of volumes, snapshots and backups. Each waits until Cinder no longer has the
//! resource. `volumes/delete.rs`, `snapshots/delete.rs` and `backups/delete.rs` contain the differences.
//!
//! Cinder refuses a deletion (400 or 409) without the complete reason. Therefore the driver reads the resource after a
//! refusal, and names the blocker in the error.

use std::fmt::Display;

use tokio::time::{Instant, sleep, timeout};

use crate::context::Context;
use crate::error::{CloudError, ObjectKind};
use crate::http::retry::jitter;
use crate::http::transport::Answer;
use crate::operations::ROUNDS;
use crate::operations::messages::{cinder_messages, join_texts};
use crate::poll::schedule::Kind;
use crate::poll::{PollVerdict, Pollable, Wait, Watch};
use crate::timing::TIMING;

/// A resource that can be deleted.
pub(super) trait Deletable: Pollable {
    const KIND: ObjectKind;

    fn watch(cx: &Context) -> &Watch<Self>;

    /// Requests the deletion. Returns how to continue after an accepted request or a 404.
    fn request(
        cx: &Context,
        id: &Self::Id,
        attempt: &mut Attempt,
    ) -> impl Future<Output = Result<NextStep, CloudError>> + Send;

    /// Decides how to continue with a resource that still exists after a refused deletion or a lost response.
    fn resolve_refusal(
        self,
        cx: &Context,
        attempt: &Attempt,
        refusal: CloudError,
    ) -> impl Future<Output = Result<NextStep, CloudError>> + Send;

    /// Records a completed deletion.
    fn record_deletion(_: &Context, _: &Self::Id) {}

    /// Returns the error about a resource that still exists, in another status than `deleting`.
    fn remaining_error(
        self,
        cx: &Context,
        started: Instant,
    ) -> impl Future<Output = Result<CloudError, CloudError>> + Send;
}

/// One of several requests for the same deletion.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) started: Instant,
    pub(super) deadline: Instant,
    pub(super) is_last: bool,
    /// The status before the request.
    pub(super) seen: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextStep {
    /// The resource does not exist (404).
    Finish,
    /// Cinder deletes the resource.
    Wait,
    /// Nothing blocks the deletion any more.
    Retry,
    /// The blocker may disappear soon.
    Pause,
}

/// Decides how to continue after a successful request: a 404 finishes the deletion, any other response is an accepted
/// request.
pub(super) fn next_step_after(answer: &Answer) -> NextStep {
    if answer.missing() {
        NextStep::Finish
    } else {
        NextStep::Wait
    }
}

/// Deletes a resource and waits until Cinder no longer has it. A missing one (404) counts as deleted.
///
/// A 404 does not prove that a new resource is missing. An API node with a lagging database does not find it, and does
/// not delete it. The driver repeats the request when all API nodes know the resource.
pub(super) async fn delete<R: Deletable>(cx: &Context, id: &R::Id) -> Result<(), CloudError> {
    // On the heap: a creation that cleans up would be as large as a deletion.
    Box::pin(delete_in_rounds::<R>(cx, id)).await
}

async fn delete_in_rounds<R: Deletable>(cx: &Context, id: &R::Id) -> Result<(), CloudError> {
    let deadline = Instant::now() + cx.options.operation_timeout;
    let (mut rounds, mut missed) = (0, false);
    loop {
        rounds += 1;
        let mut attempt = Attempt {
            started: Instant::now(),
            deadline,
            is_last: rounds >= ROUNDS,
            seen: None,
        };
        // Before the request, because a response at the end of the lag may show the state before it.
        let unknown = cx.unknown_for(&id.to_string());
        let next = match R::request(cx, id, &mut attempt).await {
            Err(refusal) if refusal.is_refused() || refusal.is_uncertain() => {
                let found = R::get(&cx.transport, id).await?;
                continue_after(found, cx, &attempt, refusal, &mut missed).await?
            }
            next => next?,
        };
        match next {
            NextStep::Finish => match unknown {
                None => return Ok(()),
                Some(remaining) => sleep(remaining).await,
            },
            NextStep::Wait => return wait_deleted::<R>(cx, id, attempt.started, deadline).await,
            NextStep::Retry => {}
            NextStep::Pause => sleep(jitter(TIMING.deletion_retry, &cx.options.sources)).await,
        }
    }
}

/// Decides how to continue after a refusal. A 404 of the following read does not prove a deletion, because an API node
/// with a lagging database does not show a new resource. The response to the next deletion proves it, or a second such
/// 404 after lost responses.
async fn continue_after<R: Deletable>(
    found: Option<R>,
    cx: &Context,
    attempt: &Attempt,
    refusal: CloudError,
    missed: &mut bool,
) -> Result<NextStep, CloudError> {
    match found {
        Some(found) => found.resolve_refusal(cx, attempt, refusal).await,
        None if std::mem::replace(missed, true) && refusal.is_uncertain() => Ok(NextStep::Finish),
        None if attempt.is_last => Err(refusal),
        None => Ok(NextStep::Pause),
    }
}

/// Waits for the end of a deletion that Cinder has accepted. A 404 ends it.
pub(super) async fn wait_deleted<R: Deletable>(
    cx: &Context,
    id: &R::Id,
    started: Instant,
    deadline: Instant,
) -> Result<(), CloudError> {
    let wait = Wait {
        kind: Kind::Delete,
        id,
        name: None,
        status: Some(R::under_way(Kind::Delete)),
        started,
        deadline,
        at_most_every: None,
        what: format!("{} {id}", R::KIND),
    };
    let remaining = R::watch(cx).until(wait, |now| match now {
        None => PollVerdict::Done(Ok(None)),
        Some(now) if now.status().to_string() == "deleting" => PollVerdict::Pending,
        Some(now) => PollVerdict::Unchanged(Ok(Some(now.clone()))),
    });
    match remaining.await? {
        None => {
            R::record_deletion(cx, id);
            Ok(())
        }
        Some(remaining) => Err(remaining.remaining_error(cx, started).await?),
    }
}

/// Removes a failed creation. Returns the reason if something may remain.
pub(super) async fn remove_remains<R: Deletable>(cx: &Context, id: &R::Id) -> Result<(), String> {
    cx.note_created(&id.to_string());
    match timeout(TIMING.clean_up_timeout, delete::<R>(cx, id)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(format!("its removal failed: {error}")),
        Err(_) => Err("its removal is not finished".to_owned()),
    }
}

/// Returns the error of a failed creation if nothing remains of it. Otherwise the caller has to retry: after a final
/// error the remaining resource would exist permanently.
pub(super) fn final_if_removed(
    error: CloudError,
    kind: ObjectKind,
    id: impl Display,
    removal: Result<(), impl Display>,
) -> CloudError {
    match removal {
        Err(reason) if !error.is_transient() => CloudError::Busy {
            kind,
            id: id.to_string(),
            status: format!("left over from a failed creation ({error}), and {reason}"),
            wanted: "deleted",
        },
        _ => error,
    }
}

/// The error about a snapshot or backup that a pending operation uses for too long.
pub(super) fn busy_error<R: Deletable>(resource: &R) -> CloudError {
    CloudError::Busy {
        kind: R::KIND,
        id: resource.id().to_string(),
        status: resource.status().to_string(),
        wanted: "available or error",
    }
}

/// The error about a snapshot or backup that Cinder could not delete. `reason` comes from its record and may be empty.
pub(super) async fn not_deleted_error<R: Deletable>(cx: &Context, resource: &R, reason: &str) -> CloudError {
    let (id, status) = (resource.id().to_string(), resource.status().to_string());
    let messages = join_texts(reason, &cinder_messages(cx, &id).await);
    CloudError::SnapshotFailed {
        kind: R::KIND,
        message: join_texts(&messages, remedy(&status)),
        id,
        status,
        removed: false,
    }
}

/// The remedy for a resource in this status.
pub(super) fn remedy(status: &str) -> &'static str {
    if status == "error_deleting" {
        "an administrator has to find out why and reset its status to available or error"
    } else {
        ""
    }
}
