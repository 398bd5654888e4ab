//! `diagnose`: what is the matter with one claim, asked with the rights of whoever runs it.
//!
//! The same engine as the operator's. What cannot be read (the driver's Secret, for instance) is left out, and the operator's own
//! words in the status of the CinderCSIDriver serve in its place.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    time::Duration,
};

use cinder_cloud::{Cloud, CloudOptions};
use cinder_csi_crds::{CinderCSIDriver, ConditionType, INSTANCE_LABEL};
use k8s_openapi::{
    api::{
        core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret},
        storage::v1::{CSINode, VolumeAttachment},
    },
    jiff::Timestamp,
};
use kube::{Api, Client, Resource, ResourceExt, api::ListParams};
use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;

use super::{CloudAccess, Operation, Suspect, ask, diagnose, suspects};
use crate::{
    clouds::{CloudState, budget::Budget, look, trouble},
    observe::{AttachmentObject, ClaimObject, Fact, Index, NodeObject, RegistrationObject, VolumeObject},
    operands::DriverCredentials,
    resolve::health::{self, StuckSettings},
    status::find,
};

/// How long one request to the cloud may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How many requests one diagnosis may make.
const BUDGET: u32 = 100;

/// Why a claim cannot be diagnosed.
#[derive(Debug, Error)]
pub enum DiagnoseError {
    /// There is no such claim.
    #[error("there is no PersistentVolumeClaim {name} in namespace {namespace}")]
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
    /// Its phase.
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
    /// Provision, Attach, …
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
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let claim = read(claims.get_opt(name).await, "the claim")?.ok_or_else(|| DiagnoseError::NoClaim {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })?;
    let seen = Looked::new(client, &claim, &mut notes).await?;
    let driver = match &seen.driver {
        Some(name) => {
            let drivers: Api<CinderCSIDriver> = Api::all(client.clone());
            optional(drivers.get_opt(name).await, "the CinderCSIDriver", &mut notes).flatten()
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
    let now = Timestamp::now();
    let uid = claim.uid().unwrap_or_default();
    let mut under_way: Vec<Suspect> = seen
        .driver
        .as_deref()
        .map(|driver| suspects(&seen.index, driver, &none, now, usize::MAX).all)
        .unwrap_or_default();
    under_way.retain(|suspect| suspect.case.claim.as_ref().is_some_and(|claim| claim.uid == uid));
    let is_asked = seen
        .ask_clouds(client, driver.as_ref(), operator_namespace, &mut under_way, &mut notes)
        .await;
    let operations = under_way.iter().map(|suspect| {
        let mut line = line(suspect, &limits, now);
        if let Some(told) = driver
            .as_ref()
            .filter(|_| !is_asked)
            .and_then(|driver| told(driver, suspect))
        {
            line.reason.clone_from(&told.reason);
            line.hint.clone_from(&told.hint);
            line.cinder_status.clone_from(&told.cinder_status);
        }
        line
    });
    Ok(Report {
        claim: format!("{namespace}/{name}"),
        phase: claim
            .status
            .as_ref()
            .and_then(|status| status.phase.clone())
            .unwrap_or_default(),
        operations: operations.collect(),
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

/// What Kubernetes says.
struct Looked {
    index: Index,
    driver: Option<String>,
    volume: Option<String>,
    volume_id: Option<String>,
    pods: Vec<PodLine>,
}

impl Looked {
    async fn new(
        client: &Client,
        claim: &PersistentVolumeClaim,
        notes: &mut Vec<String>,
    ) -> Result<Self, DiagnoseError> {
        let mut index = Index::default();
        put::<ClaimObject>(&mut index, claim)?;
        let annotations = claim.annotations();
        let provisioner = annotations
            .get("volume.kubernetes.io/storage-provisioner")
            .or_else(|| annotations.get("volume.beta.kubernetes.io/storage-provisioner"));
        let mut driver = provisioner.cloned();
        let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
        let mut volume_id = None;
        if let Some(name) = &volume {
            let volumes: Api<PersistentVolume> = Api::all(client.clone());
            if let Some(object) = optional(volumes.get_opt(name).await, "the PersistentVolume", notes).flatten() {
                let csi = object.spec.as_ref().and_then(|spec| spec.csi.as_ref());
                driver = csi.map(|csi| csi.driver.clone()).or(driver);
                volume_id = csi.map(|csi| csi.volume_handle.clone());
                put::<VolumeObject>(&mut index, &object)?;
            }
        }
        if driver.is_none() {
            notes.push(
                "no provisioner was asked for a volume yet: a class with WaitForFirstConsumer waits for a pod that uses the claim; \
                 else check the name of the claim's StorageClass"
                    .to_owned(),
            );
        }
        let attachments: Api<VolumeAttachment> = Api::all(client.clone());
        put_all::<AttachmentObject, _>(&mut index, &attachments, "VolumeAttachments", notes).await?;
        let machines: Api<Node> = Api::all(client.clone());
        put_all::<NodeObject, _>(&mut index, &machines, "Nodes", notes).await?;
        let registrations: Api<CSINode> = Api::all(client.clone());
        put_all::<RegistrationObject, _>(&mut index, &registrations, "CSINodes", notes).await?;
        let namespace = claim.namespace().unwrap_or_default();
        let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        let pods = optional(pods.list(&ListParams::default()).await, "Pods", notes);
        let pods = pods.into_iter().flatten().filter(|pod| uses(pod, &claim.name_any()));
        Ok(Self {
            index,
            driver,
            volume,
            volume_id,
            pods: pods.map(|pod| pod_line(&pod)).collect(),
        })
    }

    /// Asks the clouds, where the driver's Secret may be read; else the conditions tell what the operator knows. Says whether the
    /// clouds were asked.
    async fn ask_clouds(
        &self,
        client: &Client,
        driver: Option<&CinderCSIDriver>,
        namespace: &str,
        under_way: &mut [Suspect],
        notes: &mut Vec<String>,
    ) -> bool {
        let status = driver.and_then(|driver| driver.status.as_ref());
        let serving = status
            .and_then(|status| status.controller.as_ref())
            .map(|controller| controller.ready);
        let credentials = self.credentials(client, namespace, notes).await;
        let budget = Budget::new(BUDGET);
        let (mut clouds, mut looks) = (BTreeMap::new(), Vec::new());
        let mut zone_map = BTreeMap::new();
        for (name, part) in credentials.iter().flat_map(DriverCredentials::split) {
            let options = CloudOptions {
                request_timeout: REQUEST_TIMEOUT,
                ..CloudOptions::default()
            };
            let Some(config) = part.config() else { continue };
            zone_map.extend(config.topology.zone_map.clone());
            match Cloud::new(config, options) {
                Ok(cloud) => {
                    looks.push(look(&cloud, &budget, &CloudState::default()).await);
                    clouds.insert(name, cloud);
                }
                Err(error) => notes.push(format!("the cloud cannot be asked: {error}")),
            }
        }
        let access = if looks.is_empty() {
            status.map(access_by_conditions).unwrap_or_default()
        } else {
            access_by_looks(&looks)
        };
        let answers = ask(&clouds, &budget, under_way).await;
        for suspect in under_way {
            answers.join(suspect);
            let case = &mut suspect.case;
            case.has_controller = serving.is_none_or(|ready| ready > 0);
            case.access = access.clone();
            case.facts = looks.iter().map(|state| state.facts.clone()).collect();
            case.zone_map.clone_from(&zone_map);
        }
        !clouds.is_empty()
    }

    async fn credentials(
        &self,
        client: &Client,
        namespace: &str,
        notes: &mut Vec<String>,
    ) -> Option<DriverCredentials> {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let labels = format!("{INSTANCE_LABEL}={}", self.driver.as_ref()?);
        let found = optional(
            secrets.list(&ListParams::default().labels(&labels)).await,
            "the driver's Secret, with which the cloud could be asked,",
            notes,
        )?;
        let credentials = found.iter().find_map(DriverCredentials::from_secret);
        if credentials.is_none() {
            notes.push(format!(
                "namespace {namespace} has no Secret of the driver, with which the cloud could be asked; is it the operator's \
                 (--operator-namespace)?"
            ));
        }
        credentials
    }
}

fn access_by_looks(states: &[CloudState]) -> CloudAccess {
    let all = |is_refused: bool| {
        states.iter().all(|state| {
            let mut troubles = state.troubles.iter();
            troubles.any(|one| !is_refused || one.reason == trouble::UNAUTHORIZED)
        })
    };
    let words = || {
        let first = states.first().and_then(|state| state.troubles.first());
        first.map(|one| one.message.clone()).unwrap_or_default()
    };
    if all(true) {
        CloudAccess::Refused(words())
    } else if all(false) {
        CloudAccess::Unreachable(words())
    } else {
        CloudAccess::Open
    }
}

fn access_by_conditions(status: &cinder_csi_crds::CinderCSIDriverStatus) -> CloudAccess {
    let failed = |type_| find(status, type_).filter(|condition| condition.status == "False");
    let refused = failed(ConditionType::CredentialsValid)
        .filter(|condition| ["Unauthorized", "Forbidden", "Expired"].contains(&condition.reason.as_str()));
    match (refused, failed(ConditionType::BackendReachable)) {
        (Some(condition), _) => CloudAccess::Refused(condition.message.clone()),
        (None, Some(condition)) => CloudAccess::Unreachable(condition.message.clone()),
        (None, None) => CloudAccess::Open,
    }
}

fn put<K: Fact + DeserializeOwned>(index: &mut Index, object: &impl Serialize) -> Result<(), DiagnoseError> {
    index.put(&serde_json::from_value::<K>(serde_json::to_value(object)?)?);
    Ok(())
}

async fn put_all<K, T>(
    index: &mut Index,
    api: &Api<T>,
    what: &str,
    notes: &mut Vec<String>,
) -> Result<(), DiagnoseError>
where
    K: Fact + DeserializeOwned,
    T: Resource + Clone + fmt::Debug + Serialize + DeserializeOwned,
{
    let all = optional(api.list(&ListParams::default()).await, what, notes);
    all.into_iter()
        .flatten()
        .try_for_each(|object| put::<K>(index, &object))
}

fn uses(pod: &Pod, claim: &str) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes
        .filter_map(|volume| volume.persistent_volume_claim.as_ref())
        .any(|source| source.claim_name == claim)
}

fn pod_line(pod: &Pod) -> PodLine {
    let status = pod.status.as_ref();
    let conditions = status
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten();
    let mut unscheduled =
        conditions.filter(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    PodLine {
        name: pod.name_any(),
        phase: status.and_then(|status| status.phase.clone()).unwrap_or_default(),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        unscheduled: unscheduled.next().and_then(|condition| condition.message.clone()),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claim {}: {}", self.claim, self.phase)?;
        if let Some(volume) = &self.persistent_volume {
            write!(f, ", PersistentVolume {volume}")?;
        }
        if let Some(id) = &self.volume_id {
            write!(f, ", volume {id} in Cinder")?;
        }
        if let Some(driver) = &self.driver {
            write!(f, ", driver {driver}")?;
        }
        writeln!(f)?;
        for pod in &self.pods {
            let mut line = format!("Pod {}: {}", pod.name, pod.phase);
            if let Some(node) = &pod.node {
                write!(line, ", on node {node}")?;
            }
            if let Some(why) = &pod.unscheduled {
                write!(line, ", no node: {why}")?;
            }
            writeln!(f, "{line}")?;
        }
        if self.operations.is_empty() {
            writeln!(f, "\nNothing is under way with its volume.")?;
        }
        for operation in &self.operations {
            let node = operation.node.as_ref().map(|node| format!(", node {node}"));
            let verdict = if operation.is_overdue {
                "longer than it may take"
            } else {
                "still within the usual time"
            };
            writeln!(
                f,
                "\n{} ({}{})",
                operation.operation,
                operation.object,
                node.unwrap_or_default()
            )?;
            writeln!(f, "  since:      {:.0}, {verdict}", operation.since)?;
            if let Some(status) = &operation.cinder_status {
                writeln!(f, "  in Cinder:  {status}")?;
            }
            writeln!(f, "  cause:      {}", operation.reason)?;
            writeln!(f, "  what to do: {}", operation.hint)?;
        }
        if !self.notes.is_empty() {
            writeln!(f)?;
        }
        for note in &self.notes {
            writeln!(f, "Note: {note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk() -> Report {
        Report {
            claim: "n/data".to_owned(),
            phase: "Bound".to_owned(),
            driver: Some("d".to_owned()),
            persistent_volume: Some("pv".to_owned()),
            volume_id: Some("id".to_owned()),
            pods: vec![PodLine {
                name: "web".to_owned(),
                phase: "Pending".to_owned(),
                node: None,
                unscheduled: Some("0/2 nodes are available".to_owned()),
            }],
            operations: vec![OperationLine {
                operation: "Attach".to_owned(),
                object: "VolumeAttachment va".to_owned(),
                node: Some("n1".to_owned()),
                since: Timestamp::from_second(1_800_000_000).expect("a time"),
                is_overdue: true,
                cinder_status: Some("available".to_owned()),
                reason: "CredentialsRefused".to_owned(),
                hint: "mend the Secret".to_owned(),
            }],
            notes: vec!["a note".to_owned()],
        }
    }

    #[test]
    fn a_person_reads_what_since_when_why_and_what_to_do() {
        insta::assert_snapshot!(mk());
    }

    #[test]
    fn who_waits_for_nothing_is_told_so() {
        let report = Report {
            operations: Vec::new(),
            notes: Vec::new(),
            ..mk()
        };
        assert!(report.to_string().contains("Nothing is under way"), "{report}");
    }
}
