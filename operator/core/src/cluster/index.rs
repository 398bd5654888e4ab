// SPDX-License-Identifier: Apache-2.0
//! Index of the cluster: nodes, registrations, volumes and attachments, reduced to the facts that decisions need. A
//! cluster with ten thousand volumes needs a few megabytes.
//!
//! Watches update the index, which is only a cache. Irreversible decisions query the API server again.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use csi_sources::UntrustedText;
use k8s_openapi::{
    api::{core::v1::Node, storage::v1::CSINode},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Resource, api::ObjectMeta};
use serde::Deserialize;

use super::{
    AttachmentFact, AttachmentObject, Blockers, ClaimFact, ClaimObject, DefaultClassMark, NodeFacts, UndecodableObject,
    VolumeFact, VolumeObject, nodes::taint_facts, pods::PodFact, storage_classes::ClassFact,
};

/// The relevant part of a CSINode.
#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = CSINode)]
pub struct RegistrationObject {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: RegistrationSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct RegistrationSpec {
    /// The API server serializes an empty list as null here.
    drivers: Option<Vec<RegisteredDriver>>,
}

#[derive(Debug, Clone, Deserialize)]
struct RegisteredDriver {
    name: String,
    #[serde(default, rename = "nodeID")]
    node_id: String,
    #[serde(default)]
    allocatable: Option<Allocatable>,
}

#[derive(Debug, Clone, Deserialize)]
struct Allocatable {
    count: Option<u32>,
}

/// A driver that a kubelet has registered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriverRegistration {
    /// Node id of the driver: the id of the server in Nova.
    pub node_id: String,
    /// Maximum number of volumes of the driver on the node.
    pub limit: Option<u32>,
}

/// Converts a watched object into the fact that the index stores.
pub trait Indexed: Resource<DynamicType = ()> {
    /// The stored fact.
    type Kept: PartialEq + Clone + Send + 'static;

    /// Effect of a change.
    const SCOPE: Scope = Scope::Whole;

    /// Returns the fact, or `None` if the object is irrelevant.
    fn keep(&self) -> Option<Self::Kept>;

    /// Returns the drivers that a change of this fact affects.
    fn affected(fact: &Self::Kept) -> Affected;

    /// The table of the index for this kind.
    fn table(index: &mut Index) -> &mut HashMap<String, Self::Kept>;
}

/// Scope of the reconcile after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The whole driver.
    Whole,
    /// Only operations on volumes, which the index reports. No object of a driver depends on them.
    Volumes,
}

/// Drivers that a change affects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Affected {
    All,
    Drivers(BTreeSet<String>),
}

impl Affected {
    /// Returns the union of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Drivers(mut one), Self::Drivers(other)) => {
                one.extend(other);
                Self::Drivers(one)
            }
            _ => Self::All,
        }
    }

    pub fn includes(&self, driver: &str) -> bool {
        match self {
            Self::All => true,
            Self::Drivers(names) => names.contains(driver),
        }
    }

    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Drivers(names) if names.is_empty())
    }
}

impl Default for Affected {
    fn default() -> Self {
        Self::Drivers(BTreeSet::new())
    }
}

/// An object that belongs to a driver.
pub trait Owned {
    fn driver(&self) -> &str;
}

impl Indexed for RegistrationObject {
    type Kept = BTreeMap<String, DriverRegistration>;

    fn keep(&self) -> Option<BTreeMap<String, DriverRegistration>> {
        let registered = |driver: &RegisteredDriver| DriverRegistration {
            node_id: driver.node_id.clone(),
            limit: driver.allocatable.as_ref().and_then(|allocatable| allocatable.count),
        };
        Some(
            self.spec
                .drivers
                .iter()
                .flatten()
                .map(|driver| (driver.name.clone(), registered(driver)))
                .collect(),
        )
    }

    fn affected(drivers: &BTreeMap<String, DriverRegistration>) -> Affected {
        Affected::Drivers(drivers.keys().cloned().collect())
    }

    fn table(index: &mut Index) -> &mut HashMap<String, BTreeMap<String, DriverRegistration>> {
        &mut index.registrations
    }
}

/// The relevant part of a Node.
#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = Node)]
pub struct NodeObject {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct NodeSpec {
    taints: Option<Vec<k8s_openapi::api::core::v1::Taint>>,
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
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
    #[serde(rename = "lastTransitionTime")]
    last_transition_time: Option<Time>,
}

impl Indexed for NodeObject {
    type Kept = NodeFacts;

    fn keep(&self) -> Option<NodeFacts> {
        let mut conditions = self.status.conditions.iter().flatten();
        let ready = conditions.find(|condition| condition.type_ == "Ready");
        let made = self.metadata.creation_timestamp.as_ref();
        let changed = ready.and_then(|ready| ready.last_transition_time.as_ref());
        Some(NodeFacts {
            name: self.metadata.name.clone().unwrap_or_default(),
            labels: self.metadata.labels.clone().unwrap_or_default(),
            server: self.spec.provider_id.as_deref().and_then(server_of),
            taints: self.spec.taints.iter().flatten().map(taint_facts).collect(),
            ready: ready.is_some_and(|ready| ready.status == "True"),
            created: made.map(|time| time.0),
            since: made.into_iter().chain(changed).map(|time| time.0).max(),
        })
    }

    fn affected(_: &NodeFacts) -> Affected {
        Affected::All
    }

    fn table(index: &mut Index) -> &mut HashMap<String, NodeFacts> {
        &mut index.nodes
    }
}

/// Number of objects of a driver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VolumeCount {
    /// Number of PersistentVolumes of the driver.
    pub volumes: usize,
    /// Number of VolumeAttachments of the driver.
    pub attachments: usize,
}

/// Facts by the names of the objects.
#[derive(Debug, Default)]
pub struct Index {
    nodes: HashMap<String, NodeFacts>,
    registrations: HashMap<String, BTreeMap<String, DriverRegistration>>,
    pub(super) volumes: HashMap<String, VolumeFact>,
    pub(super) claims: HashMap<String, ClaimFact>,
    classes: HashMap<String, ClassFact>,
    pub(super) attachments: HashMap<String, AttachmentFact>,
    pods: HashMap<String, PodFact>,
    /// Objects that do not decode: the cause, by plural name of the kind and name of the object. The last known facts
    /// about them remain valid.
    undecodable: BTreeMap<(String, String), String>,
}

impl Index {
    pub(super) fn classes(&mut self) -> &mut HashMap<String, ClassFact> {
        &mut self.classes
    }

    /// Returns the StorageClasses that are marked as the default, the oldest first.
    pub fn default_classes(&self) -> Vec<DefaultClassMark> {
        let mut marked: Vec<_> = self.classes.values().filter_map(|class| class.marked.clone()).collect();
        marked.sort();
        marked
    }

    /// Returns the number of PersistentVolumes of the driver that are restricted to some nodes.
    pub fn zoned_volumes_of(&self, driver: &str) -> usize {
        let is_zoned = |volume: &&VolumeFact| volume.driver == driver && volume.is_zoned;
        self.volumes.values().filter(is_zoned).count()
    }

    pub(super) fn pods(&mut self) -> &mut HashMap<String, PodFact> {
        &mut self.pods
    }

    pub(super) fn kept_pods(&self) -> impl Iterator<Item = &PodFact> {
        self.pods.values()
    }

    /// Stores an object, and returns the affected drivers. The result is empty if nothing changed.
    pub fn put<K: Indexed>(&mut self, object: &K) -> Affected {
        let name = key_of(object.meta());
        let Some(fact) = object.keep() else {
            return self.remove::<K>(&name);
        };
        let decodes_again = self.forget_undecodable::<K>(&name);
        let now = K::affected(&fact);
        let changed = match K::table(self).insert(name, fact.clone()) {
            Some(old) if old == fact => Affected::default(),
            Some(old) => now.and(K::affected(&old)),
            None => now,
        };
        changed.and(decodes_again)
    }

    /// Records an object that does not decode. Facts from an earlier version of it are retained.
    pub fn put_undecodable<K: Indexed>(&mut self, object: &UndecodableObject) -> Affected {
        let key = (K::plural(&()).into_owned(), key_of(&object.metadata));
        match self.undecodable.insert(key, object.reason.clone()) {
            Some(old) if old == object.reason => Affected::default(),
            _ => Affected::All,
        }
    }

    fn forget_undecodable<K: Indexed>(&mut self, name: &str) -> Affected {
        // Few objects have an entry, and this function receives every object.
        if self.undecodable.is_empty() {
            return Affected::default();
        }
        let key = (K::plural(&()).into_owned(), name.to_owned());
        match self.undecodable.remove(&key) {
            Some(_) => Affected::All,
            None => Affected::default(),
        }
    }

    /// Returns the objects that do not decode, sorted: plural name of the kind, name and cause.
    pub fn undecodable(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let all = self.undecodable.iter();
        all.map(|((kind, name), reason)| (kind.as_str(), name.as_str(), reason.as_str()))
    }

    fn undecodable_of<K: Indexed>(&self) -> impl Iterator<Item = &String> {
        let kind = K::plural(&());
        let all = self.undecodable.keys();
        all.filter_map(move |(of, name)| (*of == kind).then_some(name))
    }

    /// Returns the objects of a kind of which only the existence is known.
    fn unknown<'a, K: Indexed>(&'a self, known: &'a HashMap<String, K::Kept>) -> impl Iterator<Item = &'a String> {
        self.undecodable_of::<K>().filter(|name| !known.contains_key(*name))
    }

    /// Returns descriptions of objects of a kind that do not decode, restricted to those that `counts` includes.
    pub(super) fn uncertain<K: Indexed>(&self, counts: impl Fn(&str) -> bool) -> impl Iterator<Item = String> {
        let names = self.undecodable_of::<K>().filter(move |name| counts(name));
        names.map(|name| unknown_object(name))
    }

    /// Removes an object, and returns the affected drivers.
    pub fn remove<K: Indexed>(&mut self, name: &str) -> Affected {
        let is_forgotten = self.forget_undecodable::<K>(name);
        let removed = K::table(self).remove(name).map(|old| K::affected(&old));
        removed.unwrap_or_default().and(is_forgotten)
    }

    /// Removes all objects of a kind except `names`, because a new list did not contain them. With `namespace`, only
    /// objects of that namespace are removed.
    pub fn retain<K: Indexed>(&mut self, names: &BTreeSet<String>, namespace: Option<&str>) -> Affected {
        let is_listed = |name: &String| {
            namespace.is_none_or(|namespace| name.strip_prefix(namespace).is_some_and(|rest| rest.starts_with('/')))
        };
        let is_gone = |name: &&String| is_listed(name) && !names.contains(*name);
        let mut removed: Vec<String> = self.undecodable_of::<K>().filter(is_gone).cloned().collect();
        removed.extend(K::table(self).keys().filter(is_gone).cloned());
        removed.iter().fold(Affected::default(), |affected, name| {
            affected.and(self.remove::<K>(name))
        })
    }

    pub fn nodes(&self) -> Vec<&NodeFacts> {
        self.nodes.values().collect()
    }

    pub fn node_count(&self) -> usize {
        self.nodes.len() + self.unknown::<NodeObject>(&self.nodes).count()
    }

    /// Returns the nodes whose kubelet has registered the driver.
    pub fn registered_on(&self, driver: &str) -> BTreeSet<String> {
        let has = |(node, drivers): (&String, &BTreeMap<String, DriverRegistration>)| {
            drivers.contains_key(driver).then(|| node.clone())
        };
        self.registrations.iter().filter_map(has).collect()
    }

    /// Returns the nodes whose kubelet has or may have registered the driver: first the Ready nodes and then the
    /// others, each sorted.
    pub fn registered_by_readiness(&self, driver: &str) -> (Vec<String>, Vec<String>) {
        let mut all = self.registered_on(driver);
        all.extend(self.unknown::<RegistrationObject>(&self.registrations).cloned());
        all.into_iter().partition(|name| self.is_ready(name))
    }

    /// Describes the nodes that the driver registered as another server than the one in their providerID, sorted.
    /// Volumes of pods there are attached to the registered server. Nodes with unknown or outdated information about
    /// one of the two are omitted.
    pub fn misidentified_nodes(&self, driver: &str) -> Vec<String> {
        let nodes = self.undecodable_of::<NodeObject>();
        let stale: BTreeSet<&String> = nodes.chain(self.undecodable_of::<RegistrationObject>()).collect();
        let current = self.registrations.iter().filter(|(node, _)| !stale.contains(node));
        let described = current.filter_map(|(node, drivers)| {
            let registered = server_id(&drivers.get(driver)?.node_id)?;
            let server = self.nodes.get(node)?.server.as_ref()?;
            (*server != registered)
                .then(|| format!("{node} (registered as {registered}, and its providerID names {server})"))
        });
        let mut described: Vec<String> = described.collect();
        described.sort();
        described
    }

    pub fn registration(&self, node: &str, driver: &str) -> Option<&DriverRegistration> {
        self.registrations.get(node)?.get(driver)
    }

    pub fn node(&self, name: &str) -> Option<&NodeFacts> {
        self.nodes.get(name)
    }

    /// Returns the objects that need the driver, as far as they are watched. A reported object is certain. Only the
    /// API server can confirm that none exists.
    pub fn blockers(&self, driver: &str, ignore_retained: bool) -> Blockers {
        let counts = |volume: &VolumeFact| !(ignore_retained && volume.is_retained);
        let volumes = self.volume_facts(driver).filter(|(_, volume)| counts(volume));
        let mut volumes: Vec<String> = volumes.map(|(name, _)| name.clone()).collect();
        let claims = self
            .claim_facts(driver)
            .filter(|claim| claim.provisioning_since.is_some());
        let mut claims: Vec<String> = claims
            .map(|claim| format!("{}/{}", claim.claim.namespace, claim.claim.name))
            .collect();
        let mut attachments = self.attachments_of(driver);
        volumes.extend(
            self.unknown::<VolumeObject>(&self.volumes)
                .map(|name| unknown_object(name)),
        );
        attachments.extend(
            self.unknown::<AttachmentObject>(&self.attachments)
                .map(|name| unknown_object(name)),
        );
        claims.extend(
            self.unknown::<ClaimObject>(&self.claims)
                .map(|name| unknown_object(name)),
        );
        volumes.sort();
        attachments.sort();
        claims.sort();
        Blockers {
            volumes,
            attachments,
            claims,
            ..Blockers::default()
        }
    }

    /// Returns the nodes with the last node pods of the driver if none of these nodes is Ready, sorted. Empty if a
    /// node pod exists on a Ready node.
    pub fn stranded_node_pods(&self, driver: &str) -> Vec<String> {
        let nodes: BTreeSet<String> = self.node_pods_of(driver).into_iter().map(|pod| pod.node).collect();
        if nodes.iter().any(|node| self.is_ready(node)) {
            return Vec::new();
        }
        nodes.into_iter().collect()
    }

    /// Whether the kubelet of a node responds, or may respond because the Node does not decode. False for a node that
    /// does not exist.
    pub fn is_ready(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|node| node.ready) || self.is_unknown_node(node)
    }

    /// Whether a node exists and its content is unknown.
    pub fn is_unknown_node(&self, node: &str) -> bool {
        self.unknown::<NodeObject>(&self.nodes).any(|name| name == node)
    }

    /// Returns the VolumeAttachments of the driver, sorted.
    pub fn attachments_of(&self, driver: &str) -> Vec<String> {
        names_of(&self.attachments, driver)
    }

    /// Counts the PersistentVolumes and VolumeAttachments of the driver. Objects with unknown content count, because
    /// they may belong to this driver.
    pub fn count_of(&self, driver: &str) -> VolumeCount {
        VolumeCount {
            volumes: count(&self.volumes, driver) + self.unknown::<VolumeObject>(&self.volumes).count(),
            attachments: count(&self.attachments, driver) + self.unknown::<AttachmentObject>(&self.attachments).count(),
        }
    }
}

/// Returns the server in a providerID such as `openstack:///UUID` or `openstack://REGION/UUID`.
fn server_of(provider_id: &str) -> Option<String> {
    let (_, id) = provider_id.strip_prefix("openstack://")?.rsplit_once('/')?;
    server_id(id)
}

/// Returns the UUID of a server in lower case. Other names of nodes cannot be compared.
fn server_id(text: &str) -> Option<String> {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    let is_group =
        |(group, length): (&str, usize)| group.len() == length && group.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_uuid = text.split('-').count() == GROUPS.len() && text.split('-').zip(GROUPS).all(is_group);
    is_uuid.then(|| text.to_ascii_lowercase())
}

/// Describes an object with unknown content.
pub fn unknown_object(name: &str) -> String {
    format!("{} (it cannot be decoded)", UntrustedText::new(name))
}

/// Returns the key of an object in the index.
pub fn key_of(meta: &ObjectMeta) -> String {
    let name = meta.name.as_deref().unwrap_or_default();
    match &meta.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

fn names_of<T: Owned>(table: &HashMap<String, T>, driver: &str) -> Vec<String> {
    let mut names: Vec<String> = table
        .iter()
        .filter(|(_, fact)| fact.driver() == driver)
        .map(|(name, _)| name.clone())
        .collect();
    names.sort();
    names
}

fn count<T: Owned>(table: &HashMap<String, T>, driver: &str) -> usize {
    table.values().filter(|fact| fact.driver() == driver).count()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::{COMPONENT_LABEL, NODE_COMPONENT};
    use crate::cluster::{PodObject, VolumeObject};

    fn mk<K: serde::de::DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).expect("an object")
    }

    fn mk_volume(name: &str, driver: &str) -> VolumeObject {
        mk(json!({"metadata": {"name": name}, "spec": {"csi": {"driver": driver, "volumeHandle": "h"}}}))
    }

    fn affected(names: &[&str]) -> Affected {
        Affected::Drivers(names.iter().map(|name| (*name).to_owned()).collect())
    }

    fn mk_undecodable(name: &str) -> UndecodableObject {
        UndecodableObject {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            reason: "invalid type: string".to_owned(),
        }
    }

    #[test]
    fn undecodable_objects_count_as_existing_and_in_use() {
        let mut index = Index::default();
        assert_eq!(
            index.put_undecodable::<VolumeObject>(&mk_undecodable("pv")),
            Affected::All
        );
        assert!(index.put_undecodable::<VolumeObject>(&mk_undecodable("pv")).is_empty());
        index.put_undecodable::<AttachmentObject>(&mk_undecodable("va"));
        index.put_undecodable::<ClaimObject>(&mk_undecodable("shop/claim"));
        index.put_undecodable::<NodeObject>(&mk_undecodable("n1"));
        index.put_undecodable::<RegistrationObject>(&mk_undecodable("n1"));

        for driver in ["a", "b"] {
            let blockers = index.blockers(driver, true);
            assert_eq!(blockers.volumes, ["pv (it cannot be decoded)"]);
            assert_eq!(blockers.attachments, ["va (it cannot be decoded)"]);
            assert_eq!(blockers.claims, ["shop/claim (it cannot be decoded)"]);
            assert_eq!(index.attachments_under_way(driver), ["va (it cannot be decoded)"]);
            let count = index.count_of(driver);
            assert_eq!((count.volumes, count.attachments), (1, 1));
            assert_eq!(index.registered_by_readiness(driver).0, ["n1"]);
            assert!(index.registered_on(driver).is_empty(), "a registration is not known");
        }
        assert_eq!(index.volumes_with_attributes("gold"), ["pv (it cannot be decoded)"]);
        assert!(index.is_ready("n1") && index.is_unknown_node("n1"));
        assert_eq!((index.node_count(), index.nodes().len()), (1, 0));
        assert_eq!(index.undecodable().count(), 5);
    }

    #[test]
    fn undecodable_version_retains_earlier_facts() {
        let mut index = Index::default();
        index.put(&mk_volume("pv", "a"));
        index.put_undecodable::<VolumeObject>(&mk_undecodable("pv"));
        assert_eq!((index.count_of("a").volumes, index.count_of("b").volumes), (1, 0));
        assert_eq!(index.blockers("a", false).volumes, ["pv"]);
        assert!(
            index.blockers("b", false).volumes.is_empty(),
            "its driver cannot change"
        );

        assert_eq!(index.put(&mk_volume("pv", "a")), Affected::All);
        assert_eq!(index.undecodable().count(), 0);
    }

    #[test]
    fn undecodable_entry_is_removed_with_object() {
        let mut index = Index::default();
        index.put_undecodable::<NodeObject>(&mk_undecodable("deleted"));
        assert_eq!(index.remove::<NodeObject>("deleted"), Affected::All);
        index.put_undecodable::<NodeObject>(&mk_undecodable("listed"));
        index.put_undecodable::<NodeObject>(&mk_undecodable("missing"));
        index.retain::<NodeObject>(&["listed".to_owned()].into(), None);
        let left: Vec<_> = index.undecodable().map(|(kind, name, _)| (kind, name)).collect();
        assert_eq!(left, [("nodes", "listed")]);
    }

    #[test]
    fn volume_affects_driver_when_created_and_deleted() {
        let mut index = Index::default();
        assert_eq!(index.put(&mk_volume("pv1", "a")), affected(&["a"]));
        assert!(index.put(&mk_volume("pv1", "a")).is_empty());
        assert_eq!(index.count_of("a").volumes, 1);
        assert_eq!(index.remove::<VolumeObject>("pv1"), affected(&["a"]));
        assert_eq!(index.count_of("a").volumes, 0);
    }

    #[test]
    fn volumes_of_other_plugins_are_ignored() {
        let mut index = Index::default();
        let local: VolumeObject = mk(json!({"metadata": {"name": "pv1"}, "spec": {"hostPath": {"path": "/x"}}}));
        assert!(index.put(&local).is_empty());
        assert_eq!(index.volumes.len(), 0);
    }

    #[test]
    fn objects_missing_from_new_list_are_removed() {
        let mut index = Index::default();
        index.put(&mk_volume("pv1", "a"));
        index.put(&mk_volume("pv2", "b"));
        assert_eq!(
            index.retain::<VolumeObject>(&["pv2".to_owned()].into(), None),
            affected(&["a"])
        );
        assert_eq!((index.count_of("a").volumes, index.count_of("b").volumes), (0, 1));
    }

    #[test]
    fn namespaced_list_retains_objects_of_other_namespaces() {
        let mut index = Index::default();
        let pod = |namespace: &str, driver: &str| -> PodObject {
            let labels = json!({(cinder_csi_crds::INSTANCE_LABEL): driver, (COMPONENT_LABEL): NODE_COMPONENT});
            let metadata = json!({"name": "p", "namespace": namespace, "uid": driver, "labels": labels});
            mk(json!({"metadata": metadata, "spec": {"nodeName": "n1"}}))
        };
        index.put(&pod("one", "a"));
        index.put(&pod("one-more", "b"));
        assert_eq!(
            index.retain::<PodObject>(&BTreeSet::new(), Some("one")),
            affected(&["a"])
        );
        assert!(index.node_pods_of("a").is_empty());
        assert_eq!(index.node_pods_of("b").len(), 1);
    }

    #[test]
    fn removed_registration_affects_its_driver() {
        let mut index = Index::default();
        let both: RegistrationObject =
            mk(json!({"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": "a"}, {"name": "b"}]}}));
        let one: RegistrationObject = mk(json!({"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": "b"}]}}));
        index.put(&both);
        assert_eq!(index.registered_on("a"), ["n1".to_owned()].into());
        assert_eq!(index.put(&one), affected(&["a", "b"]));
        assert!(index.registered_on("a").is_empty());
    }

    #[rstest]
    #[case::same(
        "openstack:///6c1f2b9e-0000-4000-8000-000000000001",
        "6c1f2b9e-0000-4000-8000-000000000001",
        false
    )]
    #[case::same_in_capitals(
        "openstack://mars/6C1F2B9E-0000-4000-8000-00000000000A",
        "6c1f2b9e-0000-4000-8000-00000000000a",
        false
    )]
    #[case::different(
        "openstack:///6c1f2b9e-0000-4000-8000-000000000001",
        "6c1f2b9e-0000-4000-8000-000000000002",
        true
    )]
    #[case::different_with_region(
        "openstack://mars/6c1f2b9e-0000-4000-8000-000000000001",
        "6c1f2b9e-0000-4000-8000-000000000002",
        true
    )]
    #[case::other_provider(
        "k3s://6c1f2b9e-0000-4000-8000-000000000001",
        "6c1f2b9e-0000-4000-8000-000000000002",
        false
    )]
    #[case::no_uuid("openstack:///n1", "6c1f2b9e-0000-4000-8000-000000000002", false)]
    #[case::registered_by_name("openstack:///6c1f2b9e-0000-4000-8000-000000000001", "n1", false)]
    #[case::unset("", "6c1f2b9e-0000-4000-8000-000000000002", false)]
    fn node_identity_matches_provider_id(#[case] provider: &str, #[case] registered: &str, #[case] expected: bool) {
        let mut index = Index::default();
        index.put(&mk::<NodeObject>(
            json!({"metadata": {"name": "n1"}, "spec": {"providerID": provider}}),
        ));
        let drivers = json!([{"name": "a", "nodeID": registered}, {"name": "b", "nodeID": "6c1f2b9e-0000-4000-8000-00000000000f"}]);
        index.put(&mk::<RegistrationObject>(
            json!({"metadata": {"name": "n1"}, "spec": {"drivers": drivers}}),
        ));
        index.put(&mk::<NodeObject>(json!({"metadata": {"name": "n2"}, "spec": {}})));
        assert_eq!(
            index.misidentified_nodes("a").len(),
            usize::from(expected),
            "{:?}",
            index.misidentified_nodes("a")
        );
        assert!(index.misidentified_nodes("c").is_empty());
    }

    #[test]
    fn undecodable_node_is_not_misidentified() {
        let mut index = Index::default();
        let provider = "openstack:///6c1f2b9e-0000-4000-8000-000000000001";
        let node: NodeObject = mk(json!({"metadata": {"name": "n1"}, "spec": {"providerID": provider}}));
        let drivers = json!([{"name": "a", "nodeID": "6c1f2b9e-0000-4000-8000-000000000002"}]);
        let registration: RegistrationObject = mk(json!({"metadata": {"name": "n1"}, "spec": {"drivers": drivers}}));
        index.put(&node);
        index.put(&registration);
        assert_eq!(index.misidentified_nodes("a").len(), 1);
        index.put_undecodable::<NodeObject>(&mk_undecodable("n1"));
        assert!(index.misidentified_nodes("a").is_empty());
        index.put(&node);
        assert_eq!(index.misidentified_nodes("a").len(), 1);
        index.put_undecodable::<RegistrationObject>(&mk_undecodable("n1"));
        assert!(index.misidentified_nodes("a").is_empty());
    }

    #[test]
    fn csi_node_with_null_drivers_decodes() {
        let mut index = Index::default();
        index.put(&mk::<RegistrationObject>(
            json!({"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": "a"}]}}),
        ));
        let emptied = mk::<RegistrationObject>(json!({"metadata": {"name": "n1"}, "spec": {"drivers": null}}));
        assert_eq!(index.put(&emptied), affected(&["a"]));
        assert!(index.registered_on("a").is_empty());
    }

    #[test]
    fn node_heartbeat_affects_no_driver() {
        let mut index = Index::default();
        let node = |beat: &str, ready: &str| -> NodeObject {
            mk(json!({"metadata": {"name": "n1", "labels": {"zone": "a"}}, "spec": {},
                "status": {"conditions": [{"type": "Ready", "status": ready, "lastHeartbeatTime": beat,
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}))
        };
        assert_eq!(index.put(&node("1", "True")), Affected::All);
        assert!(index.put(&node("2", "True")).is_empty());
        assert_eq!(index.put(&node("3", "False")), Affected::All);
    }
}
