// SPDX-License-Identifier: Apache-2.0
//! Nodes, and the registrations of drivers with their kubelets, reduced to the relevant parts.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::{
    api::{core::v1::Node, storage::v1::CSINode},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Resource, api::ObjectMeta};
use serde::Deserialize;

use super::{
    facts::DriverRegistration,
    index::{Affected, Index, Indexed},
    nodes::{NodeFacts, taint_facts},
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

/// Returns the server in a providerID such as `openstack:///UUID` or `openstack://REGION/UUID`.
fn server_of(provider_id: &str) -> Option<String> {
    let (_, id) = provider_id.strip_prefix("openstack://")?.rsplit_once('/')?;
    server_id(id)
}

/// Returns the UUID of a server in lower case. Other names of nodes cannot be compared.
pub(super) fn server_id(text: &str) -> Option<String> {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    let is_group =
        |(group, length): (&str, usize)| group.len() == length && group.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_uuid = text.split('-').count() == GROUPS.len() && text.split('-').zip(GROUPS).all(is_group);
    is_uuid.then(|| text.to_ascii_lowercase())
}
