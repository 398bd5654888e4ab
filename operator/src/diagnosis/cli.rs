//! `diagnose`: what is the matter with one claim, asked with the rights of whoever runs it.
//!
//! The same engine as the operator's. What cannot be read (the driver's Secret, for instance) is left out, and the operator's own
//! words in the status of the CinderCSIDriver serve in its place.

mod clouds;
mod looked;
mod text;

use std::time::Duration;

use cinder_csi_crds::CinderCSIDriver;
use csi_sources::Sources;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client};
use serde::Serialize;
use thiserror::Error;

use super::{Operation, REASONS, Suspect, diagnose, suspects};
use crate::resolve::health::{self, StuckSettings};

use looked::Looked;

/// The phase of a claim that does not exist any more while its PersistentVolume does.
const GONE: &str = "Deleted";

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
    #[error("cannot read {what}: {source}")]
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
pub struct Report {
    /// `namespace/name`.
    pub claim: String,
    /// Its phase; `Deleted` when only its PersistentVolume is still there.
    pub phase: String,
    /// The CSI driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The PersistentVolume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume: Option<String>,
    /// The volume's id in Cinder.
    #[serde(rename = "volumeID", skip_serializing_if = "Option::is_none")]
    pub volume_id: Option<String>,
    /// The pods that use it, with their phases and what keeps them from a node.
    pub pods: Vec<PodLine>,
    /// What is under way, the oldest first.
    pub operations: Vec<OperationLine>,
    /// What could not be looked at.
    pub notes: Vec<String>,
}

/// A pod that uses the claim.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodLine {
    /// Its name.
    pub name: String,
    /// Its phase.
    pub phase: String,
    /// Its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Why it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unscheduled: Option<String>,
}

/// An operation under way.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationLine {
    /// Provision, Attach, Mount, …
    pub operation: String,
    /// Kind and name of the object that waits.
    pub object: String,
    /// The node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Since when.
    pub since: Timestamp,
    /// Whether that is longer than it may take.
    pub is_overdue: bool,
    /// The volume's status in Cinder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cinder_status: Option<String>,
    /// Why, in one word.
    pub reason: String,
    /// What is the matter and what to do.
    pub hint: String,
}

/// Finds out what is the matter with a claim. `operator_namespace` is where the driver runs.
pub async fn report(
    client: &Client,
    namespace: &str,
    name: &str,
    operator_namespace: &str,
) -> Result<Report, DiagnoseError> {
    let mut notes = Vec::new();
    let seen = Looked::new(client, namespace, name, &mut notes).await?;
    let driver = match &seen.driver {
        Some(name) => {
            let drivers: Api<CinderCSIDriver> = Api::all(client.clone());
            let driver = optional(drivers.get_opt(name).await, "the CinderCSIDriver", &mut notes);
            if matches!(driver, Some(None)) {
                notes.push(format!(
                    "there is no CinderCSIDriver {name}: its volumes are somebody else's work"
                ));
            }
            driver.flatten()
        }
        None => None,
    };
    let limits = driver.as_ref().map_or_else(StuckSettings::default, |driver| {
        health::settings(&driver.spec.health).stuck
    });
    let none = StuckSettings {
        attach: Duration::ZERO,
        detach: Duration::ZERO,
        provision: Duration::ZERO,
        delete: Duration::ZERO,
        resize: Duration::ZERO,
        ..limits
    };
    let now = Sources::system().now();
    let mut operations: Vec<OperationLine> = Vec::new();
    if let Some(name) = seen.driver.as_deref() {
        let mut under_way: Vec<Suspect> = suspects(&seen.index, name, &none, now, usize::MAX).all;
        under_way.retain(|suspect| {
            let claim = suspect.case.claim.as_ref();
            claim.is_some_and(|claim| seen.uids.contains(&claim.uid))
        });
        if !under_way.is_empty() {
            looked::ask_events(client, &mut under_way).await;
            let of = (name, driver.as_ref());
            let is_asked = clouds::ask_clouds(client, of, operator_namespace, &mut under_way, &mut notes).await;
            // Who cannot ask the clouds himself is told what the operator found.
            let by_operator = driver.as_ref().filter(|_| !is_asked);
            operations.extend(under_way.iter().map(|suspect| {
                let mut line = line(suspect, &limits, now);
                let told = by_operator.and_then(|driver| told(driver, suspect));
                if let Some(told) = told.filter(|told| rank(&told.reason) < rank(&line.reason)) {
                    line.reason.clone_from(&told.reason);
                    line.hint.clone_from(&told.hint);
                    line.cinder_status.clone_from(&told.cinder_status);
                }
                line
            }));
        }
    }
    operations.extend(seen.ask_mounts(client, namespace, &limits, now, &mut notes).await);
    operations.sort_by_key(|operation| operation.since);
    Ok(Report {
        claim: format!("{namespace}/{name}"),
        phase: seen.phase,
        operations,
        driver: seen.driver,
        persistent_volume: seen.volume,
        volume_id: seen.volume_id,
        pods: seen.pods,
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
fn optional<T>(answer: Result<T, kube::Error>, what: &str, notes: &mut Vec<String>) -> Option<T> {
    answer
        .map_err(|error| notes.push(format!("{what} could not be read: {error}")))
        .ok()
}

/// How certain a cause is: the operator may have asked the clouds, and has read no events.
fn rank(reason: &str) -> usize {
    let mut reasons = REASONS.iter();
    reasons.position(|known| *known == reason).unwrap_or_default()
}

/// What the operator has said of the same operation.
fn told<'a>(driver: &'a CinderCSIDriver, suspect: &Suspect) -> Option<&'a cinder_csi_crds::StuckVolume> {
    let volumes = driver.status.as_ref()?.volumes.as_ref()?;
    volumes.stuck.iter().find(|stuck| {
        stuck.operation == suspect.operation.as_str()
            && (stuck.kind.as_str(), stuck.name.as_str()) == (suspect.case.object.0, suspect.case.object.1.as_str())
    })
}

fn line(suspect: &Suspect, limits: &StuckSettings, now: Timestamp) -> OperationLine {
    let stuck = diagnose(suspect);
    let limit = match stuck.operation {
        Operation::Provision => limits.provision,
        Operation::Attach => limits.attach,
        Operation::Detach => limits.detach,
        Operation::Delete => limits.delete,
        Operation::Resize => limits.resize,
    };
    let lasts = Duration::try_from(now.duration_since(stuck.since)).unwrap_or_default();
    OperationLine {
        operation: stuck.operation.as_str().to_owned(),
        object: format!("{} {}", stuck.object.0, stuck.object.1),
        node: stuck.node,
        since: stuck.since,
        is_overdue: lasts >= limit,
        cinder_status: stuck.cinder_status,
        reason: stuck.finding.reason.to_owned(),
        hint: stuck.finding.hint,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;
    use crate::diagnosis::rules::UNEXPLAINED;

    const DRIVER: &str = "cinder.csi.openstack.org";

    /// What `diagnose` says of claim n/c where the API server has these objects by their paths; all other lists are empty, and what is
    /// `null` is forbidden.
    async fn diagnosed(objects: &[(&str, Value)]) -> Report {
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
                    .is_some_and(|name| ["c", "pv", "odd", DRIVER].contains(&name));
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
        let report = report(&Client::new(service, "n"), "n", "c", "cinder-csi").await;
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
        let path = "/apis/csi.openstack.org/v1alpha1/cindercsidrivers/cinder.csi.openstack.org";
        let mut driver = CinderCSIDriver::new(DRIVER, cinder_csi_crds::CinderCSIDriverSpec::new(Vec::new()));
        driver.metadata.uid = Some("d".to_owned());
        objects.push((path, serde_json::to_value(&driver).expect("JSON")));
        let report = diagnosed(&objects).await;
        assert!(
            report
                .notes
                .iter()
                .any(|note| note.contains("StorageClass odd") && note.contains("tpye")),
            "{report}"
        );
    }

    #[test]
    fn what_the_operator_found_goes_before_less_certain_causes_only() {
        assert!(rank("ZoneConflict") < rank("RequestRefused"));
        assert!(rank("ErrorReported") < rank(UNEXPLAINED));
        assert!(rank("OfALaterVersion") < rank(UNEXPLAINED));
    }
}
