//! What is under way in Kubernetes, and for how long.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{Case, Operation, Suspect};
use crate::{
    observe::{
        Index,
        volumes::{AttachmentFact, ClaimFact, VolumeFact},
    },
    resolve::health::StuckSettings,
};

/// The label with a node's zone.
const ZONE_LABEL: &str = "topology.cinder.csi.openstack.org/zone";

/// The operations that have taken too long, the oldest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Suspects {
    /// They.
    pub all: Vec<Suspect>,
    /// When the next operation will have taken too long, if it is still under way then.
    pub next: Option<Duration>,
}

/// Finds the operations of a driver that are under way for longer than they may be.
pub fn suspects(index: &Index, driver: &str, limits: &StuckSettings, now: Timestamp) -> Suspects {
    let mut found = Suspects::default();
    let view = View { index, driver };
    for claim in index.claim_facts(driver) {
        if let Some(since) = claim.provisioning_since {
            found.add(Operation::Provision, since, limits.provision, now, || {
                view.of_claim(claim)
            });
        }
        if let Some(since) = claim.resizing_since {
            found.add(Operation::Resize, since, limits.resize, now, || view.of_claim(claim));
        }
    }
    for (name, attachment) in index.attachment_facts(driver) {
        let make = || view.of_attachment(name, attachment);
        match (attachment.deleted, attachment.created) {
            (Some(since), _) => found.add(Operation::Detach, since, limits.detach, now, make),
            (None, Some(since)) if !attachment.attached => {
                found.add(Operation::Attach, since, limits.attach, now, make);
            }
            _ => {}
        }
    }
    for (name, volume) in index.volume_facts(driver) {
        if let Some(since) = volume.deleting_since {
            found.add(Operation::Delete, since, limits.delete, now, || {
                view.of_volume(name, volume)
            });
        }
    }
    let order = |suspect: &Suspect| (suspect.since, suspect.case.object.clone());
    found.all.sort_by_key(order);
    found
}

impl Suspects {
    fn add(
        &mut self,
        operation: Operation,
        since: Timestamp,
        limit: Duration,
        now: Timestamp,
        case: impl FnOnce() -> Case,
    ) {
        let limit = SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX);
        let left = limit.saturating_sub(now.duration_since(since));
        if left <= SignedDuration::ZERO {
            self.all.push(Suspect {
                operation,
                since,
                case: case(),
            });
        } else if let Ok(left) = Duration::try_from(left) {
            self.next = Some(self.next.map_or(left, |next| next.min(left)));
        }
    }
}

struct View<'a> {
    index: &'a Index,
    driver: &'a str,
}

impl View<'_> {
    fn of_claim(&self, fact: &ClaimFact) -> Case {
        let volume = fact.volume.as_ref().and_then(|name| self.index.volume(name));
        let case = self.about(fact.volume.as_deref(), volume, fact.node.as_deref());
        Case {
            object: (
                "PersistentVolumeClaim",
                format!("{}/{}", fact.claim.namespace, fact.claim.name),
            ),
            claim: Some(fact.claim.clone()),
            wanted: fact.wanted,
            waits_for_node: fact.waits_for_node,
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
        let attachments: Vec<&AttachmentFact> = index.attachment_facts(driver).map(|(_, fact)| fact).collect();
        let on_node = attachments
            .iter()
            .filter(|fact| Some(fact.node.as_str()) == node)
            .count();
        let mut other_nodes: Vec<String> = attachments
            .iter()
            .filter(|fact| Some(fact.volume.as_str()) == name && Some(fact.node.as_str()) != node)
            .map(|fact| fact.node.clone())
            .collect();
        other_nodes.sort();
        other_nodes.dedup();
        Case {
            claim: volume.and_then(|volume| volume.claim.clone()),
            volume_id: volume.map(|volume| volume.handle.clone()),
            node: node.map(str::to_owned),
            node_exists: facts.is_some(),
            node_ready: facts.is_some_and(|facts| facts.ready),
            node_server: registration.map(|registration| registration.node_id.clone()),
            node_zone: facts.and_then(|facts| facts.labels.get(ZONE_LABEL).cloned()),
            node_limit: registration.and_then(|registration| Some((registration.limit?, on_node))),
            other_nodes,
            nodes_of_servers: self.nodes_of_servers(),
            is_shared: volume.is_some_and(|volume| volume.is_shared),
            is_bound: volume.is_some_and(|volume| volume.is_bound),
            has_attacher_finalizer: volume.is_some_and(|volume| volume.has_attacher_finalizer),
            has_controller: true,
            ..Case::default()
        }
    }

    fn nodes_of_servers(&self) -> BTreeMap<String, String> {
        let nodes = self.index.registered_on(self.driver).into_iter();
        nodes
            .filter_map(|node| {
                let server = self.index.registration(&node, self.driver)?.node_id.clone();
                Some((server, node))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;
    use crate::observe::{AttachmentObject, ClaimObject, Fact, NodeObject, RegistrationObject, VolumeObject};

    const DRIVER: &str = "d";

    fn put<K: Fact + serde::de::DeserializeOwned>(index: &mut Index, object: Value) {
        index.put(&serde_json::from_value::<K>(object).expect("an object"));
    }

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + minute * 60).expect("a time")
    }

    /// A node with a volume that waits to be attached since minute 0, and another attached one.
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
    fn an_attachment_is_suspect_after_its_time_and_joined_with_volume_claim_node_and_server() {
        let (index, limits) = (mk_index(), StuckSettings::default());
        let early = suspects(&index, DRIVER, &limits, at(3));
        assert_eq!((early.all.len(), early.next), (0, Some(Duration::from_mins(2))));
        let late = suspects(&index, DRIVER, &limits, at(5));
        assert_eq!((late.all.len(), late.next), (1, None));
        let Suspect { operation, since, case } = &late.all[0];
        assert_eq!((*operation, *since), (Operation::Attach, at(0)));
        assert_eq!(case.object, ("VolumeAttachment", "va-pv1".to_owned()));
        assert_eq!(case.volume_id.as_deref(), Some("id-pv1"));
        assert_eq!(case.node_limit, Some((2, 2)));
        assert_eq!(case.node_zone.as_deref(), Some("east"));
        assert_eq!(
            case.nodes_of_servers,
            BTreeMap::from([("server-1".to_owned(), "n1".to_owned())])
        );
        assert!(case.node_exists && case.node_ready && case.said.as_deref() == Some("no"));
        assert_eq!(suspects(&index, "another", &limits, at(60)), Suspects::default());
    }

    #[test]
    fn claims_and_volumes_are_suspects_by_their_own_times() {
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
            let found = suspects(&index, DRIVER, &StuckSettings::default(), at(minute));
            let mut operations: Vec<Operation> = found.all.iter().map(|suspect| suspect.operation).collect();
            operations.sort();
            operations
        };
        assert_eq!(operations(9), []);
        assert_eq!(operations(10), [Operation::Provision]);
        assert_eq!(operations(15), [Operation::Provision, Operation::Delete]);
    }
}
