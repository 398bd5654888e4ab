// SPDX-License-Identifier: Apache-2.0
//! Nodes that should run the driver, and nodes whose kubelet has registered it.
//!
//! The counters of the DaemonSet count pods. A pod can be Ready although the kubelet has no driver registered.
//! Therefore the entry in the node's CSINode determines the health here. The set of nodes follows the rules of the
//! DaemonSet controller: node selector, required node affinity, and taints that the pods do not tolerate.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration},
    jiff::Timestamp,
};

/// The relevant facts about a Node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct NodeFacts {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// The server in Nova according to the Node's providerID, if a cloud provider for OpenStack has set it.
    pub server: Option<String>,
    /// Taints: key, value, effect.
    pub taints: Vec<(String, String, String)>,
    /// Whether the kubelet reports that it is ready. Otherwise it cannot start or register anything.
    pub ready: bool,
    /// Time when the node joined.
    pub created: Option<Timestamp>,
    /// Time of the last change between Ready and not Ready, or of the creation.
    pub since: Option<Timestamp>,
}

/// Times of a Ready node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeTimes {
    /// Time when the node joined.
    pub created: Option<Timestamp>,
    /// Time when the node became Ready.
    pub ready: Option<Timestamp>,
}

/// The nodes of one driver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodesView {
    /// Number of nodes where the driver should run.
    pub desired: usize,
    /// Number of these nodes whose kubelet has registered the driver.
    pub registered: usize,
    /// Ready nodes where the driver should run and is not registered, after any time, sorted.
    pub unregistered: Vec<String>,
    /// Nodes that are not Ready and have no registration, sorted. The operator cannot act on them.
    pub not_ready: Vec<String>,
    /// Nodes with attached volumes that the DaemonSet excludes and where no pod of the driver runs, with the volumes.
    /// The other fields do not include them.
    pub unserved: BTreeMap<String, Vec<String>>,
    /// Descriptions of nodes that are registered as another server than the one in their providerID, sorted.
    pub misidentified: Vec<String>,
}

impl NodesView {
    /// Returns the nodes where the driver should run or is needed, and is missing after any time.
    pub fn without_driver(&self) -> impl Iterator<Item = &String> {
        self.unserved.keys().chain(&self.unregistered)
    }

    /// Returns the number of nodes where the driver should run or is needed.
    pub fn needed(&self) -> usize {
        self.desired + self.unserved.len()
    }
}

/// Taints that the DaemonSet controller makes its pods tolerate automatically. Source: Kubernetes, «DaemonSet: taints
/// and tolerations».
const ALWAYS_TOLERATED: &[&str] = &[
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/network-unavailable",
];

/// Combines the nodes, the pod template of the DaemonSet and the names of the nodes whose CSINode lists the driver.
pub fn view(nodes: &[&NodeFacts], template: &PodSpec, registered_on: &BTreeSet<String>) -> NodesView {
    let mut view = NodesView::default();
    for node in nodes.iter().filter(|node| is_eligible(node, template)) {
        view.desired += 1;
        if registered_on.contains(&node.name) {
            view.registered += 1;
        } else if node.ready {
            view.unregistered.push(node.name.clone());
        } else {
            view.not_ready.push(node.name.clone());
        }
    }
    view.unregistered.sort();
    view.not_ready.sort();
    view
}

/// Returns the Ready nodes where a DaemonSet with this template runs a pod.
pub fn ready_nodes(nodes: &[&NodeFacts], template: &PodSpec) -> BTreeSet<String> {
    let selected = nodes.iter().filter(|node| node.ready && is_eligible(node, template));
    selected.map(|node| node.name.clone()).collect()
}

/// Returns the same nodes with their times.
pub fn ready_node_times(nodes: &[&NodeFacts], template: &PodSpec) -> BTreeMap<String, NodeTimes> {
    let selected = nodes.iter().filter(|node| node.ready && is_eligible(node, template));
    let times = |node: &NodeFacts| NodeTimes {
        created: node.created,
        ready: node.since,
    };
    selected.map(|node| (node.name.clone(), times(node))).collect()
}

/// Returns the nodes where a DaemonSet with this template runs a pod, Ready or not.
pub fn eligible_nodes(nodes: &[&NodeFacts], template: &PodSpec) -> BTreeSet<String> {
    let selected = nodes.iter().filter(|node| is_eligible(node, template));
    selected.map(|node| node.name.clone()).collect()
}

/// Whether a DaemonSet with this template runs a pod on the node.
pub(super) fn is_eligible(node: &NodeFacts, template: &PodSpec) -> bool {
    let bound = template.node_name.as_deref().unwrap_or_default();
    if !bound.is_empty() && bound != node.name {
        return false;
    }
    let selected = template
        .node_selector
        .iter()
        .flatten()
        .all(|(key, value)| node.labels.get(key) == Some(value));
    let required = template
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let affine =
        required.is_none_or(|required| required.node_selector_terms.iter().any(|term| matches_term(node, term)));
    let tolerations = template.tolerations.as_deref().unwrap_or_default();
    selected && affine && node.taints.iter().all(|taint| is_tolerated(taint, tolerations))
}

fn matches_term(node: &NodeFacts, term: &NodeSelectorTerm) -> bool {
    let labels = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    // A term without requirements selects no node.
    !(labels.is_empty() && fields.is_empty())
        && labels
            .iter()
            .all(|requirement| holds(requirement, node.labels.get(&requirement.key)))
        && fields
            .iter()
            .all(|requirement| holds(requirement, (requirement.key == "metadata.name").then_some(&node.name)))
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&String>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.contains(value));
    let compare = |is_match: fn(i64, i64) -> bool| {
        let bound = values.first().and_then(|bound| bound.parse().ok());
        let actual = value.and_then(|value| value.parse().ok());
        matches!((actual, bound), (Some(actual), Some(bound)) if is_match(actual, bound))
    };
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(|actual, bound| actual > bound),
        "Lt" => compare(|actual, bound| actual < bound),
        _ => false,
    }
}

fn is_tolerated((key, value, effect): &(String, String, String), tolerations: &[Toleration]) -> bool {
    if effect == "PreferNoSchedule" || ALWAYS_TOLERATED.contains(&key.as_str()) {
        return true;
    }
    tolerations.iter().any(|toleration| {
        let same_effect = toleration
            .effect
            .as_deref()
            .is_none_or(|required| required.is_empty() || required == effect);
        let same_key = toleration
            .key
            .as_deref()
            .is_none_or(|required| required.is_empty() || required == key);
        let same_value = match toleration.operator.as_deref() {
            Some("Exists") => true,
            _ => toleration.key.is_some() && toleration.value.as_deref().unwrap_or_default() == value,
        };
        same_effect && same_key && same_value
    })
}

/// The compared facts of a taint.
pub(super) fn taint_facts(taint: &Taint) -> (String, String, String) {
    (
        taint.key.clone(),
        taint.value.clone().unwrap_or_default(),
        taint.effect.clone(),
    )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn mk_node(name: &str, labels: &[(&str, &str)], taints: &[(&str, &str, &str)]) -> NodeFacts {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        NodeFacts {
            name: name.to_owned(),
            labels: labels.iter().map(own).collect(),
            taints: taints
                .iter()
                .map(|(k, v, e)| ((*k).to_owned(), (*v).to_owned(), (*e).to_owned()))
                .collect(),
            ready: true,
            ..NodeFacts::default()
        }
    }

    fn mk_template(mut spec: Value) -> PodSpec {
        spec["containers"] = json!([]);
        serde_json::from_value(spec).expect("a pod spec")
    }

    fn affinity(expression: &Value) -> Value {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}})
    }

    #[rstest]
    #[case::everything(json!({}), true)]
    #[case::a_selector_that_matches(json!({"nodeSelector": {"zone": "a"}}), true)]
    #[case::a_selector_that_does_not(json!({"nodeSelector": {"zone": "b"}}), false)]
    #[case::in_the_list(affinity(&json!({"key": "zone", "operator": "In", "values": ["a", "b"]})), true)]
    #[case::not_in_the_list(affinity(&json!({"key": "zone", "operator": "NotIn", "values": ["a"]})), false)]
    #[case::not_in_a_list_without_the_label(affinity(&json!({"key": "x", "operator": "NotIn", "values": ["a"]})), true)]
    #[case::exists(affinity(&json!({"key": "gpu", "operator": "Exists"})), false)]
    #[case::does_not_exist(affinity(&json!({"key": "gpu", "operator": "DoesNotExist"})), true)]
    #[case::greater(affinity(&json!({"key": "cores", "operator": "Gt", "values": ["4"]})), true)]
    #[case::less(affinity(&json!({"key": "cores", "operator": "Lt", "values": ["8"]})), false)]
    fn nodes_are_selected_by_selector_and_affinity(#[case] spec: Value, #[case] expected: bool) {
        let node = mk_node("n1", &[("zone", "a"), ("cores", "8")], &[]);
        assert_eq!(
            view(&[&node], &mk_template(spec), &BTreeSet::new()).desired,
            usize::from(expected)
        );
    }

    #[rstest]
    #[case::no_toleration(json!([]), ("dedicated", "db", "NoSchedule"), false)]
    #[case::tolerates_everything(json!([{"operator": "Exists"}]), ("dedicated", "db", "NoExecute"), true)]
    #[case::tolerates_the_key(json!([{"key": "dedicated", "operator": "Exists"}]), ("dedicated", "db", "NoSchedule"), true)]
    #[case::another_value(json!([{"key": "dedicated", "value": "web"}]), ("dedicated", "db", "NoSchedule"), false)]
    #[case::another_effect(json!([{"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}]),
        ("dedicated", "db", "NoSchedule"), false)]
    #[case::only_preferred(json!([]), ("dedicated", "db", "PreferNoSchedule"), true)]
    #[case::a_drain(json!([]), ("node.kubernetes.io/unschedulable", "", "NoSchedule"), true)]
    fn only_untolerated_taints_exclude_nodes(
        #[case] tolerations: Value,
        #[case] taint: (&str, &str, &str),
        #[case] expected: bool,
    ) {
        let template = mk_template(json!({"tolerations": tolerations}));
        let node = mk_node("n1", &[], &[taint]);
        assert_eq!(
            view(&[&node], &template, &BTreeSet::new()).desired,
            usize::from(expected)
        );
    }

    #[test]
    fn node_health_depends_on_registration() {
        let mut down = mk_node("n4", &[], &[]);
        down.ready = false;
        let mut down_but_registered = mk_node("n5", &[], &[]);
        down_but_registered.ready = false;
        let nodes = [
            mk_node("n3", &[], &[]),
            mk_node("n2", &[], &[]),
            mk_node("n1", &[], &[]),
            down,
            down_but_registered,
        ];
        let registered = ["n1", "n5", "elsewhere"].map(str::to_owned).into();
        assert_eq!(
            view(&nodes.iter().collect::<Vec<_>>(), &mk_template(json!({})), &registered),
            NodesView {
                desired: 5,
                registered: 2,
                unregistered: vec!["n2".to_owned(), "n3".to_owned()],
                not_ready: vec!["n4".to_owned()],
                ..NodesView::default()
            }
        );
    }
}
