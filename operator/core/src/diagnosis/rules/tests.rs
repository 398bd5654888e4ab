// SPDX-License-Identifier: Apache-2.0

use rstest::rstest;

use super::*;
use crate::{clouds::CloudFacts, cluster::ClaimRef, diagnosis::CloudAccess};

const VOLUME: &str = "33333333-2222-4333-8444-555555555555";
const MINE: &str = "11111111-2222-4333-8444-555555555555";

/// Creates a case without a fault: node, server and volume exist.
fn mk(operation: Operation) -> Case {
    let kind = match operation {
        Provision | Resize => "PersistentVolumeClaim",
        Attach | Detach => "VolumeAttachment",
        Delete => "PersistentVolume",
    };
    Case {
        object: (kind, "it".to_owned()),
        claim: Some(ClaimRef {
            namespace: "n".to_owned(),
            name: "c".to_owned(),
            uid: "u".to_owned(),
        }),
        volume_id: (operation != Provision).then(|| VOLUME.to_owned()),
        node: matches!(operation, Attach | Detach).then(|| "node1".to_owned()),
        node_exists: true,
        node_server: matches!(operation, Attach | Detach).then(|| MINE.to_owned()),
        is_terminating: operation == Detach,
        has_controller: true,
        ..Case::default()
    }
}

/// One row of the table: the difference from a case without a fault, the cause, and parts of the hint.
struct Row {
    operation: Operation,
    change: fn(&mut Case),
    reason: &'static str,
    words: &'static [&'static str],
}

const fn row(operation: Operation, change: fn(&mut Case), reason: &'static str, words: &'static [&'static str]) -> Row {
    Row {
        operation,
        change,
        reason,
        words,
    }
}

fn refused(case: &mut Case) {
    case.access = CloudAccess::Refused("HTTP 401: no".to_owned());
}

static TABLE: &[Row] = &[
    row(
        Delete,
        refused,
        "CredentialsRefused",
        &["fix the Secret", "HTTP 401", VOLUME],
    ),
    row(Provision, refused, "CredentialsRefused", &["goes on by itself"]),
    row(
        Attach,
        |case| case.said = Some("rpc error: [auth] token_create: HTTP 401".to_owned()),
        "CredentialsRefused",
        &["fix the Secret"],
    ),
    row(
        Detach,
        |case| case.access = CloudAccess::Unreachable("timed out".to_owned()),
        "CloudUnreachable",
        &["timed out"],
    ),
    row(
        Provision,
        |case| case.has_controller = false,
        "ControllerDown",
        &["Deployment"],
    ),
    row(
        Detach,
        |case| case.node_exists = false,
        "NodeGone",
        &["node1", "shut the server down"],
    ),
    row(
        Provision,
        |case| {
            case.node_zone = Some("nova-east".to_owned());
            case.facts = vec![CloudFacts {
                volume_zones: vec!["cinder-east".to_owned()],
                ..CloudFacts::default()
            }];
        },
        "ZoneConflict",
        &["nova-east", "availabilityZoneMap"],
    ),
    row(Attach, |case| case.node_server = None, "NotRegistered", &["node1"]),
    row(
        Attach,
        |case| case.node_limit = Some((2, 3)),
        "AttachLimitReached",
        &["2 volumes", "3 are wanted"],
    ),
    row(
        Delete,
        |case| case.other_nodes = vec!["node7".to_owned()],
        "StillAttached",
        &["node7", "stop the pods"],
    ),
    row(
        Delete,
        |case| (case.is_bound, case.is_terminating) = (true, true),
        "StillClaimed",
        &["claim n/c"],
    ),
    row(
        Resize,
        |case| case.waits_for_node = true,
        "WaitsForPod",
        &["start a pod"],
    ),
    row(
        Provision,
        |case| case.said = Some("rpc error: code = InvalidArgument desc = no such volume type".to_owned()),
        "RequestRefused",
        &["no such volume type", "change the claim"],
    ),
    row(
        Attach,
        |case| case.said = Some("rpc error: code = OutOfRange desc = it is too large".to_owned()),
        "RequestRefused",
        &["it is too large"],
    ),
    row(
        Provision,
        |case| case.said = Some("rpc error: code = ResourceExhausted desc = [quota] HTTP 413: too much".to_owned()),
        "QuotaExceeded",
        &["[quota] HTTP 413", "raise it"],
    ),
    row(
        Provision,
        |case| case.said = Some("rpc error: code = ResourceExhausted desc = zone mars is not among those".to_owned()),
        "RequestRefused",
        &["zone mars"],
    ),
    row(
        Provision,
        |case| {
            case.said = Some(
                "failed to provision volume with StorageClass \"c\": requested volume size 1 is less than the size 2 for the source \
                 snapshot s"
                    .to_owned(),
            );
        },
        "RequestRefused",
        &["is less than the size"],
    ),
    row(
        Provision,
        |case| {
            case.said = Some(
                "new PVC request must be greater than or equal in size to the specified PVC data source".to_owned(),
            );
        },
        "RequestRefused",
        &["must be greater than"],
    ),
    row(
        Resize,
        |case| {
            case.waits_for_node = true;
            case.said = Some("rpc error: code = Internal desc = resize2fs: no".to_owned());
        },
        "ErrorReported",
        &["resize2fs: no"],
    ),
    row(
        Provision,
        |case| case.said = Some("something odd".to_owned()),
        "ErrorReported",
        &["something odd"],
    ),
    row(Delete, |_| {}, "Unexplained", &["kubectl cinder-csi diagnose"]),
];

#[test]
fn every_row_has_expected_cause_and_hint() {
    for (number, row) in TABLE.iter().enumerate() {
        let mut case = mk(row.operation);
        (row.change)(&mut case);
        let finding = explain(row.operation, &case);
        assert_eq!(finding.reason, row.reason, "row {number}: {}", finding.hint);
        for word in row.words {
            assert!(finding.hint.contains(word), "row {number}, {word}: {}", finding.hint);
        }
    }
}

#[test]
fn every_rule_has_row_and_documentation() {
    for rule in RULES {
        assert!(TABLE.iter().any(|row| row.reason == rule.reason), "{rule:?}");
        assert!(!rule.meaning.is_empty() && !rule.operations.is_empty(), "{rule:?}");
    }
}

#[rstest]
#[case(Attach)]
#[case(Detach)]
#[case(Resize)]
#[case(Delete)]
#[case(Provision)]
fn unknown_facts_match_no_rule(#[case] operation: Operation) {
    assert_eq!(explain(operation, &mk(operation)).reason, "Unexplained");
}

#[test]
fn cause_that_blocks_all_operations_takes_precedence() {
    let mut case = mk(Delete);
    refused(&mut case);
    case.has_controller = false;
    assert_eq!(explain(Delete, &case).reason, "CredentialsRefused");
}
