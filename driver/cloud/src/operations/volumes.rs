// SPDX-License-Identifier: Apache-2.0
//! Creates, deletes, expands and modifies volumes, and evaluates their health.

pub(crate) mod classify;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod expand;
pub(crate) mod health;
pub(crate) mod modify;
pub(crate) mod source;

use tokio::time::Instant;

use crate::api::block_storage::Volume;
use crate::context::Context;
use crate::error::{CloudError, Failure, ObjectKind};
use crate::operations::messages::{cinder_messages, join_texts};
use crate::poll::schedule::Kind;
use crate::poll::{PollVerdict, Wait};
use crate::timing::TIMING;

/// Converts a refusal (400) into a conflict with the state of the volume, if another operation on the volume caused it.
/// `None` for other causes.
///
/// Cinder answers 400 for these refusals too, like for an invalid request, and shows a migration to administrators
/// only. For other users the fault text identifies it.
pub(crate) fn pending_work_conflict(volume: &Volume, refusal: &CloudError) -> Option<CloudError> {
    let CloudError::BadRequest(failure) = refusal else {
        return None;
    };
    let state = match &volume.status {
        status if status.is_under_work() => status.as_str(),
        _ if volume.is_migrating() || failure.fault.contains("while volume is migrating") => "migrating",
        _ => return None,
    };
    Some(in_state(state, failure))
}

/// The error about a volume with a status that allows no operation, with Cinder's message about a failure.
pub(crate) async fn blocked_error(cx: &Context, volume: &Volume) -> CloudError {
    if volume.status.is_error() {
        blocked_error_with(volume, &cinder_messages(cx, volume.id.as_str()).await)
    } else {
        blocked_error_with(volume, "")
    }
}

/// As [`blocked_error`], with this reason.
pub(crate) fn blocked_error_with(volume: &Volume, reason: &str) -> CloudError {
    let (kind, id, status) = (ObjectKind::Volume, volume.id.to_string(), &volume.status);
    if status.is_error() {
        CloudError::Broken {
            kind,
            id,
            status: status.to_string(),
            message: join_texts(reason, status.remedy()),
        }
    } else {
        CloudError::Busy {
            kind,
            id,
            status: format!("{status} ({})", join_texts(reason, status.remedy())),
            wanted: "available or in-use",
        }
    }
}

/// As [`pending_work_conflict`], for an available volume whose refusal (400) lists all possible causes. No visible state explains it,
/// so the cause is one that Cinder does not show.
pub(crate) fn hidden_work_conflict(volume: &Volume, refusal: &CloudError) -> Option<CloudError> {
    let CloudError::BadRequest(failure) = refusal else {
        return None;
    };
    let listed = ["must not be migrating", "active migration"];
    let is_listed = listed.iter().any(|text| failure.fault.contains(text));
    let is_free = volume.status.is_deletable() && volume.attachments.is_empty();
    (is_listed && is_free).then(|| in_state("migrating, or in a group that is not this driver's", failure))
}

fn in_state(state: &str, failure: &Failure) -> CloudError {
    CloudError::Conflict(Failure {
        fault: format!("the volume is {state}: {}", failure.fault),
        ..failure.clone()
    })
}

/// Waits until the volume is no longer in transition; for `settle_timeout` at most.
pub(crate) async fn settle(
    cx: &Context,
    volume: &Volume,
    deadline: Instant,
    what: String,
) -> Result<Option<Volume>, CloudError> {
    let started = Instant::now();
    let wait = Wait {
        kind: Kind::Settle,
        id: &volume.id,
        name: None,
        status: Some(volume.status.clone()),
        started,
        deadline: deadline.min(started + TIMING.settle_timeout),
        at_most_every: None,
        what,
    };
    cx.watch
        .until(wait, |now| match now {
            Some(now) if now.status.is_transition() => PollVerdict::Pending,
            other => PollVerdict::Done(Ok(other.cloned())),
        })
        .await
}
