// SPDX-License-Identifier: Apache-2.0
//! Conflicts between several drivers in one cluster over exclusive resources.

use std::collections::BTreeMap;
use std::ops::Range;

use cinder_csi_crds::CinderCSIDriver;
use kube::ResourceExt;

use super::hold::{HoldScope, SpecHold};
use super::names::name_prefix_of;
use super::{controller, node};
use crate::problem::Problem;
use crate::reasons::Degraded;

/// Exclusive resources of another CinderCSIDriver of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherDriver {
    name: String,
    /// The older driver retains a resource that both need.
    age: (String, String),
    name_prefix: String,
    node_ports: Option<Range<u32>>,
    node_selector: BTreeMap<String, String>,
    controller_ports: Option<Range<u32>>,
    controller_selector: BTreeMap<String, String>,
}

impl OtherDriver {
    /// Returns the exclusive resources of a driver.
    pub fn of(driver: &CinderCSIDriver) -> Self {
        let name = driver.name_any();
        let range = |first: u16, count: u16| u32::from(first)..u32::from(first) + u32::from(count);
        let (pods, nodes) = (&driver.spec.controller, &driver.spec.node);
        let created = driver.creation_timestamp().map(|time| time.0.to_string());
        Self {
            // A driver that is not yet in the cluster counts as the youngest.
            age: (created.unwrap_or_else(|| "~".to_owned()), name.clone()),
            name_prefix: name_prefix_of(driver),
            node_ports: nodes
                .host_network
                .then(|| range(nodes.http_port, node::ports(nodes.registration))),
            node_selector: nodes.node_selector.clone(),
            controller_ports: pods.host_network.then(|| range(pods.http_port, controller::PORTS)),
            controller_selector: pods.node_selector.clone(),
            name,
        }
    }

    /// Returns the used host ports with their nodes and the field that sets them.
    fn ports(&self) -> impl Iterator<Item = (&Range<u32>, &BTreeMap<String, String>, PortField)> {
        let nodes = self.node_ports.iter();
        let controller = self.controller_ports.iter();
        nodes
            .map(|ports| (ports, &self.node_selector, PortField::Node))
            .chain(controller.map(|ports| (ports, &self.controller_selector, PortField::Controller)))
    }
}

/// A field that sets ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PortField {
    Node,
    Controller,
}

impl PortField {
    fn path(self) -> &'static str {
        match self {
            Self::Node => "spec.node.httpPort",
            Self::Controller => "spec.controller.httpPort",
        }
    }

    fn scope(self) -> HoldScope {
        match self {
            Self::Node => HoldScope::nodes(),
            Self::Controller => HoldScope::controller(),
        }
    }
}

/// Returns conflicts of `driver` with resources of an older driver.
pub(super) fn problems(driver: &CinderCSIDriver, other_drivers: &[OtherDriver]) -> Vec<SpecHold> {
    let own = OtherDriver::of(driver);
    let mut holds = Vec::new();
    for (ports, _, field) in own.ports().filter(|(ports, ..)| ports.end > 65_536) {
        let message = format!(
            "{} is {}, which leaves no room for the ports of the sidecars after it: choose a lower one",
            field.path(),
            ports.start
        );
        let reason = Degraded::InvalidSpec;
        holds.push(SpecHold::new(Problem { reason, message }, field.scope()));
    }
    for other in other_drivers
        .iter()
        .filter(|other| other.name != own.name && other.age < own.age)
    {
        if other.name_prefix == own.name_prefix {
            let problem = Problem {
                reason: Degraded::InstanceNameTaken,
                message: format!(
                    "the objects of CinderCSIDriver {} have names that begin with {} too: create this one again with another \
                     spec.instanceName",
                    other.name, own.name_prefix
                ),
            };
            holds.push(SpecHold::new(problem, HoldScope::All));
        }
        for (ports, selector, field) in own.ports() {
            let clash = other.ports().find(|(taken, theirs, _)| {
                ports.start < taken.end && taken.start < ports.end && can_share_node(selector, theirs)
            });
            if let Some((taken, ..)) = clash {
                let problem = Problem {
                    reason: Degraded::PortTaken,
                    message: format!(
                        "{} gives the ports {}, and CinderCSIDriver {} has {} on the same nodes: the pods of one of them could \
                         not start. Choose a port that is free, or a nodeSelector that leads to other nodes",
                        field.path(),
                        words(ports),
                        other.name,
                        words(taken)
                    ),
                };
                holds.push(SpecHold::new(problem, field.scope()));
            }
        }
    }
    holds
}

/// Whether one node can have the labels of both.
fn can_share_node(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> bool {
    one.iter()
        .all(|(key, value)| other.get(key).is_none_or(|theirs| theirs == value))
}

fn words(ports: &Range<u32>) -> String {
    if ports.end == ports.start + 1 {
        ports.start.to_string()
    } else {
        format!("{} to {}", ports.start, ports.end - 1)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::resolve::tests::mk_driver;

    #[allow(clippy::needless_pass_by_value, reason = "it is called with a literal")]
    fn mk_at(name: &str, second: i64, spec: Value) -> CinderCSIDriver {
        let mut driver = mk_driver(name);
        driver.metadata.creation_timestamp = Some(Time(Timestamp::from_second(second).unwrap()));
        let mut object = serde_json::to_value(driver).unwrap();
        json_patch::merge(&mut object["spec"], &spec);
        serde_json::from_value(object).unwrap()
    }

    #[rstest]
    #[case::the_same_port(json!({}), json!({}), &[Degraded::PortTaken])]
    #[case::another_port(json!({}), json!({ "node": { "httpPort": 9899 } }), &[])]
    #[case::nodes_on_the_network_of_pods(json!({}), json!({ "node": { "hostNetwork": false } }), &[])]
    #[case::a_port_of_the_registrar(json!({ "node": { "registration": "Sidecar" } }), json!({ "node": { "httpPort": 9899 } }),
        &[Degraded::PortTaken])]
    #[case::other_nodes(json!({ "node": { "nodeSelector": { "pool": "a" } } }),
        json!({ "node": { "nodeSelector": { "pool": "b" } } }), &[])]
    #[case::perhaps_the_same_nodes(json!({ "node": { "nodeSelector": { "pool": "a" } } }),
        json!({ "node": { "nodeSelector": { "disk": "b" } } }), &[Degraded::PortTaken])]
    #[case::controllers_on_the_network_of_nodes(json!({ "controller": { "hostNetwork": true } }),
        json!({ "controller": { "hostNetwork": true, "httpPort": 8085 }, "node": { "httpPort": 9900 } }), &[Degraded::PortTaken])]
    #[case::a_controller_and_a_node(json!({ "controller": { "hostNetwork": true, "httpPort": 9900 } }),
        json!({ "node": { "httpPort": 9905 } }), &[Degraded::PortTaken])]
    #[case::the_same_names(json!({ "instanceName": "x" }), json!({ "instanceName": "x", "node": { "httpPort": 9900 } }),
        &[Degraded::InstanceNameTaken])]
    fn younger_driver_has_the_conflict(#[case] first: Value, #[case] second: Value, #[case] expected: &[Degraded]) {
        let (first, second) = (mk_at("a.example.org", 1, first), mk_at("b.example.org", 2, second));
        let other_drivers = [OtherDriver::of(&first), OtherDriver::of(&second)];

        let reasons: Vec<_> = problems(&second, &other_drivers)
            .iter()
            .map(|hold| hold.problem.reason)
            .collect();

        assert_eq!(reasons, expected);
        assert_eq!(problems(&first, &other_drivers), []);
    }

    #[test]
    fn equal_age_is_decided_by_name() {
        let (first, second) = (
            mk_at("a.example.org", 1, json!({})),
            mk_at("b.example.org", 1, json!({})),
        );
        let other_drivers = [OtherDriver::of(&first), OtherDriver::of(&second)];

        assert_eq!(problems(&first, &other_drivers), []);
        let problems = problems(&second, &other_drivers);
        assert!(
            problems[0].problem.message.contains("a.example.org") && problems[0].problem.message.contains("9897"),
            "{problems:?}"
        );
    }

    #[test]
    fn rejects_ports_beyond_the_maximum() {
        let driver = mk_at(
            "a.example.org",
            1,
            json!({ "node": { "httpPort": 65535, "registration": "Sidecar" } }),
        );

        assert_eq!(problems(&driver, &[])[0].problem.reason, Degraded::InvalidSpec);
    }
}
