// SPDX-License-Identifier: Apache-2.0
//! What can go wrong with OpenStack, one variant per thing a caller would handle differently.

mod endpoint_problem;
mod failure;
mod object;
mod obstacle;
mod tls_problem;
pub(crate) mod words;

use std::time::Duration;

use thiserror::Error;

pub use endpoint_problem::EndpointProblem;
pub use failure::Failure;
pub use object::ObjectKind;
pub use obstacle::Obstacle;
pub use tls_problem::TlsProblem;
use words::{message_text, names_text, region_text, request_text, servers_text, version_text};

use crate::ids::{GiB, GroupSnapshotId, ServerId, SnapshotId, VolumeId};
use crate::last_failure::LastFailure;
use crate::migration::MigrationPolicy;

/// A failed operation on OpenStack.
#[derive(Debug, Clone, Error)]
pub enum CloudError {
    /// Keystone refused the credentials, or a service refused a fresh token.
    #[error(
        "[auth] {0}; check user, application credential, project and domain, and whether the credential has expired"
    )]
    Auth(Failure),
    /// The same for credentials that came with the request.
    #[error("[auth] {0}; the credentials in the request's secrets are refused: fix the Secret that the class names")]
    Unauthenticated(Failure),
    /// The credentials lead to another project than the one in which the cloud works. Nothing was sent.
    #[error(
        "the credentials lead to project {found}, and the volumes are in project {own}: what is missing in the one may exist in the \
         other; use credentials of project {own}"
    )]
    OtherProject {
        /// The project in which the cloud works.
        own: String,
        /// The project of the credentials.
        found: String,
    },
    /// The credentials are good, the action is not allowed (policy).
    #[error("[policy] {0}; the role of the driver's user does not allow this action")]
    Forbidden(Failure),
    /// A quota of the project is used up.
    #[error("[quota] {0}; raise the project's quota or free volumes")]
    Quota(Failure),
    /// The object does not exist, or its id is none that OpenStack could know.
    #[error("{kind} {id} does not exist{}", request_text(.request_id.as_deref()))]
    NotFound {
        /// What was looked for.
        kind: ObjectKind,
        id: String,
        /// The request that said so; `None` when OpenStack was not asked.
        request_id: Option<String>,
    },
    /// The object is in a state that forbids the operation for now.
    #[error("{0}; the object is busy, the operation can be repeated")]
    Conflict(Failure),
    /// OpenStack does not accept the request as it is.
    #[error("{0}")]
    BadRequest(Failure),
    /// No caller waits any longer for what the request would make, so it was not sent: see [`crate::Awaited`].
    #[error("{0}; it was not sent, a later call does it")]
    Unawaited(Failure),
    /// OpenStack asked for fewer requests, for longer than a call may wait.
    #[error("[throttled] {failure}")]
    Throttled {
        /// What was refused.
        failure: Failure,
        /// After how long OpenStack wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// No answer came. Whether the request took effect is unknown unless `sent` is false.
    #[error("[network] {failure}")]
    Unreachable {
        /// What was asked.
        failure: Failure,
        /// Whether the request may have reached the service.
        sent: bool,
    },
    /// TLS with the service failed.
    #[error("[tls] {failure}; {problem}")]
    Tls {
        failure: Failure,
        /// Why, with the remedy.
        problem: TlsProblem,
        /// Whether the request may have reached the service.
        sent: bool,
    },
    /// A Keystone with https leads to a service without it. Nothing was sent there.
    #[error(
        "the endpoint of service {service} in the catalogue has http, and auth-url has https: the token would be sent in clear text; \
         correct the catalogue or choose another interface (os-endpoint-type), or set allow-http-endpoints to true in cloud.conf \
         (allow_http_endpoints in clouds.yaml) if the network between them is trusted"
    )]
    InsecureEndpoint { service: &'static str },
    /// The service failed (5xx). Whether the request took effect is unknown.
    #[error("{0}")]
    Server(Failure),
    /// The answer is not what the API promises.
    #[error("{0}; the answer does not have the documented form")]
    Decode(Failure),
    /// The response is larger than any of its operation. Whether the request took effect is unknown.
    #[error(
        "[response-size] {0}; a response of this operation is smaller: check that the endpoint is that of the service, and that no proxy or \
         gateway answers in its place"
    )]
    ResponseTooLarge(Failure),
    /// A list did not end, or is larger than allowed. It is not used, because an item that is not on its pages may exist.
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
        /// The service looked for.
        service: &'static str,
        /// The region asked for.
        region: Option<String>,
        /// The interface asked for.
        interface: &'static str,
        /// What there is: type, interface, region and address of each endpoint.
        known: String,
        /// Why, with the remedy.
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
    /// The HTTP client could not be set up: a CA that cannot be read, a URL that is none.
    #[error("the connection to OpenStack cannot be set up: {0}")]
    Setup(String),
    /// A volume is attached and cannot be deleted.
    #[error("volume {volume} is {status} and cannot be deleted, attached to {}{}", servers_text(.servers), request_text(.request_id.as_deref()))]
    VolumeInUse {
        volume: VolumeId,
        status: String,
        /// The servers that hold it; may be empty when Cinder does not say.
        servers: Vec<ServerId>,
        request_id: Option<String>,
    },
    /// A volume has snapshots or other dependents and cannot be deleted.
    #[error("volume {volume} has snapshots and stays: {}; delete them first: {failure}", if .dependents.is_empty() { "none that Cinder lists" } else { .dependents })]
    VolumeHasDependents {
        volume: VolumeId,
        /// Its snapshots, each by name and id, as text; may be empty.
        dependents: String,
        failure: Failure,
    },
    /// A volume that only one server may have is attached to another one.
    #[error(
        "volume {volume} is attached to {} and cannot be attached to server {server}{}; detach it there first",
        servers_text(.servers),
        request_text(.request_id.as_deref())
    )]
    AttachedElsewhere {
        volume: VolumeId,
        /// The server that wanted it.
        server: ServerId,
        /// The servers that have it.
        servers: Vec<ServerId>,
        /// The last request that was refused.
        request_id: Option<String>,
    },
    /// The volume went into an error state.
    #[error("volume {volume} ended in status {status} after {:.1} s{}{}", .elapsed.as_secs_f64(), message_text(.message), if *.removed { "; the volume was removed again" } else { "" })]
    VolumeFailed {
        volume: VolumeId,
        /// `error`, `error_deleting`, …
        status: String,
        /// What Cinder's user messages or the clean-up say; may be empty.
        message: String,
        /// Whether the failed volume was removed again, so that nothing is left behind.
        removed: bool,
        /// Time from the request to the error.
        elapsed: Duration,
    },
    /// Nova accepted an attachment and gave it up afterwards.
    #[error(
        "server {server} did not take volume {volume}: back in status {status} after {:.1} s{}; see the log of nova-compute on the server's host: `No more \
         available PCI slots` means that the server is full (set [libvirt] num_pcie_ports, or lower the node's attach limit)",
        .elapsed.as_secs_f64(),
        request_text(.request_id.as_deref())
    )]
    AttachFailed {
        volume: VolumeId,
        server: ServerId,
        /// The volume's status now.
        status: String,
        /// Time from the request.
        elapsed: Duration,
        /// The request that Nova accepted.
        request_id: Option<String>,
    },
    /// An attachment or a detachment cannot go on before somebody does something. What is there stays as it is.
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
        /// What is in the way.
        obstacle: Obstacle,
        /// What Cinder and Nova say, in words.
        states: String,
        /// What to do about it.
        remedy: String,
        /// Time since the operation began.
        elapsed: Duration,
        /// The last request that was refused.
        request_id: Option<String>,
    },
    /// The server cannot take one more volume.
    #[error(
        "server {server} cannot take one more volume: {failure}; lower the node's attach limit or move pods to other nodes"
    )]
    TooManyAttachments { server: ServerId, failure: Failure },
    /// A volume of this name exists and differs from what is asked for.
    #[error("volume {volume} has the name {name} already and differs: {difference}")]
    AlreadyExists {
        name: String,
        /// The volume that has it.
        volume: VolumeId,
        /// What differs, wanted and found.
        difference: String,
    },
    /// The source of a new volume does not exist.
    #[error("{kind} {id}, from which the volume shall be made, does not exist{}", request_text(.request_id.as_deref()))]
    NoSource {
        /// What was looked for; a snapshot also stands for a backup.
        kind: ObjectKind,
        id: String,
        /// The request that said so; `None` when OpenStack was not asked.
        request_id: Option<String>,
    },
    /// The source of a new volume is larger than the volume shall be.
    #[error("{kind} {id} has {size}, and no volume of {wanted} can be made from it; ask for {size} at least")]
    SourceTooLarge {
        kind: ObjectKind,
        id: String,
        size: GiB,
        /// The size asked for.
        wanted: GiB,
    },
    /// The source of a new volume with a file system was used as a raw device.
    #[error(
        "{kind} {id} has the content of a volume with volumeMode: Block, and a volume with volumeMode: Filesystem would mount bytes that \
         a user of the device chose; restore it with volumeMode: Block, or use a StorageClass with the parameter \
         allowVolumeModeChange: \"true\""
    )]
    SourceMode { kind: ObjectKind, id: String },
    /// An object is in a status in which the operation is not possible; it may pass.
    #[error("{kind} {id} is in status {status}, and has to be {wanted} first")]
    Busy {
        kind: ObjectKind,
        id: String,
        status: String,
        /// The statuses that it could be used in.
        wanted: &'static str,
    },
    /// An object is in an error status, which does not pass by itself.
    #[error("{kind} {id} is in status {status} and cannot be used{}", message_text(.message))]
    Broken {
        kind: ObjectKind,
        id: String,
        status: String,
        /// What Cinder says about it; may be empty.
        message: String,
    },
    /// A volume was to be usable by several servers at once, and its type does not allow that.
    #[error(
        "a volume of type {volume_type} can be attached to one server only; name a type with multiattach in parameter type of the \
         StorageClass"
    )]
    NotMultiattach {
        /// The type that Cinder gave to the volume.
        volume_type: String,
    },
    /// The volume did not grow.
    #[error("volume {volume} has {size} in status {status} and did not grow to {wanted} within {:.1} s{}", .elapsed.as_secs_f64(), message_text(.message))]
    ExpandFailed {
        volume: VolumeId,
        size: GiB,
        /// The size asked for.
        wanted: GiB,
        status: String,
        /// What Cinder's user messages say; may be empty.
        message: String,
        /// Time from the request.
        elapsed: Duration,
    },
    /// This Cinder cannot grow what is in use.
    #[error(
        "volume {volume} is in use by {} and this Cinder grows only volumes that are not (it has no microversion 3.42, or the \
         configuration says ignore-volume-microversion); stop the pods that use it",
        servers_text(.servers)
    )]
    OnlineExpansion {
        volume: VolumeId,
        /// The servers that have it.
        servers: Vec<ServerId>,
    },
    /// A snapshot or backup of this name exists and is one of another volume.
    #[error("{kind} {id} has the name {name} already and differs: {difference}")]
    SnapshotExists {
        kind: ObjectKind,
        id: String,
        name: String,
        /// What differs, wanted and found.
        difference: String,
    },
    /// A snapshot or backup went into an error status.
    #[error("{kind} {id} ended in status {status}{}{}", message_text(.message), if *.removed { "; it was removed again" } else { "" })]
    SnapshotFailed {
        kind: ObjectKind,
        id: String,
        /// `error`, `error_deleting`, …
        status: String,
        /// What Cinder's user messages, the backup service or the clean-up say; may be empty.
        message: String,
        /// Whether the failed one was removed again, so that nothing is left behind.
        removed: bool,
    },
    /// Something that others are built on cannot be deleted.
    #[error("{kind} {id} is still needed and stays: {dependents}; delete those first{}", message_text(.message))]
    StillNeeded {
        kind: ObjectKind,
        id: String,
        /// What is built on it, as text.
        dependents: String,
        /// The refusal; may be empty.
        message: String,
    },
    /// A snapshot that belongs to a group snapshot cannot be deleted alone.
    #[error("snapshot {snapshot} is a member of group snapshot {group}; delete that")]
    MemberOfGroup { snapshot: SnapshotId, group: String },
    /// The cloud makes no backups.
    #[error("this cloud has no backup service: {0}; use type: snapshot in the VolumeSnapshotClass")]
    NoBackups(Failure),
    /// This Cinder makes no volumes from backups.
    #[error(
        "backup {backup} cannot be restored into a new volume: {failure}; that takes a Cinder with microversion 3.47"
    )]
    CannotRestore { backup: String, failure: Failure },
    /// No snapshot of the volume can be made as it is asked for.
    #[error("no snapshot of volume {volume} can be made in its status {status}: {failure}{}", if status == "in-use" { "; set force-create to true in the VolumeSnapshotClass, or leave it out" } else { "" })]
    SnapshotRefused {
        volume: VolumeId,
        status: String,
        failure: Failure,
    },
    /// A volume cannot become what is asked for; nothing was changed.
    #[error("volume {volume} cannot be changed so: {reason}")]
    CannotModify {
        volume: VolumeId,
        /// Why, and what would help.
        reason: String,
    },
    /// A volume did not get another type, and is as it was before.
    #[error("volume {volume} is still of type {found}: Cinder gave up its change to {wanted} with migration policy {} after {:.1} s{}{}", .migration.as_str(), .elapsed.as_secs_f64(), message_text(.message), if *.migration == MigrationPolicy::Never { "; if the new type is on another backend, set migration-policy: on-demand" } else { "" })]
    RetypeFailed {
        volume: VolumeId,
        /// The name of the type asked for.
        wanted: String,
        /// The name of its type.
        found: String,
        /// Whether the data might have moved.
        migration: MigrationPolicy,
        /// What Cinder's user messages say; may be empty.
        message: String,
        /// Time from the request.
        elapsed: Duration,
    },
    /// Volumes cannot be cut together at one moment; nothing was made.
    #[error("group snapshot {name} cannot be made: {reason}")]
    CannotGroup {
        /// The group snapshot's name.
        name: String,
        /// Why, and what would help.
        reason: String,
    },
    /// A group snapshot has other members than those named; it stays.
    #[error("group snapshot {id} has other members than those named: {}", names_text(.members.iter().map(SnapshotId::to_string)))]
    OtherMembers {
        id: GroupSnapshotId,
        /// The members that it has.
        members: Vec<SnapshotId>,
    },
    /// A volume is attached to the server, and not in the mode asked for.
    #[error("volume {volume} is attached to server {server} {} already; detach it first", if *.read_only { "read-only" } else { "for writing" })]
    AttachedDifferently {
        volume: VolumeId,
        server: ServerId,
        /// Whether it is attached read-only.
        read_only: bool,
    },
    /// OpenStack did not finish within the operation's time.
    #[error("{what} did not finish within {:.0} s, last status {last_status}{}", .elapsed.as_secs_f64(), message_text(.last_error))]
    Timeout {
        /// What was waited for, with ids.
        what: String,
        /// The status seen last.
        last_status: String,
        /// The last failure of looking; empty when looking worked.
        last_error: String,
        /// Time waited.
        elapsed: Duration,
    },
}

impl CloudError {
    /// The request id of the answer behind this error, where there was one.
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

    /// The HTTP status behind this error, where there was one.
    pub fn status(&self) -> Option<u16> {
        self.failure().and_then(|failure| failure.status)
    }

    /// Whether the request may have taken effect although this error came back, so that only a look at the cloud can tell.
    pub fn is_uncertain(&self) -> bool {
        match self {
            Self::Unreachable { sent, .. } | Self::Tls { sent, .. } => *sent,
            Self::Server(_) | Self::Decode(_) | Self::ResponseTooLarge(_) => true,
            _ => false,
        }
    }

    /// Whether an equal request may succeed later although nothing is changed.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::Tls { .. }
                | Self::Server(_)
                | Self::Throttled { .. }
                | Self::Decode(_)
                | Self::ResponseTooLarge(_)
                | Self::ListIncomplete(_)
                | Self::Unawaited(_)
        )
    }

    pub(crate) fn failure(&self) -> Option<&Failure> {
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
