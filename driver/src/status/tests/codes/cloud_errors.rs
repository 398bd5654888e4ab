// SPDX-License-Identifier: Apache-2.0
//! One error of the cloud for each variant.

use std::time::Duration;

use cinder_cloud::{
    CloudError, EndpointProblem, GiB, GroupSnapshotId, MigrationPolicy, ObjectKind, Obstacle, ServerId, SnapshotId,
    TlsProblem, VolumeId,
};

use super::super::{failure, not_found, retype_failed, volume_failed};

fn volume() -> VolumeId {
    VolumeId::new("VOLUME")
}

fn server() -> ServerId {
    ServerId::new("SERVER")
}

fn size(gib: u64) -> GiB {
    GiB::new(gib).expect("a size")
}

/// Returns each error of the cloud, with a description of the case if the code depends on it.
pub(super) fn cloud_errors() -> Vec<(&'static str, CloudError)> {
    let no_room = "No valid backend was found";
    let kind = ObjectKind::Snapshot;
    let id = || "SNAPSHOT".to_owned();
    let snapshot_failed = |removed| CloudError::SnapshotFailed {
        kind,
        id: id(),
        status: "error".into(),
        message: String::new(),
        removed,
    };
    let expand_failed = |message: &str| CloudError::ExpandFailed {
        volume: volume(),
        size: size(1),
        wanted: size(2),
        status: "error_extending".into(),
        message: message.into(),
        elapsed: Duration::ZERO,
    };
    vec![
        ("", CloudError::Auth(failure("login", Some(401)))),
        ("", CloudError::Unauthenticated(failure("login", Some(401)))),
        (
            "",
            CloudError::OtherProject {
                own: "PROJECT".into(),
                found: "OTHER".into(),
            },
        ),
        ("", CloudError::Forbidden(failure("volume_get", Some(403)))),
        ("of a creation", CloudError::Quota(failure("volume_create", Some(413)))),
        (
            "of another request",
            CloudError::Quota(failure("volume_list", Some(413))),
        ),
        ("a volume", not_found(ObjectKind::Volume)),
        ("a snapshot", not_found(ObjectKind::Snapshot)),
        ("a backup", not_found(ObjectKind::Backup)),
        ("a group", not_found(ObjectKind::Group)),
        ("a group snapshot", not_found(ObjectKind::GroupSnapshot)),
        ("a server", not_found(ObjectKind::Server)),
        ("a path of the API", not_found(ObjectKind::Resource)),
        ("", CloudError::Conflict(failure("volume_attach", Some(409)))),
        (
            "of a creation",
            CloudError::BadRequest(failure("volume_create", Some(400))),
        ),
        (
            "of a retype",
            CloudError::BadRequest(failure("volume_retype", Some(400))),
        ),
        (
            "of another request",
            CloudError::BadRequest(failure("volume_list", Some(400))),
        ),
        ("", CloudError::Unawaited(failure("volume_create", None))),
        (
            "",
            CloudError::Throttled {
                failure: failure("volume_get", Some(429)),
                retry_after: None,
            },
        ),
        (
            "",
            CloudError::Unreachable {
                failure: failure("volume_get", None),
                sent: true,
            },
        ),
        (
            "",
            CloudError::Tls {
                failure: failure("volume_get", None),
                problem: TlsProblem::Expired,
                sent: false,
            },
        ),
        (
            "",
            CloudError::InsecureEndpoint {
                service: "block-storage",
            },
        ),
        ("502 to 504", CloudError::Server(failure("volume_get", Some(503)))),
        ("another 5xx", CloudError::Server(failure("volume_get", Some(500)))),
        ("", CloudError::Decode(failure("volume_get", Some(200)))),
        ("", CloudError::ResponseTooLarge(failure("volume_get", Some(200)))),
        ("", CloudError::ListIncomplete(failure("volume_list", Some(200)))),
        (
            "",
            CloudError::NoEndpoint {
                service: "block-storage",
                region: None,
                interface: "public",
                known: "volumev2/public/A http://cinder.example/v2".into(),
                problem: EndpointProblem::Version,
            },
        ),
        (
            "",
            CloudError::RegionAmbiguous {
                interface: "public",
                regions: "A, B".into(),
            },
        ),
        ("", CloudError::Setup("the CA cannot be read".into())),
        (
            "",
            CloudError::VolumeInUse {
                volume: volume(),
                status: "in-use".into(),
                servers: vec![server()],
                request_id: None,
            },
        ),
        (
            "",
            CloudError::VolumeHasDependents {
                volume: volume(),
                dependents: "snapshot SNAPSHOT".into(),
                failure: failure("volume_delete", Some(400)),
            },
        ),
        (
            "",
            CloudError::AttachedElsewhere {
                volume: volume(),
                server: server(),
                servers: vec![ServerId::new("OTHER")],
                request_id: None,
            },
        ),
        ("no backend has room, removed again", volume_failed(no_room, true)),
        ("removed again", volume_failed("", true)),
        ("still there", volume_failed("", false)),
        (
            "",
            CloudError::AttachFailed {
                volume: volume(),
                server: server(),
                status: "available".into(),
                elapsed: Duration::ZERO,
                request_id: None,
            },
        ),
        (
            "",
            CloudError::Obstructed {
                act: "attachment",
                volume: volume(),
                server: server(),
                obstacle: Obstacle::Stuck,
                states: "Cinder has the volume reserved for 600 s".into(),
                remedy: "see the log of nova-compute".into(),
                elapsed: Duration::ZERO,
                request_id: None,
            },
        ),
        (
            "",
            CloudError::TooManyAttachments {
                server: server(),
                failure: failure("volume_attach", Some(403)),
            },
        ),
        (
            "",
            CloudError::AlreadyExists {
                name: "NAME".into(),
                volume: volume(),
                difference: "2 GiB are wanted, it has 1 GiB".into(),
            },
        ),
        (
            "",
            CloudError::NoSource {
                kind,
                id: id(),
                request_id: None,
            },
        ),
        (
            "",
            CloudError::SourceTooLarge {
                kind,
                id: id(),
                size: size(2),
                wanted: size(1),
            },
        ),
        ("", CloudError::SourceMode { kind, id: id() }),
        (
            "",
            CloudError::Busy {
                kind: ObjectKind::Volume,
                id: "VOLUME".into(),
                status: "backing-up".into(),
                wanted: "available or in-use",
            },
        ),
        (
            "",
            CloudError::Broken {
                kind: ObjectKind::Volume,
                id: "VOLUME".into(),
                status: "error".into(),
                message: String::new(),
            },
        ),
        (
            "",
            CloudError::NotMultiattach {
                volume_type: "TYPE".into(),
            },
        ),
        ("no backend has room", expand_failed(no_room)),
        ("another reason", expand_failed("")),
        (
            "",
            CloudError::OnlineExpansion {
                volume: volume(),
                servers: vec![server()],
            },
        ),
        (
            "",
            CloudError::SnapshotExists {
                kind,
                id: id(),
                name: "NAME".into(),
                difference: "it is one of another volume".into(),
            },
        ),
        ("removed again", snapshot_failed(true)),
        ("still there", snapshot_failed(false)),
        (
            "",
            CloudError::StillNeeded {
                kind,
                id: id(),
                dependents: "volume VOLUME".into(),
                message: String::new(),
            },
        ),
        (
            "",
            CloudError::MemberOfGroup {
                snapshot: SnapshotId::new("SNAPSHOT"),
                group: "GROUP".into(),
            },
        ),
        ("", CloudError::NoBackups(failure("backup_create", Some(404)))),
        (
            "",
            CloudError::CannotRestore {
                backup: "BACKUP".into(),
                failure: failure("volume_create", Some(406)),
            },
        ),
        (
            "",
            CloudError::SnapshotRefused {
                volume: volume(),
                status: "in-use".into(),
                failure: failure("snapshot_create", Some(400)),
            },
        ),
        (
            "",
            CloudError::CannotModify {
                volume: volume(),
                reason: "there is no type TYPE".into(),
            },
        ),
        ("policy never", retype_failed(MigrationPolicy::Never)),
        ("policy on-demand", retype_failed(MigrationPolicy::OnDemand)),
        (
            "",
            CloudError::CannotGroup {
                name: "NAME".into(),
                reason: "its volumes are in several zones".into(),
            },
        ),
        (
            "",
            CloudError::OtherMembers {
                id: GroupSnapshotId::new("GROUP"),
                members: vec![SnapshotId::new("SNAPSHOT")],
            },
        ),
        (
            "",
            CloudError::AttachedDifferently {
                volume: volume(),
                server: server(),
                read_only: true,
            },
        ),
        (
            "",
            CloudError::Timeout {
                what: "create of volume VOLUME".into(),
                last_status: "creating".into(),
                last_error: String::new(),
                elapsed: Duration::from_mins(10),
            },
        ),
    ]
}
