// SPDX-License-Identifier: Apache-2.0
//! The errors of OpenStack, and their classification.

mod endpoint_problem;
mod failure;
mod kind;
mod object;
mod obstacle;
pub(crate) mod text;
mod tls_problem;

use std::time::Duration;

use thiserror::Error;

pub use endpoint_problem::EndpointProblem;
pub use failure::Failure;
pub use kind::CloudErrorKind;
use kind::{AUTH_TAG, QUOTA_TAG};
pub use object::ObjectKind;
pub use obstacle::Obstacle;
use text::{is_out_of_space, message_text, names_text, region_text, request_text, servers_text, version_text};
pub use tls_problem::TlsProblem;

use crate::ids::{GiB, GroupSnapshotId, ServerId, SnapshotId, VolumeId};
use crate::last_failure::LastFailure;
use crate::migration::MigrationPolicy;

/// A failed operation on OpenStack. The HTTP status in a comment is the one that the response had.
#[derive(Debug, Clone, Error)]
pub enum CloudError {
    /// Keystone refused the credentials, or a service refused a fresh token (401).
    #[error(
        "{AUTH_TAG} {0}; check user, application credential, project and domain, and whether the credential has expired"
    )]
    Auth(Failure),
    /// Keystone refused the credentials that came with the CSI request (401).
    #[error(
        "{AUTH_TAG} {0}; the credentials in the request's secrets are refused: fix the Secret that the class names"
    )]
    Unauthenticated(Failure),
    /// The credentials are for another project than the one of the cloud. No request was sent.
    #[error(
        "the credentials lead to project {found}, and the volumes are in project {own}: what is missing in the one may exist in the \
         other; use credentials of project {own}"
    )]
    OtherProject {
        /// The project of the cloud.
        own: String,
        /// The project of the credentials.
        found: String,
    },
    /// The policy of the service does not allow the action (403). The credentials are valid.
    #[error("[policy] {0}; the role of the driver's user does not allow this action")]
    Forbidden(Failure),
    /// A quota of the project is exhausted (413 of Cinder, 403 of Nova).
    #[error("{QUOTA_TAG} {0}; raise the project's quota or free volumes")]
    Quota(Failure),
    /// The object does not exist (404), or its id cannot be one of OpenStack's.
    #[error("{kind} {id} does not exist{}", request_text(.request_id.as_deref()))]
    NotFound {
        /// The kind of the missing object.
        kind: ObjectKind,
        id: String,
        /// The request id of the 404; `None` if the driver sent no request.
        request_id: Option<String>,
    },
    /// The object is in a state that forbids the operation for now (409).
    #[error("{0}; the object is busy, the operation can be repeated")]
    Conflict(Failure),
    /// OpenStack does not accept the request (400, and any other 4xx without a variant).
    #[error("{0}")]
    BadRequest(Failure),
    /// No caller waits any longer for the new resource, so the driver did not send the request: see
    /// [`crate::CallerLiveness`].
    #[error("{0}; it was not sent, a later call does it")]
    Unawaited(Failure),
    /// OpenStack limits the rate of requests (429, 413, 498), for longer than a call may wait.
    #[error("[throttled] {failure}")]
    Throttled {
        failure: Failure,
        /// The delay that OpenStack requests before the next attempt.
        retry_after: Option<Duration>,
    },
    /// No response arrived. Unless `sent` is false, the request may have taken effect.
    #[error("[network] {failure}")]
    Unreachable {
        failure: Failure,
        /// Whether the request may have reached the service.
        sent: bool,
    },
    /// TLS with the service failed.
    #[error("[tls] {failure}; {problem}")]
    Tls {
        failure: Failure,
        /// The cause with the remedy.
        problem: TlsProblem,
        /// Whether the request may have reached the service.
        sent: bool,
    },
    /// Keystone has https, and the service has http. The driver sent no request there.
    #[error(
        "the endpoint of service {service} in the catalogue has http, and auth-url has https: the token would be sent in clear text; \
         correct the catalogue or choose another interface (os-endpoint-type), or set allow-http-endpoints to true in cloud.conf \
         (allow_http_endpoints in clouds.yaml) if the network between them is trusted"
    )]
    InsecureEndpoint { service: &'static str },
    /// The service failed (5xx). The request may have taken effect.
    #[error("{0}")]
    Server(Failure),
    /// The response does not have the form that the API documents.
    #[error("{0}; the answer does not have the documented form")]
    Decode(Failure),
    /// The response is larger than any valid one of its operation. The request may have taken effect.
    #[error(
        "[response-size] {0}; a response of this operation is smaller: check that the endpoint is that of the service, and that no proxy or \
         gateway answers in its place"
    )]
    ResponseTooLarge(Failure),
    /// A list did not end, or exceeds the limit. The driver does not use it, because an item outside of its pages may
    /// exist.
    #[error(
        "[list] {0}; the list is not used: check that the endpoint is that of the service, and clean up the project if it really has that \
         many"
    )]
    ListIncomplete(Failure),
    /// The catalogue has no endpoint for the service.
    #[error(
        "no {interface} endpoint for service {service} with API version {}{}; the catalogue has: {known}; {problem}",
        version_text(.service),
        region_text(.region.as_deref())
    )]
    NoEndpoint {
        /// The requested service.
        service: &'static str,
        /// The requested region.
        region: Option<String>,
        /// The requested interface.
        interface: &'static str,
        /// The endpoints of the catalogue: type, interface, region and address of each.
        known: String,
        /// The cause with the remedy.
        problem: EndpointProblem,
    },
    /// The catalogue has endpoints in several regions, and the configuration names none of them.
    #[error(
        "the catalogue has {interface} endpoints of block storage and compute in several regions ({regions}), and the configuration \
         names none; set region in cloud.conf (region_name in clouds.yaml) to the region of the volumes and servers"
    )]
    RegionAmbiguous {
        /// The interface of the endpoints.
        interface: &'static str,
        /// The regions, as text.
        regions: String,
    },
    /// The HTTP client could not be created, for instance because of an unreadable CA or an invalid URL.
    #[error("the connection to OpenStack cannot be set up: {0}")]
    Setup(String),
    /// A volume is attached and cannot be deleted (400 of the deletion).
    #[error("volume {volume} is {status} and cannot be deleted, attached to {}{}", servers_text(.servers), request_text(.request_id.as_deref()))]
    VolumeInUse {
        volume: VolumeId,
        status: String,
        /// The servers to which it is attached; may be empty if Cinder does not name them.
        servers: Vec<ServerId>,
        request_id: Option<String>,
    },
    /// A volume has snapshots or other dependents and cannot be deleted (400 of the deletion).
    #[error("volume {volume} has snapshots and stays: {}; delete them first: {failure}", if .dependents.is_empty() { "none that Cinder lists" } else { .dependents })]
    VolumeHasDependents {
        volume: VolumeId,
        /// Its snapshots by name and id, as text; may be empty.
        dependents: String,
        failure: Failure,
    },
    /// A volume that only one server may have is attached to another server.
    #[error(
        "volume {volume} is attached to {} and cannot be attached to server {server}{}; detach it there first",
        servers_text(.servers),
        request_text(.request_id.as_deref())
    )]
    AttachedElsewhere {
        volume: VolumeId,
        /// The server of the request.
        server: ServerId,
        /// The servers that have the volume.
        servers: Vec<ServerId>,
        /// The request id of the last refusal.
        request_id: Option<String>,
    },
    /// The volume entered an error state.
    #[error("volume {volume} ended in status {status} after {:.1} s{}{}", .elapsed.as_secs_f64(), message_text(.message), if *.removed { "; the volume was removed again" } else { "" })]
    VolumeFailed {
        volume: VolumeId,
        /// `error`, `error_deleting`, …
        status: String,
        /// Cinder's user messages and the result of the clean-up; may be empty.
        message: String,
        /// Whether the failed volume was deleted, so that nothing remains.
        removed: bool,
        /// Time from the request to the error.
        elapsed: Duration,
    },
    /// Nova accepted an attachment and abandoned it later.
    #[error(
        "server {server} did not take volume {volume}: back in status {status} after {:.1} s{}; see the log of nova-compute on the server's host: `No more \
         available PCI slots` means that the server is full (set [libvirt] num_pcie_ports, or lower the node's attach limit)",
        .elapsed.as_secs_f64(),
        request_text(.request_id.as_deref())
    )]
    AttachFailed {
        volume: VolumeId,
        server: ServerId,
        /// The current status of the volume.
        status: String,
        /// Time from the request.
        elapsed: Duration,
        /// The id of the request that Nova accepted.
        request_id: Option<String>,
    },
    /// An administrator must act before an attachment or detachment can continue. The driver changes nothing.
    #[error(
        "[cloud-state] {act} of volume {volume}, server {server}: {obstacle}: {states} (after {:.1} s{}); {remedy}",
        .elapsed.as_secs_f64(),
        .request_id.as_deref().map(|id| format!(", request {id}")).unwrap_or_default()
    )]
    Obstructed {
        /// `attachment` or `detachment`.
        act: &'static str,
        volume: VolumeId,
        server: ServerId,
        obstacle: Obstacle,
        /// The states in Cinder and Nova, as text.
        states: String,
        remedy: String,
        /// Time since the operation began.
        elapsed: Duration,
        /// The request id of the last refusal.
        request_id: Option<String>,
    },
    /// The server cannot have another volume.
    #[error(
        "server {server} cannot take one more volume: {failure}; lower the node's attach limit or move pods to other nodes"
    )]
    TooManyAttachments { server: ServerId, failure: Failure },
    /// A volume of this name exists and differs from the request.
    #[error("volume {volume} has the name {name} already and differs: {difference}")]
    AlreadyExists {
        name: String,
        /// The existing volume.
        volume: VolumeId,
        /// The difference: requested and actual value.
        difference: String,
    },
    /// The source of a new volume does not exist (404).
    #[error("{kind} {id}, from which the volume shall be made, does not exist{}", request_text(.request_id.as_deref()))]
    NoSource {
        /// The kind of the source; a snapshot also represents a backup.
        kind: ObjectKind,
        id: String,
        /// The request id of the 404; `None` if the driver sent no request.
        request_id: Option<String>,
    },
    /// The source of a new volume is larger than the requested size.
    #[error("{kind} {id} has {size}, and no volume of {wanted} can be made from it; ask for {size} at least")]
    SourceTooLarge {
        kind: ObjectKind,
        id: String,
        size: GiB,
        wanted: GiB,
    },
    /// The source of a new volume with a file system was used as a raw device.
    #[error(
        "{kind} {id} has the content of a volume with volumeMode: Block, and a volume with volumeMode: Filesystem would mount bytes that \
         a user of the device chose; restore it with volumeMode: Block, or use a StorageClass with the parameter \
         allowVolumeModeChange: \"true\""
    )]
    SourceMode { kind: ObjectKind, id: String },
    /// An object is in a status that does not allow the operation. The status may change by itself.
    #[error("{kind} {id} is in status {status}, and has to be {wanted} first")]
    Busy {
        kind: ObjectKind,
        id: String,
        status: String,
        /// The statuses that allow the operation.
        wanted: &'static str,
    },
    /// An object is in an error status, which does not change by itself.
    #[error("{kind} {id} is in status {status} and cannot be used{}", message_text(.message))]
    Broken {
        kind: ObjectKind,
        id: String,
        status: String,
        /// Cinder's messages about it; may be empty.
        message: String,
    },
    /// The volume must support several servers at once, and its type does not.
    #[error(
        "a volume of type {volume_type} can be attached to one server only; name a type with multiattach in parameter type of the \
         StorageClass"
    )]
    NotMultiattach {
        /// The type that Cinder chose for the volume.
        volume_type: String,
    },
    /// The size of the volume did not change as requested.
    #[error("volume {volume} has {size} in status {status} and did not grow to {wanted} within {:.1} s{}", .elapsed.as_secs_f64(), message_text(.message))]
    ExpandFailed {
        volume: VolumeId,
        size: GiB,
        /// The requested size.
        wanted: GiB,
        status: String,
        /// Cinder's user messages; may be empty.
        message: String,
        /// Time from the request.
        elapsed: Duration,
    },
    /// This Cinder cannot expand volumes in use.
    #[error(
        "volume {volume} is in use by {} and this Cinder grows only volumes that are not (it has no microversion 3.42, or the \
         configuration says ignore-volume-microversion); stop the pods that use it",
        servers_text(.servers)
    )]
    OnlineExpansion {
        volume: VolumeId,
        /// The servers that have the volume.
        servers: Vec<ServerId>,
    },
    /// A snapshot or backup of this name exists and is of another volume.
    #[error("{kind} {id} has the name {name} already and differs: {difference}")]
    SnapshotExists {
        kind: ObjectKind,
        id: String,
        name: String,
        /// The difference: requested and actual value.
        difference: String,
    },
    /// A snapshot or backup entered an error status.
    #[error("{kind} {id} ended in status {status}{}{}", message_text(.message), if *.removed { "; it was removed again" } else { "" })]
    SnapshotFailed {
        kind: ObjectKind,
        id: String,
        /// `error`, `error_deleting`, …
        status: String,
        /// Cinder's user messages, the failure of the backup service, and the result of the clean-up; may be empty.
        message: String,
        /// Whether the failed resource was deleted, so that nothing remains.
        removed: bool,
    },
    /// A resource with dependents cannot be deleted.
    #[error("{kind} {id} is still needed and stays: {dependents}; delete those first{}", message_text(.message))]
    StillNeeded {
        kind: ObjectKind,
        id: String,
        /// The dependents, as text.
        dependents: String,
        /// The text of the refusal; may be empty.
        message: String,
    },
    /// A member of a group snapshot cannot be deleted alone.
    #[error("snapshot {snapshot} is a member of group snapshot {group}; delete that")]
    MemberOfGroup { snapshot: SnapshotId, group: String },
    /// The cloud has no backup service (5xx that names cinder-backup).
    #[error("this cloud has no backup service: {0}; use type: snapshot in the VolumeSnapshotClass")]
    NoBackups(Failure),
    /// This Cinder cannot create volumes from backups (406).
    #[error(
        "backup {backup} cannot be restored into a new volume: {failure}; that takes a Cinder with microversion 3.47"
    )]
    CannotRestore { backup: String, failure: Failure },
    /// Cinder refuses a snapshot of the volume in its current status (400).
    #[error("no snapshot of volume {volume} can be made in its status {status}: {failure}{}", if status == "in-use" { "; set force-create to true in the VolumeSnapshotClass, or leave it out" } else { "" })]
    SnapshotRefused {
        volume: VolumeId,
        status: String,
        failure: Failure,
    },
    /// The requested change of a volume is impossible. Nothing was changed.
    #[error("volume {volume} cannot be changed so: {reason}")]
    CannotModify {
        volume: VolumeId,
        /// The cause and the remedy.
        reason: String,
    },
    /// Cinder did not change the type of a volume. The volume is unchanged.
    #[error("volume {volume} is still of type {found}: Cinder gave up its change to {wanted} with migration policy {} after {:.1} s{}{}", .migration.as_str(), .elapsed.as_secs_f64(), message_text(.message), if *.migration == MigrationPolicy::Never { "; if the new type is on another backend, set migration-policy: on-demand" } else { "" })]
    RetypeFailed {
        volume: VolumeId,
        /// The name of the requested type.
        wanted: String,
        /// The name of the current type.
        found: String,
        /// The requested migration policy.
        migration: MigrationPolicy,
        /// Cinder's user messages; may be empty.
        message: String,
        /// Time from the request.
        elapsed: Duration,
    },
    /// The volumes cannot be snapshotted at one moment. Nothing was created.
    #[error("group snapshot {name} cannot be made: {reason}")]
    CannotGroup {
        name: String,
        /// The cause and the remedy.
        reason: String,
    },
    /// A group snapshot has other members than the named ones. It was not deleted.
    #[error("group snapshot {id} has other members than those named: {}", names_text(.members.iter().map(SnapshotId::to_string)))]
    OtherMembers {
        id: GroupSnapshotId,
        members: Vec<SnapshotId>,
    },
    /// A volume is attached to the server in the other access mode.
    #[error("volume {volume} is attached to server {server} {} already; detach it first", if *.read_only { "read-only" } else { "for writing" })]
    AttachedDifferently {
        volume: VolumeId,
        server: ServerId,
        read_only: bool,
    },
    /// OpenStack did not finish within the time of the operation.
    #[error("{what} did not finish within {:.0} s, last status {last_status}{}", .elapsed.as_secs_f64(), message_text(.last_error))]
    Timeout {
        /// The subject of the wait, with ids.
        what: String,
        /// The status of the last successful poll.
        last_status: String,
        /// The failure of the last poll; empty if it succeeded.
        last_error: String,
        elapsed: Duration,
    },
}

impl CloudError {
    /// The request id of the response that caused this error, if there was one.
    pub fn request_id(&self) -> Option<&str> {
        match self {
            Self::NotFound { request_id, .. }
            | Self::NoSource { request_id, .. }
            | Self::VolumeInUse { request_id, .. }
            | Self::AttachFailed { request_id, .. }
            | Self::AttachedElsewhere { request_id, .. }
            | Self::Obstructed { request_id, .. } => request_id.as_deref(),
            other => other.failure().and_then(|failure| failure.request_id.as_deref()),
        }
    }

    /// The HTTP status of the response that caused this error, if there was one.
    pub fn status(&self) -> Option<u16> {
        self.failure().and_then(|failure| failure.status)
    }

    /// The kind of this error: the only classification of the variants.
    pub fn kind(&self) -> CloudErrorKind {
        match self {
            Self::Auth(_) => CloudErrorKind::Credentials,
            Self::Unauthenticated(_) => CloudErrorKind::RequestCredentials,
            Self::Forbidden(_) => CloudErrorKind::NotPermitted,
            Self::OtherProject { .. } | Self::Setup(_) => CloudErrorKind::Misconfigured,
            Self::NoEndpoint { .. } | Self::InsecureEndpoint { .. } => CloudErrorKind::NoEndpoint,
            Self::RegionAmbiguous { .. } => CloudErrorKind::RegionAmbiguous,
            Self::Unreachable { .. } | Self::Tls { .. } => CloudErrorKind::Unreachable,
            Self::Throttled { .. } => CloudErrorKind::Throttled,
            Self::Unawaited(_) => CloudErrorKind::Unawaited,
            Self::Server(_) => CloudErrorKind::ServiceFailed,
            Self::Decode(_) | Self::ResponseTooLarge(_) | Self::ListIncomplete(_) => CloudErrorKind::InvalidResponse,
            Self::Timeout { .. } => CloudErrorKind::Timeout,
            Self::NotFound { .. } | Self::NoSource { .. } => CloudErrorKind::NotFound,
            Self::AlreadyExists { .. } | Self::SnapshotExists { .. } | Self::AttachedDifferently { .. } => {
                CloudErrorKind::Exists
            }
            Self::Conflict(_) | Self::Busy { .. } | Self::Obstructed { .. } => CloudErrorKind::Busy,
            Self::VolumeInUse { .. }
            | Self::VolumeHasDependents { .. }
            | Self::AttachedElsewhere { .. }
            | Self::StillNeeded { .. } => CloudErrorKind::InUse,
            Self::Broken { .. } => CloudErrorKind::Broken,
            Self::Quota(_) => CloudErrorKind::Quota,
            Self::TooManyAttachments { .. } => CloudErrorKind::ServerFull,
            Self::BadRequest(_) => CloudErrorKind::BadRequest,
            Self::SourceMode { .. }
            | Self::NotMultiattach { .. }
            | Self::MemberOfGroup { .. }
            | Self::OtherMembers { .. }
            | Self::CannotModify { .. } => CloudErrorKind::InvalidArgument,
            Self::SourceTooLarge { .. } => CloudErrorKind::OutOfRange,
            Self::OnlineExpansion { .. }
            | Self::NoBackups(_)
            | Self::CannotRestore { .. }
            | Self::SnapshotRefused { .. }
            | Self::CannotGroup { .. } => CloudErrorKind::Unsupported,
            Self::VolumeFailed { .. }
            | Self::AttachFailed { .. }
            | Self::ExpandFailed { .. }
            | Self::SnapshotFailed { .. }
            | Self::RetypeFailed { .. } => CloudErrorKind::Failed,
        }
    }

    /// Whether the request may have taken effect in spite of this error. Only the state of the cloud shows the result.
    pub fn is_uncertain(&self) -> bool {
        match self {
            Self::Unreachable { sent, .. } | Self::Tls { sent, .. } => *sent,
            // A list changes nothing.
            Self::ListIncomplete(_) => false,
            _ => matches!(
                self.kind(),
                CloudErrorKind::ServiceFailed | CloudErrorKind::InvalidResponse
            ),
        }
    }

    /// Whether an identical request may succeed later, although no one changes anything.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.kind(),
            CloudErrorKind::Unreachable
                | CloudErrorKind::ServiceFailed
                | CloudErrorKind::Throttled
                | CloudErrorKind::InvalidResponse
                | CloudErrorKind::Unawaited
        )
    }

    /// Whether Cinder found no backend with space for the volume. Another zone may have one.
    pub fn is_out_of_space(&self) -> bool {
        match self {
            Self::VolumeFailed { message, .. } | Self::ExpandFailed { message, .. } => is_out_of_space(message),
            _ => false,
        }
    }

    /// Whether OpenStack refused the request itself, or the present state of its object (400 or 409).
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self, Self::BadRequest(_) | Self::Conflict(_))
    }

    /// Whether the service does not offer this to the project (403 or 404).
    pub(crate) fn is_not_offered(&self) -> bool {
        matches!(self.kind(), CloudErrorKind::NotPermitted | CloudErrorKind::NotFound)
    }

    /// The failed exchange with OpenStack, if there was one.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Auth(failure)
            | Self::Unauthenticated(failure)
            | Self::Forbidden(failure)
            | Self::Quota(failure)
            | Self::Conflict(failure)
            | Self::BadRequest(failure)
            | Self::Server(failure)
            | Self::Decode(failure)
            | Self::ResponseTooLarge(failure)
            | Self::ListIncomplete(failure)
            | Self::Unawaited(failure)
            | Self::Throttled { failure, .. }
            | Self::Unreachable { failure, .. }
            | Self::Tls { failure, .. }
            | Self::VolumeHasDependents { failure, .. }
            | Self::SnapshotRefused { failure, .. }
            | Self::CannotRestore { failure, .. }
            | Self::NoBackups(failure)
            | Self::TooManyAttachments { failure, .. } => Some(failure),
            _ => None,
        }
    }

    pub(crate) fn no_volume(id: &VolumeId) -> Self {
        Self::missing(ObjectKind::Volume, id.as_str())
    }

    pub(crate) fn no_server(id: &ServerId) -> Self {
        Self::missing(ObjectKind::Server, id.as_str())
    }

    fn missing(kind: ObjectKind, id: &str) -> Self {
        Self::NotFound {
            kind,
            id: id.to_owned(),
            request_id: LastFailure::request_that_missed(id),
        }
    }
}

#[cfg(test)]
mod tests;
