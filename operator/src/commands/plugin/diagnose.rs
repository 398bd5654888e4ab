// SPDX-License-Identifier: Apache-2.0
//! `kubectl cinder-csi diagnose`: what is the matter with one claim, read with the rights of the user.
//!
//! The claim's own objects and events are explained by the rules of the operator. What Cinder and Nova say comes from the status of the
//! CinderCSIDriver: the operator has asked them about every operation that is overdue.

mod objects;
mod text;

use std::time::Duration;

use cinder_csi_crds::{CinderCSIDriver, CinderCSIDriverStatus, ConditionType, StuckVolume};
use cinder_operator_core::{
    clouds::CloudFacts,
    diagnosis::{Case, CloudAccess, Operation, REASONS, Suspect, diagnose},
    reasons::{CredentialsValid, Reason as _},
    resolve::health::{self, StuckSettings},
};
use csi_sources::Sources;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use serde::Serialize;
use thiserror::Error;

use crate::kubernetes::{GuardedApi, answer};

use objects::Objects;

/// The phase of a claim that does not exist any more while its PersistentVolume does.
const GONE: &str = "Deleted";
/// What condition CredentialsValid says when the cloud refuses the driver.
const REFUSALS: [CredentialsValid; 3] = [
    CredentialsValid::Unauthorized,
    CredentialsValid::Forbidden,
    CredentialsValid::Expired,
];

/// Why a claim cannot be diagnosed.
#[derive(Debug, Error)]
pub enum DiagnoseError {
    /// There is no such claim.
    #[error(
        "there is no PersistentVolumeClaim {name} in namespace {namespace}, and no PersistentVolume of one; `kubectl get pvc -A` \
         lists the claims, and -n says in which namespace to look"
    )]
    NoClaim {
        /// Where.
        namespace: String,
        /// Which.
        name: String,
    },
    /// Something that is needed cannot be read.
    #[error("cannot read {what}: {}", answer(.source))]
    Read {
        /// What.
        what: &'static str,
        /// What the API server answered.
        source: Box<kube::Error>,
    },
    /// An object could not be turned into what is needed of it.
    #[error("cannot decode an object: {0}")]
    Decode(#[from] serde_json::Error),
}

/// What was found out about a claim.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClaimReport {
    /// `namespace/name`.
    claim: String,
    /// Its phase; `Deleted` when only its PersistentVolume is still there.
    phase: String,
    /// The CSI driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    driver: Option<String>,
    /// The PersistentVolume.
    #[serde(skip_serializing_if = "Option::is_none")]
    persistent_volume: Option<String>,
    /// The volume's id in Cinder.
    #[serde(rename = "volumeID", skip_serializing_if = "Option::is_none")]
    volume_id: Option<String>,
    /// The pods that use it, with their phases and what keeps them from a node.
    pods: Vec<PodLine>,
    /// What is under way, the oldest first.
    operations: Vec<OperationLine>,
    /// What could not be looked at.
    notes: Vec<String>,
}

/// A pod that uses the claim.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodLine {
    /// Its name.
    name: String,
    /// Its phase.
    phase: String,
    /// Its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// Why it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    unscheduled: Option<String>,
}

/// An operation under way.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OperationLine {
    /// Provision, Attach, Mount, …
    operation: String,
    /// Kind and name of the object that waits.
    object: String,
    /// The node.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// Since when.
    since: Timestamp,
    /// Whether that is longer than it may take.
    is_overdue: bool,
    /// The volume's status in Cinder.
    #[serde(skip_serializing_if = "Option::is_none")]
    cinder_status: Option<String>,
    /// Why, in one word.
    reason: String,
    /// What is the matter and what to do.
    hint: String,
}

/// Finds out what is the matter with a claim.
pub(super) async fn report(client: &Client, namespace: &str, name: &str) -> Result<ClaimReport, DiagnoseError> {
    let mut notes = Vec::new();
    let mut objects = Objects::read(client, namespace, name, &mut notes).await?;
    let driver = match &objects.driver {
        Some(name) => {
            let drivers: GuardedApi<CinderCSIDriver> = GuardedApi::all(client.clone());
            let driver = optional(drivers.get_opt(name).await, "the CinderCSIDriver", &mut notes);
            if matches!(driver, Some(None)) {
                notes.push(format!(
                    "there is no CinderCSIDriver {name}: another installation serves its volumes"
                ));
            }
            driver.flatten()
        }
        None => None,
    };
    if driver.is_some() {
        notes.extend(objects.idle_parameters.take());
    }
    let limits = driver.as_ref().map_or_else(StuckSettings::default, |driver| {
        health::settings(&driver.spec.health).stuck
    });
    let now = Sources::system().now();
    let mut under_way = objects.under_way(now);
    objects::read_events(client, &mut under_way).await;
    let mut operations: Vec<OperationLine> = under_way
        .into_iter()
        .map(|suspect| explain(suspect, driver.as_ref(), &objects, &limits, now))
        .collect();
    let claim = format!("{namespace}/{name}");
    let by_operator = driver.iter().flat_map(stuck);
    operations.extend(
        by_operator
            .filter(|stuck| stuck.claim.as_ref() == Some(&claim) && objects.hides(&stuck.kind))
            .map(published),
    );
    operations.extend(objects.failed_mounts(client, namespace, &limits, now, &mut notes).await);
    operations.sort_by_key(|operation| operation.since);
    Ok(ClaimReport {
        claim,
        phase: objects.phase,
        operations,
        driver: objects.driver,
        persistent_volume: objects.volume,
        volume_id: objects.volume_id,
        pods: objects.pods,
        notes,
    })
}

fn read<T>(answer: Result<T, kube::Error>, what: &'static str) -> Result<T, DiagnoseError> {
    answer.map_err(|source| DiagnoseError::Read {
        what,
        source: Box::new(source),
    })
}

/// What may be missing; a note says so.
fn optional<T>(read: Result<T, kube::Error>, what: &str, notes: &mut Vec<String>) -> Option<T> {
    read.map_err(|error| notes.push(format!("{what} could not be read: {}", answer(&error))))
        .ok()
}

/// The operations that the operator has found to be overdue.
fn stuck(driver: &CinderCSIDriver) -> impl Iterator<Item = &StuckVolume> {
    let volumes = driver.status.iter().filter_map(|status| status.volumes.as_ref());
    volumes.flat_map(|volumes| &volumes.stuck)
}

/// Explains an operation by the claim's objects and events. The operator's cause counts where it is the more certain one: the operator has
/// asked the clouds, and may not read events.
fn explain(
    mut suspect: Suspect,
    driver: Option<&CinderCSIDriver>,
    objects: &Objects,
    limits: &StuckSettings,
    now: Timestamp,
) -> OperationLine {
    let node = suspect.case.node.clone();
    if objects.hides_node_of(&suspect.case) {
        // A node that the user may not read would count as one that does not exist.
        suspect.case.node = None;
    }
    if let Some(driver) = driver {
        complete(&mut suspect.case, driver);
    }
    let found = diagnose(&suspect);
    let limit = match found.operation {
        Operation::Provision => limits.provision,
        Operation::Attach => limits.attach,
        Operation::Detach => limits.detach,
        Operation::Delete => limits.delete,
        Operation::Resize => limits.resize,
    };
    let lasts = Duration::try_from(now.duration_since(found.since)).unwrap_or_default();
    let mut line = OperationLine {
        operation: found.operation.as_str().to_owned(),
        object: format!("{} {}", found.object.0, found.object.1),
        node,
        since: found.since,
        is_overdue: lasts >= limit,
        cinder_status: None,
        reason: found.finding.reason.to_owned(),
        hint: found.finding.hint,
    };
    let is_same = |stuck: &&StuckVolume| {
        stuck.operation == line.operation && format!("{} {}", stuck.kind, stuck.name) == line.object
    };
    if let Some(stuck) = driver.into_iter().flat_map(stuck).find(is_same) {
        line.cinder_status.clone_from(&stuck.cinder_status);
        if rank(&stuck.reason) < rank(&line.reason) {
            line.reason.clone_from(&stuck.reason);
            line.hint.clone_from(&stuck.hint);
        }
    }
    line
}

/// An operation as the operator has published it.
fn published(stuck: &StuckVolume) -> OperationLine {
    OperationLine {
        operation: stuck.operation.clone(),
        object: format!("{} {}", stuck.kind, stuck.name),
        node: stuck.node.clone(),
        since: stuck.since.0,
        is_overdue: true,
        cinder_status: stuck.cinder_status.clone(),
        reason: stuck.reason.clone(),
        hint: stuck.hint.clone(),
    }
}

/// How certain a cause is: the place of its rule.
fn rank(reason: &str) -> usize {
    let mut reasons = REASONS.iter();
    reasons.position(|known| *known == reason).unwrap_or_default()
}

/// Adds what spec and status say about controller, clouds and zones.
fn complete(case: &mut Case, driver: &CinderCSIDriver) {
    let clouds = &driver.spec.clouds;
    case.zone_map = clouds
        .iter()
        .flat_map(|cloud| cloud.availability_zone_map.clone())
        .collect();
    let Some(status) = &driver.status else { return };
    case.has_controller = status.controller.as_ref().is_none_or(|controller| controller.ready > 0);
    case.access = access(status);
    case.facts = status
        .clouds
        .iter()
        .map(|cloud| CloudFacts {
            volume_zones: cloud.volume_zones.clone(),
            ..CloudFacts::default()
        })
        .collect();
}

/// Whether the driver can work in its clouds, by the conditions.
fn access(status: &CinderCSIDriverStatus) -> CloudAccess {
    match status.condition(ConditionType::CredentialsValid) {
        Some(condition) if REFUSALS.iter().any(|reason| reason.is(condition)) => {
            CloudAccess::Refused(condition.message.clone())
        }
        Some(condition) if CredentialsValid::NotChecked.is(condition) => {
            CloudAccess::Unreachable(condition.message.clone())
        }
        _ => CloudAccess::Open,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    const DRIVER: &str = "cinder.csi.openstack.org";

    /// What `diagnose` says of claim n/c where the API server has these objects by their paths; all other lists are empty, and what is
    /// `null` is forbidden.
    async fn diagnosed(objects: &[(&str, Value)]) -> ClaimReport {
        let objects: BTreeMap<String, Value> = objects
            .iter()
            .map(|(path, object)| ((*path).to_owned(), object.clone()))
            .collect();
        let (service, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let serving = tokio::spawn(async move {
            while let Some((request, send)) = handle.next_request().await {
                let refusal = |code: u16| {
                    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": "",
                        "message": "no"})
                };
                let path = request.uri().path();
                let is_one = path
                    .rsplit('/')
                    .next()
                    .is_some_and(|name| ["c", "pv", "odd", "n1", DRIVER].contains(&name));
                let (code, answer) = match objects.get(path) {
                    Some(Value::Null) => (403, refusal(403)),
                    Some(object) => (200, object.clone()),
                    None if is_one => (404, refusal(404)),
                    None => (200, json!({"metadata": {}, "items": []})),
                };
                let response = Response::builder()
                    .status(code)
                    .body(Body::from(answer.to_string().into_bytes()));
                send.send_response(response.expect("a response"));
            }
        });
        let report = report(&Client::new(service, "n"), "n", "c").await;
        serving.abort();
        report.expect("a report")
    }

    fn bound() -> Vec<(&'static str, Value)> {
        let claim = json!({"metadata": {"namespace": "n", "name": "c", "uid": "u",
            "annotations": {"volume.kubernetes.io/storage-provisioner": DRIVER}},
            "spec": {"volumeName": "pv", "storageClassName": "odd"}, "status": {"phase": "Bound"}});
        let volume = json!({"metadata": {"name": "pv"}, "spec": {"csi": {"driver": DRIVER, "volumeHandle": "id"},
            "claimRef": {"namespace": "n", "name": "c", "uid": "u"}}, "status": {"phase": "Bound"}});
        let pod = json!({"metadata": {"namespace": "n", "name": "web", "uid": "p"}, "spec": {"nodeName": "n1", "containers": [],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]}, "status": {"phase": "Pending"}});
        let class = json!({"metadata": {"name": "odd"}, "provisioner": DRIVER, "parameters": {"tpye": "fast"}});
        vec![
            ("/api/v1/namespaces/n/persistentvolumeclaims/c", claim),
            ("/api/v1/persistentvolumes/pv", volume),
            ("/api/v1/namespaces/n/pods", json!({"metadata": {}, "items": [pod]})),
            ("/apis/storage.k8s.io/v1/storageclasses/odd", class),
        ]
    }

    #[tokio::test]
    async fn a_pod_that_waits_for_its_mount_is_told_with_what_the_kubelet_says() {
        let now = Sources::system().now().to_string();
        let event = json!({"metadata": {}, "involvedObject": {}, "reason": "FailedMount", "firstTimestamp": now,
            "lastTimestamp": now, "message": "MountVolume.MountDevice failed for volume \"pv\" : holds ext4 and xfs is asked for"});
        let mut objects = bound();
        objects.push(("/api/v1/namespaces/n/events", json!({"metadata": {}, "items": [event]})));
        let report = diagnosed(&objects).await;
        let told: Vec<_> = report
            .operations
            .iter()
            .map(|one| (one.operation.as_str(), one.object.as_str(), one.reason.as_str()))
            .collect();
        assert_eq!(told, [("Mount", "Pod web", "MountFailed")]);
        assert!(report.operations[0].hint.contains("holds ext4 and xfs"), "{report}");
        assert!(!report.to_string().contains("all is well"), "{report}");
    }

    #[tokio::test]
    async fn who_may_not_read_the_events_is_told_so() {
        let mut objects = bound();
        objects.push(("/api/v1/namespaces/n/events", Value::Null));
        let report = diagnosed(&objects).await;
        assert!(
            report
                .notes
                .iter()
                .any(|note| note.contains("the events of its pods could not be read")),
            "{report}"
        );
    }

    #[tokio::test]
    async fn parameters_of_the_class_that_the_driver_ignores_are_told() {
        let mut objects = bound();
        assert!(
            !diagnosed(&objects).await.to_string().contains("tpye"),
            "there is no such CinderCSIDriver"
        );
        let mut driver = CinderCSIDriver::new(DRIVER, cinder_csi_crds::CinderCSIDriverSpec::new(Vec::new()));
        driver.metadata.uid = Some("d".to_owned());
        objects.push((DRIVER_PATH, serde_json::to_value(&driver).expect("JSON")));
        let report = diagnosed(&objects).await;
        assert!(
            report
                .notes
                .iter()
                .any(|note| note.contains("StorageClass odd") && note.contains("tpye")),
            "{report}"
        );
    }

    const DRIVER_PATH: &str = "/apis/csi.openstack.org/v1beta1/cindercsidrivers/cinder.csi.openstack.org";
    const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";

    /// A CinderCSIDriver whose operator has found that the volume does not get to node n1.
    fn mk_driver(reason: &str) -> Value {
        let stuck = json!({"kind": "VolumeAttachment", "name": "va", "claim": "n/c", "volumeID": "id", "node": "n1",
            "operation": "Attach", "since": "2026-06-01T10:00:00Z", "reason": reason, "cinderStatus": "in-use", "hint": "of the operator"});
        json!({"apiVersion": "csi.openstack.org/v1beta1", "kind": "CinderCSIDriver", "metadata": {"name": DRIVER, "uid": "d"},
            "spec": {"clouds": [{"name": "default", "credentialsSecretRef": {"name": "s"}}]},
            "status": {"volumes": {"stuckCount": 1, "stuck": [stuck]}}})
    }

    fn waiting_for_attachment() -> Vec<(&'static str, Value)> {
        let attachment = |name: &str, volume: &str| {
            json!({"metadata": {"name": name, "creationTimestamp": "2026-06-01T10:00:00Z"},
                "spec": {"attacher": DRIVER, "nodeName": "n1", "source": {"persistentVolumeName": volume}},
                "status": {"attached": false, "attachError": {"message": "rpc error: of the driver"}}})
        };
        let attachments = json!({"metadata": {}, "items": [attachment("va", "pv"), attachment("of-another", "pv-2")]});
        let registered = json!({"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": DRIVER, "nodeID": "server-1", "topologyKeys": null}]}});
        let mut objects = bound();
        objects.extend([
            (ATTACHMENTS, attachments),
            ("/api/v1/nodes/n1", json!({"metadata": {"name": "n1"}})),
            ("/apis/storage.k8s.io/v1/csinodes/n1", registered),
        ]);
        objects
    }

    #[tokio::test]
    async fn what_cinder_and_nova_say_comes_from_the_status() {
        let mut objects = waiting_for_attachment();
        let report = diagnosed(&objects).await;
        let found = |report: &ClaimReport| {
            let lines = report.operations.iter();
            let lines = lines.map(|one| (one.object.clone(), one.reason.clone(), one.cinder_status.clone()));
            lines.collect::<Vec<_>>()
        };
        let attachment = || "VolumeAttachment va".to_owned();
        assert_eq!(
            found(&report),
            [(attachment(), "ErrorReported".to_owned(), None)],
            "{report}"
        );
        objects.push((DRIVER_PATH, mk_driver("AttachedToGoneServer")));
        let report = diagnosed(&objects).await;
        let expected = [(
            attachment(),
            "AttachedToGoneServer".to_owned(),
            Some("in-use".to_owned()),
        )];
        assert_eq!(found(&report), expected, "{report}");
        assert_eq!(report.operations[0].hint, "of the operator");
        // The operator may not read events, and says so.
        objects.push((DRIVER_PATH, mk_driver("Unexplained")));
        let report = diagnosed(&objects).await;
        assert_eq!(report.operations[0].hint, "rpc error: of the driver", "{report}");
    }

    #[tokio::test]
    async fn what_the_user_may_not_read_comes_from_the_status_too() {
        let mut objects = waiting_for_attachment();
        objects.extend([(ATTACHMENTS, Value::Null), (DRIVER_PATH, mk_driver("NodeGone"))]);
        let report = diagnosed(&objects).await;
        let line = &report.operations[0];
        assert_eq!(
            (line.object.as_str(), line.reason.as_str()),
            ("VolumeAttachment va", "NodeGone")
        );
        assert!(line.is_overdue && report.operations.len() == 1, "{report}");
        assert!(
            report
                .to_string()
                .contains("the VolumeAttachments could not be read: no"),
            "{report}"
        );
    }

    #[tokio::test]
    async fn a_finding_about_an_operation_that_has_ended_meanwhile_is_left_out() {
        let mut objects = bound();
        objects.push((DRIVER_PATH, mk_driver("NodeGone")));
        let report = diagnosed(&objects).await;
        assert!(report.operations.is_empty(), "{report}");
    }

    #[tokio::test]
    async fn a_node_that_the_user_may_not_read_counts_as_unknown_and_not_as_gone() {
        let mut objects = waiting_for_attachment();
        objects.push(("/api/v1/nodes/n1", Value::Null));
        let report = diagnosed(&objects).await;
        assert_eq!(report.operations[0].reason, "ErrorReported", "{report}");
        assert_eq!(report.operations[0].node.as_deref(), Some("n1"));
    }

    #[test]
    fn what_the_operator_found_goes_before_less_certain_causes_only() {
        assert!(rank("ZoneConflict") < rank("RequestRefused"));
        assert!(rank("ErrorReported") < rank("Unexplained"));
        assert!(rank("OfALaterVersion") < rank("Unexplained"));
    }
}
