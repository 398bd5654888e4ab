// SPDX-License-Identifier: Apache-2.0
//! Reports against a mocked API server.

use http::{Request, Response};
use kube::client::Body;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

type Objects = &'static [(&'static str, fn() -> Value)];

/// The report about an object of namespace n. Objects that are `null` are forbidden, and missing lists are empty.
async fn mk_report(object: &str, objects: Objects) -> Result<DiagnosisReport, PluginError> {
    let (service, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let serving = tokio::spawn(async move {
        while let Some((request, send)) = handle.next_request().await {
            let path = request.uri().path();
            let refusal = |code: u16, reason: &str| {
                let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
                    "reason": reason, "message": "no"});
                (code, body)
            };
            let object = objects.iter().find(|(known, _)| *known == path);
            let is_list = [PODS, EVENTS, DRIVERS, CLUSTER_EVENTS].contains(&path);
            let (code, answer) = match object.map(|(_, object)| object()) {
                Some(Value::Null) => refusal(403, "Forbidden"),
                Some(object) => (200, object),
                None if is_list => (200, json!({"metadata": {}, "items": []})),
                None => refusal(404, "NotFound"),
            };
            let response = Response::builder()
                .status(code)
                .body(Body::from(answer.to_string().into_bytes()));
            send.send_response(response.expect("a response"));
        }
    });
    let target = Target::parse(object, None, "n").expect("a target");
    let now = "2026-06-01T10:10:00Z".parse().expect("a time");
    let report = report(&Client::new(service, "n"), &target, "o", now).await;
    serving.abort();
    report
}

const CLAIM: &str = "/api/v1/namespaces/n/persistentvolumeclaims/c";
const PODS: &str = "/api/v1/namespaces/n/pods";
const POD: &str = "/api/v1/namespaces/n/pods/web";
const VOLUME: &str = "/api/v1/persistentvolumes/pv";
const ATTACHMENT: &str = "/apis/storage.k8s.io/v1/volumeattachments/va";
const SNAPSHOT: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/n/volumesnapshots/s";
const CONTENT: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/content";
const EVENTS: &str = "/api/v1/namespaces/n/events";
const CLUSTER_EVENTS: &str = "/api/v1/namespaces/default/events";
const DRIVERS: &str = "/apis/csi.openstack.org/v1beta1/cindercsidrivers";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/o/leases/cinder-csi-operator";

fn mk_claim() -> Value {
    json!({"metadata": {"namespace": "n", "name": "c", "uid": "u"}, "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}})
}

fn mk_volume() -> Value {
    json!({"metadata": {"name": "pv", "uid": "v"}, "spec": {"claimRef": {"namespace": "n", "name": "c"},
        "csi": {"driver": "d", "volumeHandle": "id"}}})
}

fn mk_pod() -> Value {
    json!({"metadata": {"namespace": "n", "name": "web", "uid": "p"}, "spec": {"containers": [], "volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "scratch", "ephemeral": {}}]}})
}

fn mk_attachment() -> Value {
    json!({"metadata": {"name": "va", "uid": "a"}, "spec": {"attacher": "d", "nodeName": "n1", "source":
        {"persistentVolumeName": "pv"}}, "status": {"attached": false, "attachError":
        {"time": "2026-06-01T10:05:00Z", "message": "rpc error"}}})
}

fn mk_lease() -> Value {
    json!({"metadata": {"name": "cinder-csi-operator"}, "spec": {"holderIdentity": "pod_1", "leaseDurationSeconds": 60,
        "renewTime": "2026-06-01T10:09:55.000000Z"}})
}

fn mk_drivers() -> Value {
    let stuck = |claim: &str, id: &str| {
        json!({"kind": "VolumeAttachment", "name": "va", "claim": claim, "operation": "Attach", "node": "n1", "volumeID": id,
            "since": "2026-06-01T10:00:00Z", "reason": "NodeGone", "hint": "start\u{1b} it"})
    };
    json!({"metadata": {}, "items": [{"metadata": {"name": "d"}, "spec": {"clouds": []}, "status":
        {"volumes": {"stuckCount": 2, "stuck": [stuck("n/c", "id"), stuck("n/other", "id2")]}}}]})
}

fn mk_events() -> Value {
    json!({"metadata": {}, "items": [{"metadata": {}, "type": "Warning", "reason": "FailedMount", "message": "no\nway",
        "involvedObject": {"kind": "Pod", "name": "web"}, "lastTimestamp": "2026-06-01T10:09:00Z"}]})
}

#[tokio::test]
async fn reports_findings_of_operator_and_events() {
    let report = mk_report(
        "c",
        &[
            (CLAIM, mk_claim),
            (VOLUME, mk_volume),
            (DRIVERS, mk_drivers),
            (LEASE, mk_lease),
            (EVENTS, mk_events),
        ],
    );
    let text = report.await.expect("a report").to_string();
    assert_eq!(
        text,
        "\
Claim n/c: Bound, PersistentVolume pv, volume id
Operator: running: pod leads, last renewal 2026-06-01T10:09:55Z

Attach (VolumeAttachment va, node n1)
  since:      2026-06-01T10:00:00Z
  volume:     id
  cause:      NodeGone
  what to do: start\\u{1b} it

Events
  2026-06-01T10:09:00Z Warning FailedMount, Pod web: \"no; way\"
"
    );
}

const CLUSTER: Objects = &[
    (CLAIM, mk_claim),
    (VOLUME, mk_volume),
    (POD, mk_pod),
    (ATTACHMENT, mk_attachment),
    (DRIVERS, mk_drivers),
    (SNAPSHOT, || {
        json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": {"name": "s", "uid": "s"},
            "spec": {"source": {"persistentVolumeClaimName": "c"}}, "status": {"boundVolumeSnapshotContentName": "content",
            "error": {"time": "2026-06-01T10:05:00Z", "message": "rpc error"}}})
    }),
    (CONTENT, || {
        json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent", "metadata": {"name": "content"},
            "spec": {"source": {"volumeHandle": "id"}}})
    }),
];

#[rstest]
#[case::pod("pod/web", "Pod n/web\n", "  Claim n/web-scratch: deleted\n")]
#[case::volume("pv/pv", "PersistentVolume pv\n", "cause:      NodeGone")]
#[case::attachment(
    "va/va",
    "VolumeAttachment va\n",
    "Status attachError, VolumeAttachment va: \"rpc error\""
)]
#[case::snapshot("vs/s", "VolumeSnapshot n/s\n", "Status error, VolumeSnapshot s: \"rpc error\"")]
#[tokio::test]
async fn object_leads_to_its_volume(#[case] object: &str, #[case] head: &str, #[case] part: &str) {
    let text = mk_report(object, CLUSTER).await.expect("a report").to_string();
    assert!(
        text.starts_with(&format!("{head}  Claim n/c: Bound, PersistentVolume pv, volume id\n")),
        "{text}"
    );
    let (cause, raw) = (text.find("cause:      NodeGone"), text.find("rpc error"));
    assert!(text.contains(part) && cause.is_some(), "{text}");
    assert!(raw.is_none() || cause < raw, "{text}");
}

#[tokio::test]
async fn future_event_does_not_displace_the_cause() {
    let report = mk_report(
        "c",
        &[
            (CLAIM, mk_claim),
            (VOLUME, mk_volume),
            (DRIVERS, mk_drivers),
            (LEASE, mk_lease),
            (EVENTS, || {
                let event = |time: &str, message: &str| {
                    json!({"metadata": {}, "type": "Warning", "reason": "ProvisioningFailed", "message": message,
                    "involvedObject": {"kind": "PersistentVolumeClaim", "name": "c"}, "lastTimestamp": time})
                };
                let forged = "x\nAttach (VolumeAttachment va)\n  what to do: \"nothing\", all is well";
                json!({"metadata": {}, "items": [event("2099-01-01T00:00:00Z", forged), event("2026-06-01T10:09:59Z", "second"),
                event("2026-06-01T10:09:00Z", "first")]})
            }),
        ],
    );
    let text = report.await.expect("a report").to_string();
    assert_eq!(text.matches("\n  what to do: ").count(), 1, "{text}");
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} in {text}"));
    assert!(
        at("what to do: start") < at("\"first\"") && at("\"first\"") < at("\"second\""),
        "{text}"
    );
    let forged =
        "PersistentVolumeClaim c: \"x; Attach (VolumeAttachment va);   what to do: \\\"nothing\\\", all is well\"";
    assert!(at("\"second\"") < at(forged), "{text}");
}

#[tokio::test]
async fn deleted_claim_of_stuck_operation_is_reported() {
    let report = mk_report("c", &[(DRIVERS, mk_drivers)]).await.expect("a report");
    assert_eq!((report.volumes[0].phase.as_deref(), report.stuck.len()), (None, 1));
}

#[rstest]
#[case("c", "no PersistentVolumeClaim n/c")]
#[case("pod/web", "no Pod n/web")]
#[case("va/va", "no VolumeAttachment va")]
#[tokio::test]
async fn missing_object_is_an_error(#[case] object: &str, #[case] expected: &str) {
    let error = mk_report(object, &[]).await.expect_err("nothing").to_string();
    assert!(error.contains(expected), "{error}");
}

#[tokio::test]
async fn notes_name_forbidden_objects() {
    let report = mk_report(
        "c",
        &[
            (CLAIM, mk_claim),
            (VOLUME, || Value::Null),
            (DRIVERS, || Value::Null),
            (LEASE, || Value::Null),
            (PODS, || Value::Null),
            (EVENTS, || Value::Null),
        ],
    );
    let report = report.await.expect("a report");
    assert_eq!(report.notes.len(), 4, "{report}");
    let text = report.to_string();
    assert!(
        text.contains("! Operator: unknown: Lease o/cinder-csi-operator cannot be read"),
        "{text}"
    );
    assert!(
        text.contains("The last report of the operator has no overdue operation"),
        "{text}"
    );
}

#[tokio::test]
async fn missing_lease_is_not_a_running_operator() {
    let report = mk_report("c", &[(CLAIM, mk_claim)]).await.expect("a report");
    let text = report.to_string();
    assert!(
        text.contains("! Operator: NOT RUNNING: no Lease cinder-csi-operator exists in namespace o"),
        "{text}"
    );
}
