// SPDX-License-Identifier: Apache-2.0
//! Finds pending operations in Kubernetes and their duration.

use std::{collections::HashMap, time::Duration};

use csi_sources::UntrustedText;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::suspect::{Case, Operation, Suspect};
use crate::{
    cluster::{AttachmentFact, ClaimFact, Index, LONGEST_NAME, VolumeFact, is_object_name},
    resolve::health::StuckSettings,
};

/// Label with the zone of a node.
const ZONE_LABEL: &str = "topology.cinder.csi.openstack.org/zone";

/// Maximum number of operations to diagnose. When a whole cloud is unavailable, the oldest operations suffice to show
/// the cause.
pub const LOOKED_INTO: usize = 200;

/// Operations that exceed their limit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Suspects {
    /// The oldest of these operations.
    pub all: Vec<Suspect>,
    /// Number of the others.
    pub others: usize,
    /// Time until the next pending operation exceeds its limit.
    pub next: Option<Duration>,
}

/// Finds operations of a driver that exceed their limit, and collects the facts about at most `most` of them.
pub fn suspects(index: &Index, driver: &str, limits: &StuckSettings, now: Timestamp, most: usize) -> Suspects {
    let OverdueOperations { mut late, next, .. } = overdue(index, driver, limits, now);
    if late.is_empty() {
        return Suspects {
            next,
            ..Suspects::default()
        };
    }
    late.sort_by_key(|(operation, since, fact)| (*since, fact.name(), *operation));
    let others = late.len().saturating_sub(most);
    late.truncate(most);
    let view = NodeVolumes::new(index, driver);
    let all = late.into_iter().map(|(operation, since, fact)| Suspect {
        operation,
        since,
        case: view.of(&fact),
    });
    Suspects {
        all: all.collect(),
        others,
        next,
    }
}

/// Returns operations of a driver that exceed `limits`, unordered.
pub(super) fn overdue<'a>(
    index: &'a Index,
    driver: &'a str,
    limits: &StuckSettings,
    now: Timestamp,
) -> OverdueOperations<'a> {
    let mut operations = OverdueOperations {
        now,
        late: Vec::new(),
        next: None,
    };
    for claim in index.claim_facts(driver) {
        if let Some(since) = claim.provisioning_since {
            operations.add(Operation::Provision, since, limits.provision, Fact::Claim(claim));
        }
        if let Some(since) = claim.resizing_since {
            operations.add(Operation::Resize, since, limits.resize, Fact::Claim(claim));
        }
    }
    for (name, attachment) in index.attachment_facts(driver) {
        let fact = Fact::Attachment(name, attachment);
        match (attachment.deleted, attachment.created) {
            (Some(since), _) => operations.add(Operation::Detach, since, limits.detach, fact),
            (None, Some(since)) if !attachment.attached => {
                operations.add(Operation::Attach, since, limits.attach, fact);
            }
            _ => {}
        }
    }
    for (name, volume) in index.volume_facts(driver) {
        if let Some(since) = volume.deleting_since {
            operations.add(Operation::Delete, since, limits.delete, Fact::Volume(name, volume));
        }
    }
    operations
}

/// A pending operation.
pub(super) enum Fact<'a> {
    Claim(&'a ClaimFact),
    Attachment(&'a str, &'a AttachmentFact),
    Volume(&'a str, &'a VolumeFact),
}

impl Fact<'_> {
    pub(super) fn name(&self) -> String {
        match self {
            Self::Claim(claim) => format!("{}/{}", claim.claim.namespace, claim.claim.name),
            Self::Attachment(name, _) | Self::Volume(name, _) => (*name).to_owned(),
        }
    }

    /// Kind and name of the object of the operation.
    pub(super) fn object(&self) -> String {
        let kind = match self {
            Self::Claim(_) => "PersistentVolumeClaim",
            Self::Attachment(..) => "VolumeAttachment",
            Self::Volume(..) => "PersistentVolume",
        };
        format!("{kind} {}", self.name())
    }

    /// The last error in the status of the object.
    pub(super) fn error(&self) -> Option<&str> {
        match self {
            Self::Claim(claim) => claim.error.0.as_deref(),
            Self::Attachment(_, attachment) => attachment.error.0.as_deref(),
            Self::Volume(..) => None,
        }
    }
}

/// The overdue operations.
pub(super) struct OverdueOperations<'a> {
    now: Timestamp,
    pub(super) late: Vec<(Operation, Timestamp, Fact<'a>)>,
    /// Time until the next operation is overdue.
    pub(super) next: Option<Duration>,
}

impl<'a> OverdueOperations<'a> {
    fn add(&mut self, operation: Operation, since: Timestamp, limit: Duration, fact: Fact<'a>) {
        let limit = SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX);
        let left = limit.saturating_sub(self.now.duration_since(since));
        if left <= SignedDuration::ZERO {
            self.late.push((operation, since, fact));
        } else if let Ok(left) = Duration::try_from(left) {
            self.next = Some(self.next.map_or(left, |next| next.min(left)));
        }
    }
}

/// Returns the name of a node for messages. A tenant can write any text into the annotation of a claim.
fn shown_node(name: &str) -> String {
    if is_object_name(name) {
        return name.to_owned();
    }
    format!(
        "(invalid name {})",
        UntrustedText::with_limit(name, LONGEST_NAME).quoted()
    )
}

struct NodeVolumes<'a> {
    index: &'a Index,
    driver: &'a str,
    /// Number of volumes that are attached or pending, by node.
    on_node: HashMap<&'a str, usize>,
    /// Nodes where a volume is attached or pending, by volume.
    nodes_of: HashMap<&'a str, Vec<&'a str>>,
}

impl<'a> NodeVolumes<'a> {
    fn new(index: &'a Index, driver: &'a str) -> Self {
        let mut view = Self {
            index,
            driver,
            on_node: HashMap::new(),
            nodes_of: HashMap::new(),
        };
        for (_, fact) in index.attachment_facts(driver) {
            *view.on_node.entry(&fact.node).or_default() += 1;
            view.nodes_of.entry(&fact.volume).or_default().push(&fact.node);
        }
        view
    }

    fn of(&self, fact: &Fact<'_>) -> Case {
        match fact {
            Fact::Claim(claim) => self.of_claim(claim),
            Fact::Attachment(name, attachment) => self.of_attachment(name, attachment),
            Fact::Volume(name, volume) => self.of_volume(name, volume),
        }
    }

    fn of_claim(&self, fact: &ClaimFact) -> Case {
        let volume = fact.volume.as_ref().and_then(|name| self.index.volume(name));
        let case = self.about(fact.volume.as_deref(), volume, fact.node.as_deref());
        Case {
            object: (
                "PersistentVolumeClaim",
                format!("{}/{}", fact.claim.namespace, fact.claim.name),
            ),
            claim: Some(fact.claim.clone()),
            waits_for_node: fact.waits_for_node,
            said: fact.error.0.clone(),
            ..case
        }
    }

    fn of_attachment(&self, name: &str, fact: &AttachmentFact) -> Case {
        let volume = self.index.volume(&fact.volume);
        Case {
            object: ("VolumeAttachment", name.to_owned()),
            is_terminating: fact.deleted.is_some(),
            said: fact.error.0.clone(),
            ..self.about(Some(&fact.volume), volume, Some(&fact.node))
        }
    }

    fn of_volume(&self, name: &str, fact: &VolumeFact) -> Case {
        Case {
            object: ("PersistentVolume", name.to_owned()),
            is_terminating: fact.is_terminating,
            ..self.about(Some(name), Some(fact), None)
        }
    }

    fn about(&self, name: Option<&str>, volume: Option<&VolumeFact>, node: Option<&str>) -> Case {
        let (index, driver) = (self.index, self.driver);
        let facts = node.and_then(|node| index.node(node));
        let registration = node.and_then(|node| index.registration(node, driver));
        let on_node = node
            .and_then(|node| self.on_node.get(node))
            .copied()
            .unwrap_or_default();
        let nodes = name.and_then(|name| self.nodes_of.get(name)).into_iter().flatten();
        let mut other_nodes: Vec<String> = nodes
            .filter(|other| Some(**other) != node)
            .map(|other| (*other).to_owned())
            .collect();
        other_nodes.sort();
        other_nodes.dedup();
        Case {
            claim: volume.and_then(|volume| volume.claim.clone()),
            volume_id: volume.map(|volume| volume.handle.clone()),
            node: node.map(shown_node),
            node_exists: facts.is_some() || node.is_some_and(|node| index.is_unknown_node(node)),
            node_server: registration.map(|registration| registration.node_id.clone()),
            node_zone: facts.and_then(|facts| facts.labels.get(ZONE_LABEL).cloned()),
            node_limit: registration.and_then(|registration| Some((registration.limit?, on_node))),
            other_nodes,
            is_bound: volume.is_some_and(|volume| volume.is_bound),
            has_controller: true,
            ..Case::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::{AttachmentObject, ClaimObject, Indexed, NodeObject, RegistrationObject, VolumeObject};

    const DRIVER: &str = "d";

    fn put<K: Indexed + serde::de::DeserializeOwned>(index: &mut Index, object: Value) {
        index.put(&serde_json::from_value::<K>(object).expect("an object"));
    }

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + minute * 60).expect("a time")
    }

    /// Creates a node with one pending volume since minute 0, and one attached volume.
    fn mk_index() -> Index {
        let mut index = Index::default();
        put::<NodeObject>(
            &mut index,
            json!({"metadata": {"name": "n1", "labels": {ZONE_LABEL: "east"}},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        );
        put::<RegistrationObject>(
            &mut index,
            json!({"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": DRIVER, "nodeID": "server-1",
                "allocatable": {"count": 2}}]}}),
        );
        for name in ["pv1", "pv2"] {
            put::<VolumeObject>(
                &mut index,
                json!({"metadata": {"name": name}, "spec": {"csi": {"driver": DRIVER, "volumeHandle": format!("id-{name}")},
                    "claimRef": {"namespace": "n", "name": "c", "uid": "u"}}, "status": {"phase": "Bound"}}),
            );
            put::<AttachmentObject>(
                &mut index,
                json!({"metadata": {"name": format!("va-{name}"), "creationTimestamp": at(0).to_string()},
                    "spec": {"attacher": DRIVER, "nodeName": "n1", "source": {"persistentVolumeName": name}},
                    "status": {"attached": name == "pv2", "attachError": {"message": "no"}}}),
            );
        }
        index
    }

    #[test]
    fn overdue_attachment_is_joined_with_related_facts() {
        let (index, limits) = (mk_index(), StuckSettings::default());
        let early = suspects(&index, DRIVER, &limits, at(3), LOOKED_INTO);
        assert_eq!((early.all.len(), early.next), (0, Some(Duration::from_mins(2))));
        let late = suspects(&index, DRIVER, &limits, at(5), LOOKED_INTO);
        assert_eq!((late.all.len(), late.next), (1, None));
        let Suspect { operation, since, case } = &late.all[0];
        assert_eq!((*operation, *since), (Operation::Attach, at(0)));
        assert_eq!(case.object, ("VolumeAttachment", "va-pv1".to_owned()));
        assert_eq!(case.volume_id.as_deref(), Some("id-pv1"));
        assert_eq!(case.node_limit, Some((2, 2)));
        assert_eq!(case.node_zone.as_deref(), Some("east"));
        assert!(case.node_exists && case.said.as_deref() == Some("no"));
        assert_eq!(
            suspects(&index, "another", &limits, at(60), LOOKED_INTO),
            Suspects::default()
        );
    }

    #[test]
    fn oldest_suspects_are_diagnosed_and_all_counted() {
        let mut index = mk_index();
        for number in 0..1_000 {
            put::<AttachmentObject>(
                &mut index,
                json!({"metadata": {"name": format!("va-{number:04}"), "creationTimestamp": at(number).to_string()},
                    "spec": {"attacher": DRIVER, "nodeName": "n1", "source": {"persistentVolumeName": "pv2"}}}),
            );
        }
        let suspects = suspects(&index, DRIVER, &StuckSettings::default(), at(2_000), LOOKED_INTO);
        assert_eq!(
            (suspects.all.len(), suspects.others),
            (LOOKED_INTO, 1_001 - LOOKED_INTO)
        );
        assert!(suspects.all.iter().all(|suspect| suspect.since <= at(200)));
    }

    #[test]
    fn node_error_of_expansion_is_quoted() {
        let mut index = Index::default();
        let condition = |type_: &str, message: Value| json!({"type": type_, "status": "True", "lastTransitionTime": at(0).to_string(), "message": message});
        let conditions = [
            condition("FileSystemResizePending", Value::Null),
            condition("NodeResizeError", json!("resize2fs: no")),
        ];
        put::<ClaimObject>(
            &mut index,
            json!({"metadata": {"namespace": "n", "name": "c", "uid": "u", "creationTimestamp": at(0).to_string(),
                "annotations": {"volume.kubernetes.io/storage-provisioner": DRIVER}},
                "spec": {"resources": {"requests": {"storage": "7Ei"}}},
                "status": {"phase": "Bound", "conditions": conditions}}),
        );
        let suspects = suspects(&index, DRIVER, &StuckSettings::default(), at(60), LOOKED_INTO);
        let finding = crate::diagnosis::diagnose(&suspects.all[0]).finding;
        assert_eq!(
            (finding.reason, finding.hint.as_str()),
            (
                "ErrorReported",
                "the last error of PersistentVolumeClaim n/c is \"resize2fs: no\""
            )
        );
    }

    #[test]
    fn each_operation_has_its_own_limit() {
        let mut index = Index::default();
        put::<ClaimObject>(
            &mut index,
            json!({"metadata": {"namespace": "n", "name": "c", "uid": "u", "creationTimestamp": at(0).to_string(),
                "annotations": {"volume.kubernetes.io/storage-provisioner": DRIVER}}, "status": {"phase": "Pending"}}),
        );
        put::<VolumeObject>(
            &mut index,
            json!({"metadata": {"name": "pv"}, "spec": {"csi": {"driver": DRIVER, "volumeHandle": "h"},
                "persistentVolumeReclaimPolicy": "Delete"},
                "status": {"phase": "Released", "lastPhaseTransitionTime": at(0).to_string()}}),
        );
        let operations = |minute| {
            let suspects = suspects(&index, DRIVER, &StuckSettings::default(), at(minute), LOOKED_INTO);
            let mut operations: Vec<Operation> = suspects.all.iter().map(|suspect| suspect.operation).collect();
            operations.sort();
            operations
        };
        assert_eq!(operations(9), []);
        assert_eq!(operations(10), [Operation::Provision]);
        assert_eq!(operations(15), [Operation::Provision, Operation::Delete]);
    }
}
