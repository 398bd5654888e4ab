// SPDX-License-Identifier: Apache-2.0

use std::{collections::BTreeMap, sync::Arc};

use cinder_cloud::{Server, ServerId, Volume};
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::{
    clouds::{CloudFacts, QuotaFact},
    cluster::ClaimRef,
    diagnosis::{CloudAccess, CloudAnswer},
};

const VOLUME: &str = "33333333-2222-4333-8444-555555555555";
const MINE: &str = "11111111-2222-4333-8444-555555555555";
const OTHER: &str = "22222222-2222-4333-8444-555555555555";

fn volume(status: &str, servers: &[&str]) -> CloudAnswer<Volume> {
    let attachments: Vec<Value> = servers
        .iter()
        .map(|id| json!({"server_id": id, "device": "/dev/vdb"}))
        .collect();
    let volume = json!({"id": VOLUME, "name": "pvc", "size": 1, "status": status, "attachments": attachments,
        "availability_zone": "east", "multiattach": false, "metadata": {}});
    CloudAnswer::Found(serde_json::from_value(volume).expect("a volume"))
}

fn server(id: &str, status: &str) -> (ServerId, Option<Server>) {
    let server = serde_json::from_value(json!({"id": id, "name": "node", "status": status})).expect("a server");
    (ServerId::new(id), Some(server))
}

fn gone(id: &str) -> (ServerId, Option<Server>) {
    (ServerId::new(id), None)
}

/// A case in which all is well: node, server and volume are there, and nothing is known to be wrong.
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
        node_ready: true,
        node_server: matches!(operation, Attach | Detach).then(|| MINE.to_owned()),
        is_terminating: operation == Detach,
        nodes_of_servers: Arc::new(BTreeMap::from([(MINE.to_owned(), "node1".to_owned())])),
        has_controller: true,
        servers: BTreeMap::from([server(MINE, "ACTIVE")]),
        ..Case::default()
    }
}

/// One row of the table: what differs from a case in which all is well, the cause, and words of the hint.
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

fn full(case: &mut Case) {
    case.wanted = Some(5 << 30);
    case.facts = vec![CloudFacts {
        quota: vec![QuotaFact {
            resource: "gigabytes".to_owned(),
            volume_type: None,
            used: 997,
            limit: 1000,
        }],
        ..CloudFacts::default()
    }];
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
        |case| {
            case.node_exists = false;
            case.servers = BTreeMap::from([gone(MINE)]);
        },
        "NodeAndServerGone",
        &["node1", "safe to clear", VOLUME],
    ),
    row(
        Detach,
        |case| {
            case.node_exists = false;
            case.node_server = None;
            case.volume = volume("in-use", &[OTHER]);
            case.servers = BTreeMap::from([gone(OTHER)]);
        },
        "NodeAndServerGone",
        &["safe to clear"],
    ),
    row(
        Detach,
        |case| case.node_exists = false,
        "NodeGone",
        &["node1", "shut the server down"],
    ),
    row(
        Attach,
        |case| case.servers = BTreeMap::from([gone(MINE)]),
        "ServerGone",
        &[MINE, "kubectl delete node node1"],
    ),
    row(
        Attach,
        |case| case.volume = CloudAnswer::Missing,
        "VolumeGone",
        &[VOLUME, "Restore it"],
    ),
    row(
        Delete,
        |case| case.volume = volume("error_deleting", &[]),
        "InErrorState",
        &["error_deleting", "openstack volume set --state"],
    ),
    row(
        Provision,
        |case| case.volume = volume("error", &[]),
        "InErrorState",
        &["status error"],
    ),
    row(Provision, full, "QuotaExceeded", &["gigabytes", "1000", "5 GiB"]),
    row(
        Resize,
        |case| {
            full(case);
            case.volume = volume("available", &[]);
        },
        "QuotaExceeded",
        &["another 4 GiB"],
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
    row(
        Attach,
        |case| {
            case.node_zone = Some("west".to_owned());
            case.volume = volume("available", &[]);
            case.said = Some("instance and volume are not in the same availability_zone".to_owned());
        },
        "ZoneConflict",
        &["zone east", "zone west"],
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
        Attach,
        |case| {
            case.is_shared = true;
            case.volume = volume("in-use", &[OTHER]);
            case.servers.extend([server(OTHER, "ACTIVE")]);
        },
        "NotMultiattach",
        &["ReadWriteMany", "multiattach", OTHER],
    ),
    row(
        Attach,
        |case| {
            case.volume = volume("in-use", &[OTHER]);
            case.servers.extend([gone(OTHER)]);
        },
        "AttachedToGoneServer",
        &[OTHER, "nothing uses it there"],
    ),
    row(
        Attach,
        |case| {
            case.volume = volume("in-use", &[OTHER]);
            case.servers.extend([server(OTHER, "ACTIVE")]);
        },
        "AttachedToUnknownServer",
        &[OTHER, "no node of this cluster"],
    ),
    row(
        Attach,
        |case| {
            case.volume = volume("in-use", &[OTHER]);
            case.servers.extend([server(OTHER, "ACTIVE")]);
            case.nodes_of_servers = Arc::new(BTreeMap::from([(OTHER.to_owned(), "node2".to_owned())]));
            case.other_nodes = vec!["node2".to_owned()];
        },
        "AttachedToOtherNode",
        &["node node2", "stop that pod"],
    ),
    row(
        Detach,
        |case| {
            case.volume = volume("in-use", &[MINE]);
            case.servers = BTreeMap::from([server(MINE, "SHUTOFF")]);
        },
        "ServerNotActive",
        &["SHUTOFF", "node1"],
    ),
    row(
        Detach,
        |case| case.volume = volume("detaching", &[MINE]),
        "CinderBusy",
        &["detaching", "nova-compute"],
    ),
    row(
        Delete,
        |case| case.volume = volume("deleting", &[]),
        "CinderBusy",
        &["still deleting"],
    ),
    row(
        Delete,
        |case| case.volume = CloudAnswer::Missing,
        "FinalizerLeft",
        &["csi-provisioner"],
    ),
    row(
        Delete,
        |case| {
            case.volume = CloudAnswer::Missing;
            case.has_attacher_finalizer = true;
        },
        "FinalizerLeft",
        &["csi-attacher"],
    ),
    row(
        Detach,
        |case| case.volume = volume("available", &[]),
        "FinalizerLeft",
        &["csi-attacher", "VolumeAttachment it"],
    ),
    row(
        Delete,
        |case| case.volume = volume("available", &[]),
        "DeleteRefused",
        &["snapshot list"],
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
        &["no such volume type", "Change the claim"],
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
fn every_row_has_its_cause_and_a_hint_that_helps() {
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
fn every_rule_has_a_row_and_every_reason_its_meaning() {
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
fn what_nobody_was_asked_about_is_not_explained_by_guesses(#[case] operation: Operation) {
    assert_eq!(explain(operation, &mk(operation)).reason, "Unexplained");
}

#[test]
fn of_several_causes_the_one_that_holds_up_everything_is_told() {
    let mut case = mk(Delete);
    refused(&mut case);
    case.has_controller = false;
    case.volume = volume("error_deleting", &[]);
    assert_eq!(explain(Delete, &case).reason, "CredentialsRefused");
}
