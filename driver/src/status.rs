// SPDX-License-Identifier: Apache-2.0
//! The one place where an error becomes a gRPC status.
//!
//! The codes decide what the sidecars do next. For external-provisioner `CANCELLED`, `DEADLINE_EXCEEDED`, `UNAVAILABLE`
//! and `ABORTED` mean that a volume may still come into being; every other code says that none was made, and the volume
//! leaks if one was. So an uncertain CreateVolume never gets a final code. For external-attacher the same four and
//! `RESOURCE_EXHAUSTED` are not final. Messages may reach end users: they name the thing, the reason and what to do, and
//! never a secret.

mod node;

use std::fmt;
use std::time::Duration;

use cinder_cloud::{CloudError, ConfigError, Failure, LastFailure, MigrationPolicy, ObjectKind};
use tonic::{Code, Status};

use crate::pvc_annotations::{HintError, PvcAnnotationError};

pub use node::{instance, node, node_while_mounted, not_staged};

/// What was being done to the cloud when an error came; the same error means different things in different acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Making a volume, the look-ups before it included.
    Create,
    /// Making a snapshot, a backup or a group snapshot, the look-ups before it included.
    Snapshot,
    /// Making a volume larger.
    Expand,
    /// Giving a volume another type or other metadata.
    Modify,
    /// Removing a volume, a snapshot or a backup.
    Delete,
    /// Attaching a volume to a server.
    Attach,
    /// Detaching a volume.
    Detach,
    Look,
}

/// The most bytes of a message. It travels in a header of the answer, and the sidecars write it into events and objects.
const LONGEST_MESSAGE: usize = 4_000;
/// The part of a longer message that its end keeps: errors end with the remedy.
const MESSAGE_END: usize = 1_000;

/// The same status with a message of limited length.
pub fn bounded(status: Status) -> Status {
    let message = status.message();
    if message.len() <= LONGEST_MESSAGE {
        return status;
    }
    let begin = &message[..message.floor_char_boundary(LONGEST_MESSAGE - MESSAGE_END)];
    let end = &message[message.ceil_char_boundary(message.len() - MESSAGE_END)..];
    Status::new(status.code(), format!("{begin} […] {end}"))
}

/// The status for a failed act on the cloud.
pub fn cloud(act: Act, error: &CloudError) -> Status {
    Status::new(code(act, error), error.to_string())
}

/// What became of a look before something is made. That it failed says nothing about what an earlier try has made, so it is no final
/// answer: external-snapshotter forgets a snapshot that is being made after every code but five. What the request itself is lacking is
/// answered as it is.
pub fn before_making(status: Status) -> Status {
    match status.code() {
        Code::NotFound | Code::InvalidArgument | Code::Aborted | Code::DeadlineExceeded => status,
        _ => Status::new(Code::Unavailable, status.message()),
    }
}

fn code(act: Act, error: &CloudError) -> Code {
    match error {
        // The driver's own credentials and configuration, not the request: it can be repeated once they are fixed.
        CloudError::Auth(_)
        | CloudError::OtherProject { .. }
        | CloudError::NoEndpoint { .. }
        | CloudError::RegionAmbiguous { .. }
        | CloudError::InsecureEndpoint { .. }
        | CloudError::Setup(_)
        | CloudError::Tls { .. }
        | CloudError::Throttled { .. }
        | CloudError::Unawaited(_)
        | CloudError::Unreachable { .. } => Code::Unavailable,
        // Brought by the request's secrets: the specification has a code for it. It is a final one to the provisioner, and nobody could
        // look whether an earlier try has made something.
        CloudError::Unauthenticated(_) if makes(act) => Code::Unavailable,
        CloudError::Unauthenticated(_) => Code::Unauthenticated,
        CloudError::Forbidden(_) => match act {
            // An earlier try may have made something, and nobody has looked since.
            Act::Create | Act::Snapshot | Act::Attach => Code::Unavailable,
            _ => Code::PermissionDenied,
        },
        // Of a look, or of removing a failed volume: an earlier try may have made one.
        CloudError::Quota(failure) if makes(act) && !refused_creation(failure) => Code::Unavailable,
        CloudError::Quota(_) | CloudError::TooManyAttachments { .. } => Code::ResourceExhausted,
        CloudError::NotFound { kind, .. } => match (act, kind) {
            // The volume vanished while it was waited for: the next try makes it anew.
            (Act::Create, ObjectKind::Volume) | (Act::Snapshot, ObjectKind::Snapshot | ObjectKind::Backup) => {
                Code::Aborted
            }
            // Its source, which was looked for before anything was made.
            (Act::Snapshot, ObjectKind::Volume) => Code::NotFound,
            (Act::Create | Act::Snapshot, _) => Code::Unavailable,
            _ => Code::NotFound,
        },
        CloudError::NoSource { .. } => Code::NotFound,
        CloudError::SourceTooLarge { .. } => Code::OutOfRange,
        // Only this code makes the resizer call a class infeasible: without leave to migrate it is.
        CloudError::RetypeFailed { migration, .. } if *migration == MigrationPolicy::Never => Code::InvalidArgument,
        // Nothing was given up: it is under way, or it is as it was before.
        CloudError::Conflict(_) | CloudError::Busy { .. } | CloudError::Obstructed { .. } => Code::Aborted,
        CloudError::BadRequest(failure) => match act {
            // Final only when the creation itself was refused: then nothing was made.
            Act::Create | Act::Snapshot if refused_creation(failure) => Code::InvalidArgument,
            Act::Create | Act::Snapshot => Code::Aborted,
            // Nothing has changed then: the type goes first.
            Act::Modify if failure.operation == "volume_retype" => Code::InvalidArgument,
            _ => Code::Internal,
        },
        CloudError::Server(failure) => match (act, failure.status) {
            // A gateway that lost its service, or a service in maintenance.
            (_, Some(502..=504)) | (Act::Create | Act::Snapshot | Act::Attach, _) => Code::Unavailable,
            _ => Code::Internal,
        },
        CloudError::Decode(_) | CloudError::ResponseTooLarge(_) | CloudError::ListIncomplete(_) => match act {
            Act::Create | Act::Snapshot | Act::Attach => Code::Unavailable,
            _ => Code::Internal,
        },
        CloudError::VolumeInUse { .. }
        | CloudError::VolumeHasDependents { .. }
        | CloudError::AttachedElsewhere { .. } => match act {
            // A failed volume of this name could not be removed: it is still there.
            Act::Create => Code::Aborted,
            _ => Code::FailedPrecondition,
        },
        // Before anything was made, or of the failed one of this name, which is still there.
        CloudError::StillNeeded { .. } if makes(act) => Code::Aborted,
        // For external-resizer and external-attacher FAILED_PRECONDITION means that a node uses the volume.
        CloudError::Broken { .. } if !makes(act) => Code::Aborted,
        CloudError::Broken { .. }
        | CloudError::CannotGroup { .. }
        | CloudError::OnlineExpansion { .. }
        | CloudError::StillNeeded { .. }
        | CloudError::SnapshotRefused { .. }
        | CloudError::CannotRestore { .. }
        | CloudError::NoBackups(_) => Code::FailedPrecondition,
        CloudError::NotMultiattach { .. }
        | CloudError::SourceMode { .. }
        | CloudError::MemberOfGroup { .. }
        | CloudError::OtherMembers { .. }
        | CloudError::CannotModify { .. } => Code::InvalidArgument,
        CloudError::ExpandFailed { message, .. } if no_room(message) => Code::ResourceExhausted,
        CloudError::SnapshotFailed { removed: false, .. } if act == Act::Snapshot => Code::Aborted,
        CloudError::SnapshotFailed { .. }
        | CloudError::ExpandFailed { .. }
        | CloudError::RetypeFailed { .. }
        | CloudError::AttachFailed { .. } => Code::Internal,
        CloudError::VolumeFailed { message, removed, .. } => match (act, removed) {
            (Act::Create, true) if no_room(message) => Code::ResourceExhausted,
            (Act::Create, false) => Code::Aborted,
            _ => Code::Internal,
        },
        CloudError::AlreadyExists { .. }
        | CloudError::SnapshotExists { .. }
        | CloudError::AttachedDifferently { .. } => Code::AlreadyExists,
        CloudError::Timeout { .. } => Code::DeadlineExceeded,
    }
}

/// Whether something comes into being that would leak after a final code.
fn makes(act: Act) -> bool {
    matches!(act, Act::Create | Act::Snapshot)
}

/// Whether it was the POST of the new thing that was refused, and not a look-up before it.
fn refused_creation(failure: &Failure) -> bool {
    matches!(
        failure.operation,
        "volume_create" | "snapshot_create" | "backup_create" | "group_create" | "group_snapshot_create"
    )
}

/// Whether Cinder's scheduler found no backend: another zone may have one. The texts are those of cinder.message.defined_messages
/// and of the scheduler's exceptions.
fn no_room(message: &str) -> bool {
    let message = message.to_lowercase();
    [
        "no valid host",
        "no valid backend",
        "no weighed backend",
        "weighted backend",
        "no backend",
    ]
    .iter()
    .any(|text| message.contains(text))
        || (message.contains("could not find any available") && message.contains("backend"))
}

/// The name of a code as the gRPC protocol writes it, for the log.
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// A field of the request is missing or wrong: `INVALID_ARGUMENT` that names the field and says what is asked for.
pub fn invalid(field: &str, problem: impl fmt::Display) -> Status {
    Status::invalid_argument(format!("{field}: {problem}"))
}

/// Secrets of a call that are no credentials; the error names where they come from itself.
pub fn invalid_secrets(error: &ConfigError) -> Status {
    Status::invalid_argument(error.to_string())
}

/// A capacity that cannot be had.
pub fn out_of_range(problem: impl fmt::Display) -> Status {
    Status::out_of_range(problem.to_string())
}

/// An id that OpenStack cannot know, or that it does not know.
pub fn not_found(kind: &str, id: &str) -> Status {
    let request = LastFailure::request_that_missed(id).map(|id| format!(" (request {id})"));
    Status::not_found(format!("{kind} {id} does not exist{}", request.unwrap_or_default()))
}

/// The volume cannot be where its pods can reach it.
pub fn zone_impossible(problem: impl fmt::Display) -> Status {
    Status::resource_exhausted(problem.to_string())
}

/// A new volume that cannot be used could not be removed again: the next try finds it by its name, so nothing is final yet.
pub fn clean_up(error: &CloudError) -> Status {
    Status::aborted(format!(
        "the volume was created in an unreachable zone and its clean-up failed: {error}"
    ))
}

/// The volume exists in a way that the request does not allow.
pub fn already_exists(problem: impl fmt::Display) -> Status {
    Status::already_exists(problem.to_string())
}

/// Volumes of several clouds cannot be cut at one moment.
pub fn not_together(one: &str, other: &str) -> Status {
    Status::failed_precondition(format!(
        "volumes {one} and {other} are in different clouds, which cannot cut them at one moment; snapshot those of each cloud by themselves"
    ))
}

/// A page token that is none of ours, or whose volume is gone.
pub fn bad_token(token: &str) -> Status {
    Status::aborted(format!(
        "starting_token {token:?} is not valid any more; start the list from its beginning"
    ))
}

/// The claim of a new volume could not be read: nothing was made, and it can be tried again.
pub fn claim_unread(error: &PvcAnnotationError) -> Status {
    Status::unavailable(error.to_string())
}

/// The hints of a claim cannot be followed. Final only where there is no volume of the name yet, which would leak.
pub fn hint_impossible(error: &HintError, there: bool) -> Status {
    if there {
        Status::aborted(format!("{error}; the volume was made meanwhile, and waits for it"))
    } else {
        Status::invalid_argument(error.to_string())
    }
}

/// A volume is at another node than the one that asks, where the mode alone does not tell why it cannot be at both.
pub fn elsewhere(error: &CloudError, reason: &str) -> Status {
    Status::failed_precondition(format!("{error}; {reason}"))
}

/// An id was not found, and a cloud that may have it gave no answer.
pub fn cloud_silent(what: &str, id: &str, cloud: &str, error: &CloudError) -> Status {
    let cloud = if cloud.is_empty() { "without a name" } else { cloud };
    Status::unavailable(format!(
        "{what} {id} was not found, and cloud {cloud}, which may have it, gave no answer: {error}"
    ))
}

/// The credentials of a cloud lead to another project than the cloud's own, where "no such volume" says nothing.
pub fn other_project(cloud: &str, own: &str, found: &str) -> Status {
    let cloud = if cloud.is_empty() { "without a name" } else { cloud };
    Status::unavailable(format!(
        "the credentials of cloud {cloud} lead to project {found}, and --project-id says that its volumes are in project {own}: what is \
         missing in the one may exist in the other, so nothing is taken for deleted or detached; give the driver credentials of project \
         {own}, or change --project-id if the volumes have moved"
    ))
}

/// A call whose capability was turned off.
pub fn turned_off(capability: &str) -> Status {
    Status::unimplemented(format!(
        "{capability} is turned off by --disable-capability={capability}; remove the flag to have it served"
    ))
}

/// Looking at the cloud took longer than the client waits.
pub fn look_timed_out(what: &str, elapsed: Duration, last_failure: &LastFailure) -> Status {
    Status::deadline_exceeded(format!(
        "{what} is not done after {:.1} s, which is all the time that the call had{last_failure}; try again",
        elapsed.as_secs_f64()
    ))
}

/// A snapshot or backup exists and has failed.
pub fn point_in_time_failed(id: &str, state: &str, words: &str) -> Status {
    let separator = if words.is_empty() { "" } else { ": " };
    Status::internal(format!(
        "snapshot {id} is in status {state}{separator}{words}; delete it and take another one"
    ))
}

/// A backup that is not done in the time that its class gives it. It goes on.
pub fn backup_late(id: &str, limit: Duration) -> Status {
    Status::deadline_exceeded(format!(
        "backup {id} is still being made after the {} s that backup-max-duration-seconds-per-gb gives it; it goes on, and the same \
         request finds it when it is done",
        limit.as_secs()
    ))
}

/// Something that another cluster made.
pub fn foreign(kind: &str, id: &str, cluster: &str) -> Status {
    Status::failed_precondition(format!(
        "{kind} {id} belongs to cluster {cluster} (metadata cinder.csi.openstack.org/cluster) and was not deleted; delete it \
         from there, or remove --protect-other-clusters"
    ))
}

/// The client's time is up while the operation goes on.
pub fn still_running(rpc: &str, target: &impl fmt::Display, elapsed: Duration, state: &str) -> Status {
    Status::deadline_exceeded(format!(
        "{rpc} for {target} is not done after {:.1} s (last state: {state}); it goes on, and the same request joins it",
        elapsed.as_secs_f64()
    ))
}

/// A different request for the same volume is running.
pub fn other_operation(rpc: &str, target: &impl fmt::Display, other: &str, elapsed: Duration, state: &str) -> Status {
    Status::aborted(format!(
        "{rpc}: a different {other} for {target} has been running for {:.1} s (last state: {state}); try again when it is done",
        elapsed.as_secs_f64()
    ))
}

/// More operations than the process may run at once.
pub fn too_many_operations(rpc: &str, running: usize) -> Status {
    Status::unavailable(format!(
        "{rpc}: {running} operations are running, which is the limit; try again later"
    ))
}

/// The process is about to end.
pub fn shutting_down(rpc: &str) -> Status {
    Status::unavailable(format!(
        "{rpc}: the driver is shutting down; its successor takes the same request"
    ))
}

/// The call panicked outside of any operation: it changed nothing.
pub fn panicked(rpc: &str) -> Status {
    Status::internal(format!(
        "{rpc}: internal error: the handler panicked (see the driver's log)"
    ))
}

/// The operation panicked. What it did so far is found again by the retry; a final code would say that it did nothing,
/// and a volume that was made would leak, one that was mounted would be detached.
pub fn operation_panicked(rpc: &str) -> Status {
    Status::unavailable(format!(
        "{rpc}: internal error: the operation panicked (see the driver's log); the same request goes on from what was done"
    ))
}

/// The operation was torn down before it had a result.
pub fn abandoned() -> Status {
    Status::unavailable("the operation was abandoned because the driver is ending; the same request goes on with it")
}

#[cfg(test)]
mod tests;
