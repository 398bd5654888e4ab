// SPDX-License-Identifier: Apache-2.0
//! Maps every error to a gRPC status.
//!
//! The codes decide how the sidecars continue. To external-provisioner, `CANCELLED`, `DEADLINE_EXCEEDED`, `UNAVAILABLE`
//! and `ABORTED` mean that a volume may still be created. Every other code is final: the volume leaks if one was
//! created. An uncertain CreateVolume therefore never returns a final code. To external-attacher, the same four codes
//! and `RESOURCE_EXHAUSTED` are not final.
//!
//! Messages may reach end users. They contain the object, the reason and a remedy, and never a secret.

mod node;

use std::fmt;
use std::time::Duration;

use cinder_cloud::{CloudError, CloudErrorKind, ConfigError, LastFailure, MigrationPolicy, ObjectKind};
use tonic::{Code, Status};

use crate::pvc_annotations::{HintError, PvcAnnotationError};

pub use node::{from_instance, from_node, from_node_while_mounted, not_staged};

/// The kind of request that failed. The code for an error depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloudAction {
    /// Creates a volume, including the queries before the creation.
    Create,
    /// Takes a snapshot, a backup or a group snapshot, including the queries before.
    Snapshot,
    /// Expands a volume.
    Expand,
    /// Changes the type or the metadata of a volume.
    Modify,
    /// Deletes a volume, a snapshot or a backup.
    Delete,
    /// Attaches a volume to a server.
    Attach,
    /// Detaches a volume.
    Detach,
    Look,
}

/// The maximum length of a message in bytes. It is sent in a header, and the sidecars write it into events and objects.
const LONGEST_MESSAGE: usize = 4_000;
/// The number of bytes that are retained from the end of a longer message, because errors end with the remedy.
const MESSAGE_END: usize = 1_000;

/// Truncates the message of a status to the maximum length.
pub fn bounded(status: Status) -> Status {
    let message = status.message();
    if message.len() <= LONGEST_MESSAGE {
        return status;
    }
    let begin = &message[..message.floor_char_boundary(LONGEST_MESSAGE - MESSAGE_END)];
    let end = &message[message.ceil_char_boundary(message.len() - MESSAGE_END)..];
    Status::new(status.code(), format!("{begin} […] {end}"))
}

/// Returns the status for a failed request to OpenStack.
pub fn from_cloud(act: CloudAction, error: &CloudError) -> Status {
    Status::new(code(act, error), error.to_string())
}

/// Converts the status of a failed query before a creation into one that is not final.
///
/// A failed query does not prove that an earlier attempt created nothing. external-snapshotter abandons a pending
/// snapshot after any code except five. Codes for an invalid request are returned unchanged.
pub fn before_creation(status: Status) -> Status {
    match status.code() {
        Code::NotFound | Code::InvalidArgument | Code::Aborted | Code::DeadlineExceeded => status,
        _ => Status::new(Code::Unavailable, status.message()),
    }
}

fn code(act: CloudAction, error: &CloudError) -> Code {
    match error.kind() {
        // The driver's credentials or configuration are wrong, not the request. The call can be repeated after they are
        // fixed.
        CloudErrorKind::Credentials
        | CloudErrorKind::Misconfigured
        | CloudErrorKind::NoEndpoint
        | CloudErrorKind::RegionAmbiguous
        | CloudErrorKind::Throttled
        | CloudErrorKind::Unawaited
        | CloudErrorKind::Unreachable => Code::Unavailable,
        // The credentials came with the request, and the specification has a code for that. The provisioner treats this
        // code as final, but the driver cannot check whether an earlier attempt created the volume.
        CloudErrorKind::RequestCredentials if creates_object(act) => Code::Unavailable,
        CloudErrorKind::RequestCredentials => Code::Unauthenticated,
        // An earlier attempt may have created the object, and the driver could not check.
        CloudErrorKind::NotPermitted | CloudErrorKind::InvalidResponse
            if creates_object(act) || act == CloudAction::Attach =>
        {
            Code::Unavailable
        }
        CloudErrorKind::NotPermitted => Code::PermissionDenied,
        // The quota concerns a query or the deletion of a failed volume. An earlier attempt may have created the
        // volume.
        CloudErrorKind::Quota if creates_object(act) && !is_refused_creation(error) => Code::Unavailable,
        CloudErrorKind::Quota | CloudErrorKind::ServerFull => Code::ResourceExhausted,
        CloudErrorKind::NotFound => not_found_code(act, error),
        CloudErrorKind::OutOfRange => Code::OutOfRange,
        // The operation is still running, or nothing has changed.
        CloudErrorKind::Busy => Code::Aborted,
        // The code is final only if Cinder refused the creation itself, because nothing was created then.
        CloudErrorKind::BadRequest if creates_object(act) && is_refused_creation(error) => Code::InvalidArgument,
        CloudErrorKind::BadRequest if creates_object(act) => Code::Aborted,
        // Nothing has changed, because the type is changed first.
        CloudErrorKind::BadRequest if act == CloudAction::Modify && operation(error) == Some("volume_retype") => {
            Code::InvalidArgument
        }
        CloudErrorKind::BadRequest | CloudErrorKind::InvalidResponse => Code::Internal,
        CloudErrorKind::ServiceFailed => match (act, error.status()) {
            // A gateway lost its service, or a service is in maintenance.
            (_, Some(502..=504)) | (CloudAction::Create | CloudAction::Snapshot | CloudAction::Attach, _) => {
                Code::Unavailable
            }
            _ => Code::Internal,
        },
        CloudErrorKind::InUse => match (act, error) {
            // The failed volume of this name could not be deleted and still exists, or nothing was created yet.
            (CloudAction::Create, _) | (CloudAction::Snapshot, CloudError::StillNeeded { .. }) => Code::Aborted,
            _ => Code::FailedPrecondition,
        },
        // To external-resizer and external-attacher, FAILED_PRECONDITION means that a node uses the volume.
        CloudErrorKind::Broken if !creates_object(act) => Code::Aborted,
        CloudErrorKind::Broken | CloudErrorKind::Unsupported => Code::FailedPrecondition,
        CloudErrorKind::InvalidArgument => Code::InvalidArgument,
        CloudErrorKind::Failed => failed_code(act, error),
        CloudErrorKind::Exists => Code::AlreadyExists,
        CloudErrorKind::Timeout => Code::DeadlineExceeded,
    }
}

/// Returns the code for a missing object, or for a missing source of a new volume.
fn not_found_code(act: CloudAction, error: &CloudError) -> Code {
    let CloudError::NotFound { kind, .. } = error else {
        return Code::NotFound;
    };
    match (act, kind) {
        // The volume was deleted while the driver waited for it. The next attempt creates it again.
        (CloudAction::Create, ObjectKind::Volume)
        | (CloudAction::Snapshot, ObjectKind::Snapshot | ObjectKind::Backup) => Code::Aborted,
        // The source was checked before anything was created.
        (CloudAction::Snapshot, ObjectKind::Volume) => Code::NotFound,
        (CloudAction::Create | CloudAction::Snapshot, _) => Code::Unavailable,
        _ => Code::NotFound,
    }
}

/// Returns the code for an operation that OpenStack accepted and did not complete.
fn failed_code(act: CloudAction, error: &CloudError) -> Code {
    match (act, error) {
        // The next attempt finds the failed object by its name.
        (CloudAction::Create, CloudError::VolumeFailed { removed: false, .. })
        | (CloudAction::Snapshot, CloudError::SnapshotFailed { removed: false, .. }) => Code::Aborted,
        (CloudAction::Create, CloudError::VolumeFailed { .. }) | (_, CloudError::ExpandFailed { .. })
            if error.is_out_of_space() =>
        {
            Code::ResourceExhausted
        }
        // external-resizer treats a class as infeasible only after this code. Without permission to migrate, it is
        // infeasible.
        (_, CloudError::RetypeFailed { migration, .. }) if *migration == MigrationPolicy::Never => {
            Code::InvalidArgument
        }
        _ => Code::Internal,
    }
}

/// Whether the request creates an object that would leak after a final code.
fn creates_object(act: CloudAction) -> bool {
    matches!(act, CloudAction::Create | CloudAction::Snapshot)
}

/// Whether OpenStack refused the POST that creates the object, and not a query before it.
fn is_refused_creation(error: &CloudError) -> bool {
    matches!(
        operation(error),
        Some("volume_create" | "snapshot_create" | "backup_create" | "group_create" | "group_snapshot_create")
    )
}

/// The failed operation of OpenStack.
fn operation(error: &CloudError) -> Option<&'static str> {
    error.failure().map(|failure| failure.operation)
}

/// Returns the name of a code in the spelling of the gRPC protocol, for the log.
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

/// `INVALID_ARGUMENT`: a field of the request is missing or wrong. `problem` describes the expected value.
pub fn invalid(field: &str, problem: impl fmt::Display) -> Status {
    Status::invalid_argument(format!("{field}: {problem}"))
}

/// `INVALID_ARGUMENT`: the secrets of a call are not valid credentials. The error names the secret key itself.
pub fn invalid_secrets(error: &ConfigError) -> Status {
    Status::invalid_argument(error.to_string())
}

/// `OUT_OF_RANGE`: the requested capacity is impossible.
pub fn out_of_range(problem: impl fmt::Display) -> Status {
    Status::out_of_range(problem.to_string())
}

/// `NOT_FOUND`: OpenStack does not have an object with this id.
pub fn not_found(kind: &str, id: &str) -> Status {
    let request = LastFailure::request_that_missed(id).map(|id| format!(" (request {id})"));
    Status::not_found(format!("{kind} {id} does not exist{}", request.unwrap_or_default()))
}

/// `RESOURCE_EXHAUSTED`: the volume cannot be created where its pods can reach it.
pub fn zone_impossible(problem: impl fmt::Display) -> Status {
    Status::resource_exhausted(problem.to_string())
}

/// `ABORTED`: a new volume is unusable, and its deletion failed.
///
/// The code is not final, because the next attempt finds the volume by its name.
pub fn cleanup_failed(error: &CloudError) -> Status {
    Status::aborted(format!(
        "the volume was created in an unreachable zone and its clean-up failed: {error}"
    ))
}

/// `ALREADY_EXISTS`: the existing volume is incompatible with the request.
pub fn already_exists(problem: impl fmt::Display) -> Status {
    Status::already_exists(problem.to_string())
}

/// `FAILED_PRECONDITION`: volumes of several clouds cannot be snapshotted at the same moment.
pub fn in_several_clouds(one: &str, other: &str) -> Status {
    Status::failed_precondition(format!(
        "volumes {one} and {other} are in different clouds, which cannot cut them at one moment; snapshot those of each cloud by themselves"
    ))
}

/// `ABORTED`: the page token is invalid, or its volume was deleted.
pub fn bad_token(token: &str) -> Status {
    Status::aborted(format!(
        "starting_token {token:?} is not valid any more; start the list from its beginning"
    ))
}

/// `UNAVAILABLE`: the claim of a new volume could not be read. Nothing was created, and the call can be repeated.
pub fn claim_unread(error: &PvcAnnotationError) -> Status {
    Status::unavailable(error.to_string())
}

/// The hints of a claim cannot be followed.
///
/// The code is final only if no volume of this name exists, because an existing volume would leak.
pub fn hint_impossible(error: &HintError, exists: bool) -> Status {
    if exists {
        Status::aborted(format!("{error}; the volume was made meanwhile, and waits for it"))
    } else {
        Status::invalid_argument(error.to_string())
    }
}

/// `FAILED_PRECONDITION`: the volume is attached to another node. `reason` explains why it cannot be on both.
pub fn attached_elsewhere(error: &CloudError, reason: &str) -> Status {
    Status::failed_precondition(format!("{error}; {reason}"))
}

/// `UNAVAILABLE`: an id was not found, and a cloud that may have it did not respond.
pub fn cloud_unresponsive(what: &str, id: &str, cloud: &str, error: &CloudError) -> Status {
    let cloud = if cloud.is_empty() { "without a name" } else { cloud };
    Status::unavailable(format!(
        "{what} {id} was not found, and cloud {cloud}, which may have it, gave no answer: {error}"
    ))
}

/// `UNAVAILABLE`: the credentials of a cloud belong to another project than its volumes.
///
/// A volume that is missing in the other project may still exist.
pub fn other_project(cloud: &str, own: &str, found: &str) -> Status {
    let cloud = if cloud.is_empty() { "without a name" } else { cloud };
    Status::unavailable(format!(
        "the credentials of cloud {cloud} lead to project {found}, and --project-id says that its volumes are in project {own}: what is \
         missing in the one may exist in the other, so nothing is taken for deleted or detached; give the driver credentials of project \
         {own}, or change --project-id if the volumes have moved"
    ))
}

/// `UNIMPLEMENTED`: the capability of the call is disabled.
pub fn capability_disabled(capability: &str) -> Status {
    Status::unimplemented(format!(
        "{capability} is turned off by --disable-capability={capability}; remove the flag to have it served"
    ))
}

/// `DEADLINE_EXCEEDED`: a query took longer than the client waits.
pub fn query_timed_out(what: &str, elapsed: Duration, last_failure: &LastFailure) -> Status {
    Status::deadline_exceeded(format!(
        "{what} is not done after {:.1} s, which is all the time that the call had{last_failure}; try again",
        elapsed.as_secs_f64()
    ))
}

/// `INTERNAL`: a snapshot or backup exists and has failed.
pub fn point_in_time_failed(id: &str, state: &str, message: &str) -> Status {
    let separator = if message.is_empty() { "" } else { ": " };
    Status::internal(format!(
        "snapshot {id} is in status {state}{separator}{message}; delete it and take another one"
    ))
}

/// `DEADLINE_EXCEEDED`: a backup exceeded the time limit of its class. It continues to run.
pub fn backup_late(id: &str, limit: Duration) -> Status {
    Status::deadline_exceeded(format!(
        "backup {id} is still being made after the {} s that backup-max-duration-seconds-per-gb gives it; it goes on, and the same \
         request finds it when it is done",
        limit.as_secs()
    ))
}

/// `FAILED_PRECONDITION`: the object was created by another cluster.
pub fn foreign_object(kind: &str, id: &str, cluster: &str) -> Status {
    Status::failed_precondition(format!(
        "{kind} {id} belongs to cluster {cluster} (metadata cinder.csi.openstack.org/cluster) and was not deleted; delete it \
         from there, or remove --protect-other-clusters"
    ))
}

/// `DEADLINE_EXCEEDED`: the client's time is up while the operation continues.
pub fn still_running(rpc: &str, target: &impl fmt::Display, elapsed: Duration, state: &str) -> Status {
    Status::deadline_exceeded(format!(
        "{rpc} for {target} is not done after {:.1} s (last state: {state}); it goes on, and the same request joins it",
        elapsed.as_secs_f64()
    ))
}

/// `ABORTED`: a different request for the same volume is running.
pub fn other_operation(rpc: &str, target: &impl fmt::Display, other: &str, elapsed: Duration, state: &str) -> Status {
    Status::aborted(format!(
        "{rpc}: a different {other} for {target} has been running for {:.1} s (last state: {state}); try again when it is done",
        elapsed.as_secs_f64()
    ))
}

/// `UNAVAILABLE`: the process runs the maximum number of operations.
pub fn too_many_operations(rpc: &str, running: usize) -> Status {
    Status::unavailable(format!(
        "{rpc}: {running} operations are running, which is the limit; try again later"
    ))
}

/// `UNAVAILABLE`: the process is shutting down.
pub fn shutting_down(rpc: &str) -> Status {
    Status::unavailable(format!(
        "{rpc}: the driver is shutting down; its successor takes the same request"
    ))
}

/// `INTERNAL`: the call panicked outside of any operation and changed nothing.
pub fn panicked(rpc: &str) -> Status {
    Status::internal(format!(
        "{rpc}: internal error: the handler panicked (see the driver's log)"
    ))
}

/// `UNAVAILABLE`: the operation panicked. A retry resumes from its partial results.
///
/// A final code would mean that nothing was done. A created volume would leak, and a mounted volume would be detached.
pub fn operation_panicked(rpc: &str) -> Status {
    Status::unavailable(format!(
        "{rpc}: internal error: the operation panicked (see the driver's log); the same request goes on from what was done"
    ))
}

/// `UNAVAILABLE`: the operation was aborted before it had a result.
pub fn abandoned() -> Status {
    Status::unavailable("the operation was abandoned because the driver is ending; the same request goes on with it")
}

#[cfg(test)]
mod tests;
