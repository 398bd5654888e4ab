//! What the operator remembers of the cluster: nodes, registrations, volumes and attachments, each stripped to the few
//! words that decisions need. A cluster with ten thousand volumes costs a few megabytes.
//!
//! The index is fed by watches (see [`super::watches`]) and is a cache: decisions that cannot be taken back ask the API
//! server again.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume},
    storage::v1::{CSINode, VolumeAttachment},
};
use kube::{Resource, api::ObjectMeta};
use serde::Deserialize;

use super::nodes::{NodeFacts, taint_facts};

/// A PersistentVolume, as far as it matters.
#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = PersistentVolume)]
pub(crate) struct VolumeObject {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: VolumeSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct VolumeSpec {
    csi: Option<CsiSource>,
}

#[derive(Debug, Clone, Deserialize)]
struct CsiSource {
    driver: String,
}

/// A VolumeAttachment, as far as it matters.
#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = VolumeAttachment)]
pub(crate) struct AttachmentObject {
    metadata: ObjectMeta,
    spec: AttachmentSpec,
}

#[derive(Debug, Clone, Deserialize)]
struct AttachmentSpec {
    attacher: String,
}

/// A CSINode, as far as it matters.
#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = CSINode)]
pub(crate) struct RegistrationObject {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: RegistrationSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct RegistrationSpec {
    /// The API server writes an empty list as null here.
    drivers: Option<Vec<RegisteredDriver>>,
}

#[derive(Debug, Clone, Deserialize)]
struct RegisteredDriver {
    name: String,
}

/// Turns a watched object into what the index keeps of it.
pub(crate) trait Fact: Resource<DynamicType = ()> {
    /// What is kept.
    type Kept: PartialEq + Clone + Send + 'static;

    /// `None` when the object is of no interest.
    fn keep(&self) -> Option<Self::Kept>;

    /// The drivers that a change of this fact concerns.
    fn concerns(kept: &Self::Kept) -> Concerns;

    /// Where facts of this kind live in the index.
    fn table(index: &mut Index) -> &mut HashMap<String, Self::Kept>;
}

/// Whom a change concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Concerns {
    /// Every driver.
    All,
    /// The drivers of these names.
    Drivers(BTreeSet<String>),
}

impl Concerns {
    /// Both together.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Drivers(mut one), Self::Drivers(other)) => {
                one.extend(other);
                Self::Drivers(one)
            }
            _ => Self::All,
        }
    }

    /// Whether nobody is concerned.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Drivers(names) if names.is_empty())
    }
}

impl Default for Concerns {
    fn default() -> Self {
        Self::Drivers(BTreeSet::new())
    }
}

impl Fact for VolumeObject {
    type Kept = String;

    fn keep(&self) -> Option<String> {
        self.spec.csi.as_ref().map(|csi| csi.driver.clone())
    }

    fn concerns(driver: &String) -> Concerns {
        Concerns::Drivers(BTreeSet::from([driver.clone()]))
    }

    fn table(index: &mut Index) -> &mut HashMap<String, String> {
        &mut index.volumes
    }
}

impl Fact for AttachmentObject {
    type Kept = String;

    fn keep(&self) -> Option<String> {
        Some(self.spec.attacher.clone())
    }

    fn concerns(driver: &String) -> Concerns {
        Concerns::Drivers(BTreeSet::from([driver.clone()]))
    }

    fn table(index: &mut Index) -> &mut HashMap<String, String> {
        &mut index.attachments
    }
}

impl Fact for RegistrationObject {
    type Kept = BTreeSet<String>;

    fn keep(&self) -> Option<BTreeSet<String>> {
        Some(
            self.spec
                .drivers
                .iter()
                .flatten()
                .map(|driver| driver.name.clone())
                .collect(),
        )
    }

    fn concerns(drivers: &BTreeSet<String>) -> Concerns {
        Concerns::Drivers(drivers.clone())
    }

    fn table(index: &mut Index) -> &mut HashMap<String, BTreeSet<String>> {
        &mut index.registrations
    }
}

/// A Node, as far as it matters.
#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = Node)]
pub(crate) struct NodeObject {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct NodeSpec {
    taints: Option<Vec<k8s_openapi::api::core::v1::Taint>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct NodeStatus {
    conditions: Option<Vec<NodeCondition>>,
}

#[derive(Debug, Clone, Deserialize)]
struct NodeCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

impl Fact for NodeObject {
    type Kept = NodeFacts;

    fn keep(&self) -> Option<NodeFacts> {
        Some(NodeFacts {
            name: self.metadata.name.clone().unwrap_or_default(),
            labels: self.metadata.labels.clone().unwrap_or_default(),
            taints: self.spec.taints.iter().flatten().map(taint_facts).collect(),
            ready: self
                .status
                .conditions
                .iter()
                .flatten()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True"),
        })
    }

    fn concerns(_: &NodeFacts) -> Concerns {
        Concerns::All
    }

    fn table(index: &mut Index) -> &mut HashMap<String, NodeFacts> {
        &mut index.nodes
    }
}

/// The facts, by the names of the objects.
#[derive(Debug, Default)]
pub struct Index {
    nodes: HashMap<String, NodeFacts>,
    registrations: HashMap<String, BTreeSet<String>>,
    volumes: HashMap<String, String>,
    attachments: HashMap<String, String>,
}

impl Index {
    /// Takes an object in; says whom that concerns, which is nobody when nothing changed.
    pub(crate) fn put<K: Fact>(&mut self, object: &K) -> Concerns {
        let name = object.meta().name.clone().unwrap_or_default();
        let Some(kept) = object.keep() else {
            return self.remove::<K>(&name);
        };
        let now = K::concerns(&kept);
        match K::table(self).insert(name, kept.clone()) {
            Some(old) if old == kept => Concerns::default(),
            Some(old) => now.and(K::concerns(&old)),
            None => now,
        }
    }

    /// Forgets an object; says whom that concerns.
    pub(crate) fn remove<K: Fact>(&mut self, name: &str) -> Concerns {
        K::table(self)
            .remove(name)
            .map(|old| K::concerns(&old))
            .unwrap_or_default()
    }

    /// Forgets all objects of a kind but `names`: what a fresh list did not bring is gone.
    pub(crate) fn retain<K: Fact>(&mut self, names: &BTreeSet<String>) -> Concerns {
        let table = K::table(self);
        let gone: Vec<String> = table.keys().filter(|name| !names.contains(*name)).cloned().collect();
        gone.iter().fold(Concerns::default(), |concerned, name| {
            concerned.and(self.remove::<K>(name))
        })
    }

    /// All nodes.
    pub fn nodes(&self) -> Vec<NodeFacts> {
        self.nodes.values().cloned().collect()
    }

    /// The nodes whose kubelet has the driver registered.
    pub fn registered_on(&self, driver: &str) -> BTreeSet<String> {
        let has = |(node, drivers): (&String, &BTreeSet<String>)| drivers.contains(driver).then(|| node.clone());
        self.registrations.iter().filter_map(has).collect()
    }

    /// The nodes whose kubelet has the driver registered, Ready ones first and the others second, each sorted.
    pub fn registered_by_readiness(&self, driver: &str) -> (Vec<String>, Vec<String>) {
        let is_ready = |name: &String| self.nodes.get(name).is_some_and(|node| node.ready);
        self.registered_on(driver).into_iter().partition(is_ready)
    }

    /// The PersistentVolumes of the driver, sorted.
    pub fn volumes_of(&self, driver: &str) -> Vec<String> {
        names_of(&self.volumes, driver)
    }

    /// The VolumeAttachments of the driver, sorted.
    pub fn attachments_of(&self, driver: &str) -> Vec<String> {
        names_of(&self.attachments, driver)
    }
}

fn names_of(table: &HashMap<String, String>, driver: &str) -> Vec<String> {
    let mut names: Vec<String> = table
        .iter()
        .filter(|(_, owner)| *owner == driver)
        .map(|(name, _)| name.clone())
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn mk<K: serde::de::DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).expect("an object")
    }

    fn mk_volume(name: &str, driver: &str) -> VolumeObject {
        mk(json!({"metadata": {"name": name}, "spec": {"csi": {"driver": driver, "volumeHandle": "h"}}}))
    }

    fn concerned(names: &[&str]) -> Concerns {
        Concerns::Drivers(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn a_volume_concerns_its_driver_once_and_again_when_it_goes() {
        let mut index = Index::default();
        assert_eq!(index.put(&mk_volume("pv1", "a")), concerned(&["a"]));
        assert!(index.put(&mk_volume("pv1", "a")).is_empty());
        assert_eq!(index.volumes_of("a"), ["pv1"]);
        assert_eq!(index.remove::<VolumeObject>("pv1"), concerned(&["a"]));
        assert!(index.volumes_of("a").is_empty());
    }

    #[test]
    fn volumes_of_other_kinds_are_not_kept() {
        let mut index = Index::default();
        let local: VolumeObject = mk(json!({"metadata": {"name": "pv1"}, "spec": {"hostPath": {"path": "/x"}}}));
        assert!(index.put(&local).is_empty());
        assert_eq!(index.volumes.len(), 0);
    }

    #[test]
    fn what_a_fresh_list_does_not_bring_is_gone() {
        let mut index = Index::default();
        index.put(&mk_volume("pv1", "a"));
        index.put(&mk_volume("pv2", "b"));
        assert_eq!(
            index.retain::<VolumeObject>(&["pv2".to_owned()].into()),
            concerned(&["a"])
        );
        assert!(index.volumes_of("a").is_empty() && index.volumes_of("b") == ["pv2"]);
    }

    #[test]
    fn a_registration_that_goes_concerns_the_driver_that_lost_it() {
        let mut index = Index::default();
        let both: RegistrationObject =
            mk(json!({"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": "a"}, {"name": "b"}]}}));
        let one: RegistrationObject = mk(json!({"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": "b"}]}}));
        index.put(&both);
        assert_eq!(index.registered_on("a"), ["n1".to_owned()].into());
        assert_eq!(index.put(&one), concerned(&["a", "b"]));
        assert!(index.registered_on("a").is_empty());
    }

    #[test]
    fn a_node_whose_last_driver_went_has_null_for_an_empty_list() {
        let mut index = Index::default();
        index.put(&mk::<RegistrationObject>(
            json!({"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": "a"}]}}),
        ));
        let emptied = mk::<RegistrationObject>(json!({"metadata": {"name": "n1"}, "spec": {"drivers": null}}));
        assert_eq!(index.put(&emptied), concerned(&["a"]));
        assert!(index.registered_on("a").is_empty());
    }

    #[test]
    fn a_heartbeat_of_a_node_concerns_nobody() {
        let mut index = Index::default();
        let node = |beat: &str, ready: &str| -> NodeObject {
            mk(json!({"metadata": {"name": "n1", "labels": {"zone": "a"}}, "spec": {},
                "status": {"conditions": [{"type": "Ready", "status": ready, "lastHeartbeatTime": beat}]}}))
        };
        assert_eq!(index.put(&node("1", "True")), Concerns::All);
        assert!(index.put(&node("2", "True")).is_empty());
        assert_eq!(index.put(&node("3", "False")), Concerns::All);
    }
}
