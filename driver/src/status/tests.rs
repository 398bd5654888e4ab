// SPDX-License-Identifier: Apache-2.0
//! The gRPC code of each error, line by line.

use cinder_cloud::{EndpointProblem, Failure, GroupSnapshotId, ServerId, VolumeId};
use rstest::rstest;

use super::*;

mod codes;

fn failure(operation: &'static str, status: Option<u16>) -> Failure {
    Failure {
        operation,
        object: "volume VOLUME".into(),
        status,
        fault: "THE FAULT".into(),
        request_id: Some("req-1".into()),
        elapsed: Duration::from_millis(1500),
    }
}

fn volume_failed(message: &str, removed: bool) -> CloudError {
    CloudError::VolumeFailed {
        volume: VolumeId::new("VOLUME"),
        status: "error".into(),
        message: message.into(),
        removed,
        elapsed: Duration::ZERO,
    }
}

fn retype_failed(migration: MigrationPolicy) -> CloudError {
    CloudError::RetypeFailed {
        volume: VolumeId::new("VOLUME"),
        wanted: "slow".into(),
        found: "fast".into(),
        migration,
        message: String::new(),
        elapsed: Duration::ZERO,
    }
}

fn not_found(kind: ObjectKind) -> CloudError {
    CloudError::NotFound {
        kind,
        id: "ID".into(),
        request_id: None,
    }
}

const EVERY_ACT: [CloudAction; 5] = [
    CloudAction::Create,
    CloudAction::Delete,
    CloudAction::Attach,
    CloudAction::Detach,
    CloudAction::Look,
];
const CHANGES: [CloudAction; 2] = [CloudAction::Create, CloudAction::Attach];
const OTHERS: [CloudAction; 3] = [CloudAction::Delete, CloudAction::Detach, CloudAction::Look];

#[rstest]
// Keystone 401, an expired application credential.
#[case(CloudError::Auth(failure("login", Some(401))), &EVERY_ACT, Code::Unavailable)]
#[case(CloudError::Unawaited(failure("volume_create", None)), &EVERY_ACT, Code::Unavailable)]
#[case(CloudError::Unauthenticated(failure("login", Some(401))), &[CloudAction::Create, CloudAction::Snapshot], Code::Unavailable)]
#[case(CloudError::Unauthenticated(failure("login", Some(401))), &[CloudAction::Expand, CloudAction::Modify, CloudAction::Delete, CloudAction::Attach, CloudAction::Detach, CloudAction::Look], Code::Unauthenticated)]
#[case(CloudError::NoEndpoint { service: "block-storage", region: None, interface: "public", known: String::new(), problem: EndpointProblem::Service }, &EVERY_ACT, Code::Unavailable)]
#[case(CloudError::RegionAmbiguous { interface: "public", regions: "A, B".into() }, &EVERY_ACT, Code::Unavailable)]
#[case(CloudError::Setup("no CA".into()), &EVERY_ACT, Code::Unavailable)]
// 403 by policy.
#[case(CloudError::Forbidden(failure("volume_create", Some(403))), &CHANGES, Code::Unavailable)]
#[case(CloudError::Forbidden(failure("volume_delete", Some(403))), &OTHERS, Code::PermissionDenied)]
// 413, 403 by quota.
#[case(CloudError::Quota(failure("volume_create", Some(413))), &EVERY_ACT, Code::ResourceExhausted)]
// No backend has space. After the clean-up, another zone may be tried.
#[case(volume_failed("schedule allocate volume: Could not find any available weighted backend.", true), &[CloudAction::Create], Code::ResourceExhausted)]
#[case(volume_failed("No valid host was found", true), &[CloudAction::Create], Code::ResourceExhausted)]
#[case(volume_failed("No valid host was found", false), &[CloudAction::Create], Code::Aborted)]
// Another error after the creation by this driver.
#[case(volume_failed("the backend is on fire", true), &[CloudAction::Create], Code::Internal)]
#[case(volume_failed("the backend is on fire", false), &[CloudAction::Create], Code::Aborted)]
#[case(volume_failed("", false), &[CloudAction::Delete, CloudAction::Attach, CloudAction::Detach], Code::Internal)]
// 400: final only if Cinder refused the creation itself.
#[case(CloudError::BadRequest(failure("volume_create", Some(400))), &[CloudAction::Create], Code::InvalidArgument)]
#[case(CloudError::BadRequest(failure("volume_list", Some(400))), &[CloudAction::Create], Code::Aborted)]
#[case(CloudError::BadRequest(failure("volume_attach", Some(400))), &[CloudAction::Delete, CloudAction::Attach, CloudAction::Detach, CloudAction::Look], Code::Internal)]
// 404.
#[case(not_found(ObjectKind::Volume), &[CloudAction::Delete, CloudAction::Attach, CloudAction::Detach, CloudAction::Look], Code::NotFound)]
#[case(not_found(ObjectKind::Server), &[CloudAction::Attach], Code::NotFound)]
#[case(not_found(ObjectKind::Volume), &[CloudAction::Create], Code::Aborted)]
#[case(not_found(ObjectKind::Resource), &[CloudAction::Create], Code::Unavailable)]
// 409.
#[case(CloudError::Conflict(failure("volume_attach", Some(409))), &EVERY_ACT, Code::Aborted)]
// 429, 503, no connection, TLS, DNS.
#[case(CloudError::Throttled { failure: failure("volume_get", Some(429)), retry_after: None }, &EVERY_ACT, Code::Unavailable)]
#[case(CloudError::Unreachable { failure: failure("volume_get", None), sent: true }, &EVERY_ACT, Code::Unavailable)]
#[case(CloudError::Unreachable { failure: failure("volume_get", None), sent: false }, &EVERY_ACT, Code::Unavailable)]
#[case(CloudError::Server(failure("volume_get", Some(503))), &EVERY_ACT, Code::Unavailable)]
// 500.
#[case(CloudError::Server(failure("volume_create", Some(500))), &CHANGES, Code::Unavailable)]
#[case(CloudError::Server(failure("volume_delete", Some(500))), &OTHERS, Code::Internal)]
#[case(CloudError::Decode(failure("volume_create", Some(202))), &CHANGES, Code::Unavailable)]
#[case(CloudError::Decode(failure("volume_get", Some(200))), &OTHERS, Code::Internal)]
#[case(CloudError::ResponseTooLarge(failure("volume_create", Some(202))), &CHANGES, Code::Unavailable)]
#[case(CloudError::ListIncomplete(failure("volume_list", Some(200))), &CHANGES, Code::Unavailable)]
// OpenStack did not finish.
#[case(CloudError::Timeout { what: "volume VOLUME".into(), last_status: "creating".into(), last_error: String::new(), elapsed: Duration::ZERO }, &EVERY_ACT, Code::DeadlineExceeded)]
// The tables of the RPCs.
#[case(CloudError::VolumeInUse { volume: VolumeId::new("VOLUME"), status: "in-use".into(), servers: vec![ServerId::new("s")], request_id: None }, &[CloudAction::Delete], Code::FailedPrecondition)]
#[case(CloudError::VolumeHasDependents { volume: VolumeId::new("VOLUME"), dependents: "s1 (id)".into(), failure: failure("volume_delete", Some(400)) }, &[CloudAction::Delete], Code::FailedPrecondition)]
#[case(CloudError::AttachedElsewhere { volume: VolumeId::new("VOLUME"), server: ServerId::new("s"), servers: vec![ServerId::new("t")], request_id: None }, &[CloudAction::Attach], Code::FailedPrecondition)]
#[case(CloudError::AttachFailed { volume: VolumeId::new("VOLUME"), server: ServerId::new("s"), status: "available".into(), elapsed: Duration::ZERO, request_id: None }, &[CloudAction::Attach], Code::Internal)]
#[case(CloudError::TooManyAttachments { server: ServerId::new("s"), failure: failure("volume_attach", Some(403)) }, &[CloudAction::Attach], Code::ResourceExhausted)]
#[case(CloudError::AlreadyExists { name: "n".into(), volume: VolumeId::new("VOLUME"), difference: "size".into() }, &[CloudAction::Create], Code::AlreadyExists)]
// The resizer treats a class as infeasible only after INVALID_ARGUMENT, which requires that nothing has changed.
#[case(CloudError::CannotModify { volume: VolumeId::new("VOLUME"), reason: "no such type".into() }, &[CloudAction::Modify], Code::InvalidArgument)]
#[case(CloudError::BadRequest(failure("volume_retype", Some(400))), &[CloudAction::Modify], Code::InvalidArgument)]
#[case(CloudError::BadRequest(failure("metadata_update", Some(400))), &[CloudAction::Modify], Code::Internal)]
#[case(CloudError::Quota(failure("volume_retype", Some(413))), &[CloudAction::Modify], Code::ResourceExhausted)]
#[case(retype_failed(MigrationPolicy::Never), &[CloudAction::Modify], Code::InvalidArgument)]
#[case(retype_failed(MigrationPolicy::OnDemand), &[CloudAction::Modify], Code::Internal)]
#[case(CloudError::CannotGroup { name: "g".into(), reason: "two zones".into() }, &[CloudAction::Snapshot], Code::FailedPrecondition)]
#[case(CloudError::Quota(failure("group_create", Some(413))), &[CloudAction::Snapshot], Code::ResourceExhausted)]
#[case(CloudError::OtherMembers { id: GroupSnapshotId::new("g"), members: Vec::new() }, &[CloudAction::Delete], Code::InvalidArgument)]
#[case(CloudError::AttachedDifferently { volume: VolumeId::new("VOLUME"), server: ServerId::new("s"), read_only: true }, &[CloudAction::Attach], Code::AlreadyExists)]
fn faults_map_to_expected_codes(#[case] error: CloudError, #[case] acts: &[CloudAction], #[case] expected: Code) {
    for &act in acts {
        let status = from_cloud(act, &error);
        assert_eq!(status.code(), expected, "{act:?}: {status}");
        assert!(!status.message().is_empty());
        assert!(status.details().is_empty(), "the specification wants no details");
    }
}

#[test]
fn uncertain_creation_never_has_final_code() {
    let not_final = [
        Code::Cancelled,
        Code::DeadlineExceeded,
        Code::Unavailable,
        Code::Aborted,
    ];
    let errors = [
        CloudError::Unreachable {
            failure: failure("volume_create", None),
            sent: true,
        },
        CloudError::Server(failure("volume_create", Some(500))),
        CloudError::Server(failure("volume_create", Some(599))),
        CloudError::Decode(failure("volume_create", Some(202))),
        CloudError::BadRequest(failure("volume_list", Some(400))),
        CloudError::Forbidden(failure("volume_list", Some(403))),
        not_found(ObjectKind::Resource),
        volume_failed("whatever", false),
        // The query by name, and the deletion of a failed volume of this name.
        CloudError::Quota(failure("volume_list", Some(413))),
        CloudError::VolumeInUse {
            volume: VolumeId::new("VOLUME"),
            status: "reserved".into(),
            servers: Vec::new(),
            request_id: None,
        },
        CloudError::VolumeHasDependents {
            volume: VolumeId::new("VOLUME"),
            dependents: String::new(),
            failure: failure("volume_delete", Some(400)),
        },
    ];
    for error in errors {
        let code = from_cloud(CloudAction::Create, &error).code();
        assert!(not_final.contains(&code), "{error}: {code:?}");
    }
}

#[test]
fn message_has_object_fault_time_and_request_id() {
    let status = from_cloud(
        CloudAction::Attach,
        &CloudError::Conflict(failure("volume_attach", Some(409))),
    );
    for part in ["volume VOLUME", "THE FAULT", "1.5 s", "req-1"] {
        assert!(
            status.message().contains(part),
            "{part} is missing in {}",
            status.message()
        );
    }
}

#[test]
fn failed_query_before_creation_is_not_final() {
    for (code, before) in [
        (Code::Unauthenticated, Code::Unavailable),
        (Code::PermissionDenied, Code::Unavailable),
        (Code::Internal, Code::Unavailable),
        (Code::FailedPrecondition, Code::Unavailable),
        (Code::NotFound, Code::NotFound),
        (Code::Aborted, Code::Aborted),
    ] {
        let status = before_creation(Status::new(code, "why"));
        assert_eq!((status.code(), status.message()), (before, "why"));
    }
}
