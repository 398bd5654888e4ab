// SPDX-License-Identifier: Apache-2.0
//! The objects of one claim, as far as the user may read them.

use std::{collections::BTreeSet, time::Duration};

use cinder_operator_core::{
    class_parameters::{ClassKind, ClassParameters, unknown_parameters},
    cluster::{
        AttachmentObject, ClaimObject, Index, Indexed, NodeObject, OLD_PROVISIONER, PROVISIONER, RegistrationObject,
        SELECTED_NODE, VolumeObject,
    },
    diagnosis::{Case, MOUNT_FAILED, Operation, Suspect, suspects},
    resolve::health::StuckSettings,
};
use k8s_openapi::{
    api::{
        core::v1::{Event, Node, ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod},
        storage::v1::{CSINode, StorageClass, VolumeAttachment},
    },
    jiff::Timestamp,
};
use kube::{Client, ResourceExt, api::ListParams};
use serde::{Serialize, de::DeserializeOwned};

use super::{DiagnoseError, GONE, OperationLine, PodLine, optional, read};
use crate::kubernetes::{GuardedApi, answer};

/// The kind of the object that stands for a volume.
const VOLUME: &str = "PersistentVolume";
/// The kind of the object that stands for an attachment.
const ATTACHMENT: &str = "VolumeAttachment";

/// The namespace of events about objects without one.
const DEFAULT: &str = "default";

/// How many pods' events are read.
const MOST_PODS: usize = 10;

/// The kubelet tries again after two minutes at the latest: an older failure is over.
const STILL_FAILING: Duration = Duration::from_mins(5);

/// The objects of a claim.
#[derive(Default)]
pub(super) struct Objects {
    /// What the operator's engine explains: the objects of this claim alone.
    index: Index,
    /// The uids of the claims that it may be about: several that were deleted may have had the name.
    uids: Vec<String>,
    pub(super) phase: String,
    pub(super) driver: Option<String>,
    pub(super) volume: Option<String>,
    pub(super) volume_id: Option<String>,
    pub(super) pods: Vec<PodLine>,
    /// Says which parameters of the class do nothing where it is a class of this driver, which ignores what it does not know.
    pub(super) idle_parameters: Option<String>,
    /// Pods that have a node and do not run yet: name, uid and node.
    waiting: Vec<(String, String, String)>,
    /// The nodes that the volume is to go to or to leave.
    nodes: BTreeSet<String>,
    /// Kinds of objects that the user may not read.
    hidden: Vec<&'static str>,
    /// Nodes that the user may not read.
    hidden_nodes: BTreeSet<String>,
}

impl Objects {
    pub(super) async fn read(
        client: &Client,
        namespace: &str,
        name: &str,
        notes: &mut Vec<String>,
    ) -> Result<Self, DiagnoseError> {
        let claims: GuardedApi<PersistentVolumeClaim> = GuardedApi::namespaced(client.clone(), namespace);
        let claim = read(claims.get_opt(name).await, "the claim")?;
        let pods: GuardedApi<Pod> = GuardedApi::namespaced(client.clone(), namespace);
        let pods = pods.list_readable(&ListParams::default(), notes).await;
        let pods = optional(pods, "the pods", notes);
        let pods: Vec<Pod> = pods.into_iter().flatten().filter(|pod| uses(pod, name)).collect();
        let mut objects = Self {
            phase: GONE.to_owned(),
            pods: pods.iter().map(pod_line).collect(),
            waiting: pods.iter().filter_map(waiting).collect(),
            ..Self::default()
        };
        match &claim {
            Some(claim) => objects.of_claim(client, claim, notes).await?,
            None => objects.of_deleted(client, namespace, name, notes).await?,
        }
        objects.attachments(client, notes).await?;
        objects.machines(client, notes).await?;
        Ok(objects)
    }

    /// The operations on the claim and its volume that are under way, however short.
    pub(super) fn under_way(&self, now: Timestamp) -> Vec<Suspect> {
        let none = StuckSettings {
            attach: Duration::ZERO,
            detach: Duration::ZERO,
            provision: Duration::ZERO,
            delete: Duration::ZERO,
            resize: Duration::ZERO,
            ..StuckSettings::default()
        };
        let Some(driver) = &self.driver else {
            return Vec::new();
        };
        let mut all = suspects(&self.index, driver, &none, now, usize::MAX).all;
        all.retain(|suspect| {
            let claim = suspect.case.claim.as_ref();
            claim.is_some_and(|claim| self.uids.contains(&claim.uid))
        });
        all
    }

    /// Whether the user may not read objects of this kind.
    pub(super) fn hides(&self, kind: &str) -> bool {
        self.hidden.contains(&kind)
    }

    /// Whether the user may not read the node that a case is about.
    pub(super) fn hides_node_of(&self, case: &Case) -> bool {
        case.node.as_ref().is_some_and(|node| self.hidden_nodes.contains(node))
    }

    async fn of_claim(
        &mut self,
        client: &Client,
        claim: &PersistentVolumeClaim,
        notes: &mut Vec<String>,
    ) -> Result<(), DiagnoseError> {
        self.uids.extend(claim.uid());
        let phase = claim.status.as_ref().and_then(|status| status.phase.clone());
        self.phase = phase.unwrap_or_default();
        self.put::<ClaimObject>(claim)?;
        if claim.metadata.deletion_timestamp.is_some() {
            notes.push("the claim is being deleted, and goes once no pod uses it any more".to_owned());
        }
        let annotations = claim.annotations();
        self.nodes.extend(annotations.get(SELECTED_NODE).cloned());
        let provisioner = annotations
            .get(PROVISIONER)
            .or_else(|| annotations.get(OLD_PROVISIONER));
        self.driver = provisioner.cloned();
        let spec = claim.spec.as_ref();
        let class = spec.and_then(|spec| spec.storage_class_name.as_deref());
        let class = match class.filter(|class| !class.is_empty()) {
            Some(name) => {
                let classes: GuardedApi<StorageClass> = GuardedApi::all(client.clone());
                Some((name, classes.get_opt(name).await))
            }
            None => None,
        };
        if let Some((name, Ok(Some(class)))) = &class {
            self.idle_parameters = idle_parameters(name, class);
        }
        if let Some(name) = spec.and_then(|spec| spec.volume_name.as_ref()) {
            self.volume = Some(name.clone());
            let volumes: GuardedApi<PersistentVolume> = GuardedApi::all(client.clone());
            match optional(volumes.get_opt(name).await, "the PersistentVolume", notes) {
                Some(Some(object)) => self.put_volume(&object)?,
                Some(None) => {}
                None => self.hidden.push(VOLUME),
            }
        } else if self.driver.is_none() {
            notes.push(self.why_no_provisioner_is_asked(class));
        }
        Ok(())
    }

    /// A claim goes before its volume does.
    async fn of_deleted(
        &mut self,
        client: &Client,
        namespace: &str,
        name: &str,
        notes: &mut Vec<String>,
    ) -> Result<(), DiagnoseError> {
        let volumes: GuardedApi<PersistentVolume> = GuardedApi::all(client.clone());
        let volumes = volumes.list_readable(&ListParams::default(), notes).await;
        let volumes = read(
            volumes,
            "the PersistentVolumes; the claim does not exist, and one of them may be what is left of it",
        )?;
        for volume in volumes {
            let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
            let is_its = |claim: &&ObjectReference| {
                (claim.namespace.as_deref(), claim.name.as_deref()) == (Some(namespace), Some(name))
            };
            if let Some(claim) = claim.filter(is_its) {
                self.uids.extend(claim.uid.clone());
                self.volume = Some(volume.name_any());
                self.put_volume(&volume)?;
            }
        }
        if self.volume.is_none() {
            return Err(DiagnoseError::NoClaim {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            });
        }
        notes.push("the claim was deleted, and its PersistentVolume is still there".to_owned());
        Ok(())
    }

    /// The attachments of the volume.
    async fn attachments(&mut self, client: &Client, notes: &mut Vec<String>) -> Result<(), DiagnoseError> {
        if self.volume.is_none() {
            return Ok(());
        }
        let attachments: GuardedApi<VolumeAttachment> = GuardedApi::all(client.clone());
        let all = attachments.list_readable(&ListParams::default(), notes).await;
        let Some(all) = optional(all, "the VolumeAttachments", notes) else {
            self.hidden.push(ATTACHMENT);
            return Ok(());
        };
        for attachment in all {
            if attachment.spec.source.persistent_volume_name == self.volume {
                self.nodes.insert(attachment.spec.node_name.clone());
                self.put::<AttachmentObject>(&attachment)?;
            }
        }
        Ok(())
    }

    /// The nodes of claim and attachments, with what is registered there.
    async fn machines(&mut self, client: &Client, notes: &mut Vec<String>) -> Result<(), DiagnoseError> {
        let machines: GuardedApi<Node> = GuardedApi::all(client.clone());
        let registrations: GuardedApi<CSINode> = GuardedApi::all(client.clone());
        for name in std::mem::take(&mut self.nodes) {
            let node = optional(machines.get_opt(&name).await, &format!("Node {name}"), notes);
            let registration = optional(registrations.get_opt(&name).await, &format!("CSINode {name}"), notes);
            let (Some(node), Some(registration)) = (node, registration) else {
                self.hidden_nodes.insert(name);
                continue;
            };
            node.iter().try_for_each(|node| self.put::<NodeObject>(node))?;
            registration
                .iter()
                .try_for_each(|registration| self.put::<RegistrationObject>(registration))?;
        }
        Ok(())
    }

    fn put_volume(&mut self, volume: &PersistentVolume) -> Result<(), DiagnoseError> {
        if let Some(csi) = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()) {
            self.driver = Some(csi.driver.clone());
            self.volume_id = Some(csi.volume_handle.clone());
        }
        self.put::<VolumeObject>(volume)
    }

    fn put<K: Indexed + DeserializeOwned>(&mut self, object: &impl Serialize) -> Result<(), DiagnoseError> {
        self.index
            .put(&serde_json::from_value::<K>(serde_json::to_value(object)?)?);
        Ok(())
    }

    /// Why no provisioner has been asked for a volume.
    fn why_no_provisioner_is_asked(&mut self, class: Option<(&str, kube::Result<Option<StorageClass>>)>) -> String {
        let Some((name, class)) = class else {
            return "the claim names no StorageClass, and no class is the default: name one (`kubectl get storageclass` lists them)"
                .to_owned();
        };
        match class {
            Ok(None) => format!(
                "StorageClass {name}, which the claim names, does not exist: `kubectl get storageclass` lists those that do"
            ),
            Ok(Some(class)) => {
                let waits = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
                self.driver = Some(class.provisioner);
                match (waits, self.pods.is_empty()) {
                    (true, true) => format!(
                        "StorageClass {name} has a volume made when a pod uses the claim, and none does yet: all is well until then"
                    ),
                    (true, false) => format!(
                        "StorageClass {name} has a volume made when a pod that uses the claim gets a node, and none has got one yet: see \
                         the pod"
                    ),
                    (false, _) => format!(
                        "the kube-controller-manager has not yet asked the provisioner of StorageClass {name} for a volume"
                    ),
                }
            }
            Err(error) => format!("StorageClass {name} could not be read: {}", answer(&error)),
        }
    }

    /// The mounts that the kubelet has tried in vain, by the events of the pods that wait on their nodes.
    pub(super) async fn failed_mounts(
        &self,
        client: &Client,
        namespace: &str,
        limits: &StuckSettings,
        now: Timestamp,
        notes: &mut Vec<String>,
    ) -> Vec<OperationLine> {
        let events: GuardedApi<Event> = GuardedApi::namespaced(client.clone(), namespace);
        let mut lines = Vec::new();
        for (name, uid, node) in self.waiting.iter().take(MOST_PODS) {
            let params = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
            let events = events.list_readable(&params, notes).await;
            let Some(events) = optional(events, "the events of its pods", notes) else {
                break;
            };
            let Some((since, said)) = mount_failure(events, self.volume.as_deref(), now) else {
                continue;
            };
            let lasts = Duration::try_from(now.duration_since(since)).unwrap_or_default();
            lines.push(OperationLine {
                operation: "Mount".to_owned(),
                object: format!("Pod {name}"),
                node: Some(node.clone()),
                since,
                is_overdue: lasts >= limits.attach,
                cinder_status: None,
                reason: MOUNT_FAILED.0.to_owned(),
                hint: mount_hint(&said, node),
            });
        }
        lines
    }
}

/// Adds what the sidecars have said in events; what they say of attachments is in those.
pub(super) async fn read_events(client: &Client, suspects: &mut [Suspect]) {
    for suspect in suspects {
        let (_, name) = &suspect.case.object;
        let (namespace, name) = name.split_once('/').unwrap_or((DEFAULT, name));
        let reason = match suspect.operation {
            Operation::Provision => "ProvisioningFailed",
            Operation::Resize => "VolumeResizeFailed",
            Operation::Delete => "VolumeFailedDelete",
            Operation::Attach | Operation::Detach => {
                suspect.case.has_events = true;
                continue;
            }
        };
        let events: GuardedApi<Event> = GuardedApi::namespaced(client.clone(), namespace);
        let params = ListParams::default().fields(&format!("involvedObject.name={name},reason={reason}"));
        // A user without the right to read them is helped by the rest.
        let Ok(events) = events.list_readable(&params, &mut Vec::new()).await else {
            continue;
        };
        suspect.case.has_events = true;
        // What the claim's conditions say is about the last try.
        suspect.case.said = suspect.case.said.take().or_else(|| last(events));
    }
}

fn last(events: Vec<Event>) -> Option<String> {
    events.into_iter().max_by_key(last_seen)?.message
}

/// When an event happened last.
fn last_seen(event: &Event) -> Option<Timestamp> {
    let series = event
        .series
        .as_ref()
        .and_then(|series| series.last_observed_time.as_ref());
    let time = series.or(event.event_time.as_ref()).map(|time| time.0);
    event.last_timestamp.as_ref().map(|time| time.0).max(time)
}

/// Since when the kubelet fails to mount the volume, and what it said last. An event of the volume's own name goes before the one that
/// is about all volumes of the pod.
fn mount_failure(events: Vec<Event>, volume: Option<&str>, now: Timestamp) -> Option<(Timestamp, String)> {
    const FAILURES: [&str; 2] = ["FailedMount", "FailedMapVolume"];
    const OF_ALL: &str = "Unable to attach or mount volumes";
    let is_recent =
        |event: &Event| last_seen(event).is_some_and(|at| now.duration_since(at).unsigned_abs() <= STILL_FAILING);
    let names = |event: &Event| {
        let message = event.message.as_deref().unwrap_or_default();
        let is_own = volume.is_some_and(|volume| message.contains(&format!("\"{volume}\"")));
        (is_own || message.contains(OF_ALL)).then_some(is_own)
    };
    let failed = events
        .into_iter()
        .filter(|event| event.reason.as_deref().is_some_and(|reason| FAILURES.contains(&reason)) && is_recent(event));
    let of_volume = failed.filter_map(|event| Some((names(&event)?, event)));
    let (_, event) = of_volume.max_by_key(|(is_own, event)| (*is_own, last_seen(event)))?;
    let first = event.first_timestamp.as_ref().map(|time| time.0);
    let first = first.or(event.event_time.as_ref().map(|time| time.0));
    Some((first.or(last_seen(&event))?, event.message?))
}

/// The remedy for a mount that failed. The driver sees few processes of its node, so that the message may not name the one that uses
/// the device.
fn mount_hint(said: &str, node: &str) -> String {
    if !said.contains("is in use") {
        return format!("the kubelet says: {said}");
    }
    format!(
        "the kubelet says: {said}; on node {node}, the commands in docs/runbooks.md, \"The device of a volume stays in use\", print the \
         processes that have a mount or an open file on the device"
    )
}

/// A pod that has a node and does not run yet.
fn waiting(pod: &Pod) -> Option<(String, String, String)> {
    let phase = pod.status.as_ref()?.phase.as_deref();
    let node = pod.spec.as_ref()?.node_name.clone()?;
    (phase == Some("Pending")).then(|| (pod.name_any(), pod.uid().unwrap_or_default(), node))
}

/// Names parameters of a class that neither driver nor sidecars know.
fn idle_parameters(name: &str, class: &StorageClass) -> Option<String> {
    let class = ClassParameters {
        kind: ClassKind::StorageClass,
        name: name.to_owned(),
        uid: String::new(),
        keys: class.parameters.iter().flatten().map(|(key, _)| key.clone()).collect(),
    };
    let unknown = unknown_parameters(&[class]);
    (!unknown.is_empty()).then(|| {
        let unknown: Vec<String> = unknown.iter().map(ToString::to_string).collect();
        format!(
            "the driver does not know these parameters and ignores them: {}",
            unknown.join(", ")
        )
    })
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

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-06-01T10:10:00Z".parse().expect("a time")
    }

    /// Events as (reason, last time, message).
    fn events(all: &[(&str, &str, &str)]) -> Vec<Event> {
        let event = |(reason, at, message): &(&str, &str, &str)| {
            let event = json!({"metadata": {}, "involvedObject": {}, "reason": reason, "message": message,
                "firstTimestamp": "2026-06-01T10:00:00Z", "lastTimestamp": format!("2026-06-01T{at}Z")});
            serde_json::from_value(event).expect("an event")
        };
        all.iter().map(event).collect()
    }

    #[rstest]
    #[case::the_last_of_the_volume(
        &[("FailedMount", "10:08:00", "for volume \"pv\" : old"), ("FailedMount", "10:09:00", "for volume \"pv\" : xfs"),
            ("FailedMount", "10:09:30", "Unable to attach or mount volumes: timed out")],
        Some("for volume \"pv\" : xfs"))]
    #[case::a_raw_device(&[("FailedMapVolume", "10:09:00", "for volume \"pv\" : no")], Some("for volume \"pv\" : no"))]
    #[case::all_of_the_pod(
        &[("FailedMount", "10:09:00", "Unable to attach or mount volumes: timed out")],
        Some("Unable to attach or mount volumes: timed out"))]
    #[case::another_volume(&[("FailedMount", "10:09:00", "for volume \"pv-2\" : no")], None)]
    #[case::something_else(&[("Failed", "10:09:00", "no image for \"pv\"")], None)]
    #[case::long_ago(&[("FailedMount", "10:04:59", "for volume \"pv\" : no")], None)]
    fn why_a_pod_waits_for_its_mount_is_told_by_its_events(
        #[case] all: &[(&str, &str, &str)],
        #[case] expected: Option<&str>,
    ) {
        let since = "2026-06-01T10:00:00Z".parse().expect("a time");
        let told = mount_failure(events(all), Some("pv"), now());
        assert_eq!(told, expected.map(|words| (since, words.to_owned())));
    }

    #[rstest]
    #[case::in_use("/dev/vdb is in use: a program has it open", true)]
    #[case::other_access("the file system is in use elsewhere on this node", true)]
    #[case::other_failure("holds ext4 and xfs is asked for", false)]
    fn hint_leads_to_holder_of_device(#[case] said: &str, #[case] leads: bool) {
        let hint = mount_hint(said, "n1");
        assert!(hint.starts_with(&format!("the kubelet says: {said}")), "{hint}");
        assert_eq!(
            hint.contains("on node n1, the commands in docs/runbooks.md"),
            leads,
            "{hint}"
        );
    }

    #[rstest]
    #[case("Pending", Some("n1"), true)]
    #[case("Pending", None, false)]
    #[case("Running", Some("n1"), false)]
    fn a_pod_waits_once_it_has_a_node(#[case] phase: &str, #[case] node: Option<&str>, #[case] expected: bool) {
        let pod = json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"nodeName": node, "containers": []},
            "status": {"phase": phase}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        assert_eq!(waiting(&pod).is_some(), expected);
    }

    #[test]
    fn parameters_that_do_nothing_are_named() {
        let class = json!({"metadata": {}, "provisioner": "d", "parameters": {"tpye": "fast", "type": "fast",
            "csi.storage.k8s.io/fstype": "xfs", "fstype": "xfs", "availabilty": "nova"}});
        let class = serde_json::from_value(class).expect("a class");
        let told = idle_parameters("odd", &class).expect("a note");
        let (_, named) = told.split_once("ignores them: ").expect("their names");
        let expected = [("availabilty", "availability"), ("tpye", "type")];
        let expected = expected.map(|(key, meant)| format!("{key:?} of StorageClass odd (did you mean {meant:?}?)"));
        assert_eq!(named, expected.join(", "));
    }

    #[test]
    fn of_several_events_the_words_of_the_latest_are_told() {
        let event = |time: serde_json::Value, message: &str| {
            let mut event = json!({"metadata": {}, "involvedObject": {}, "message": message});
            event
                .as_object_mut()
                .expect("an object")
                .extend(time.as_object().expect("times").clone());
            serde_json::from_value::<Event>(event).expect("an event")
        };
        let events = vec![
            event(json!({"lastTimestamp": "2026-06-01T10:00:00Z"}), "first"),
            event(
                json!({"eventTime": "2026-06-01T10:00:00.000000Z",
                "series": {"count": 2, "lastObservedTime": "2026-06-01T10:09:00.000000Z"}}),
                "latest",
            ),
            event(json!({"eventTime": "2026-06-01T10:05:00.000000Z"}), "second"),
        ];

        assert_eq!(last(events).as_deref(), Some("latest"));
        assert_eq!(last(Vec::new()), None);
    }
}
