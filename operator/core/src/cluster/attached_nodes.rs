// SPDX-License-Identifier: Apache-2.0
//! Nodes to which volumes of the driver are attached, and whether a change of the DaemonSet removes the node plugin
//! from them.
//!
//! The DaemonSet controller deletes a pod immediately when its node no longer matches the template. The update
//! strategy does not delay this. Volumes on such a node can be neither unmounted nor expanded, and its pods cannot be
//! deleted.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
};

use k8s_openapi::api::core::v1::{NodeSelector, PodSpec, Toleration};

use super::{AttachmentFact, Index, NodeFacts, nodes::is_eligible};
use crate::text::join_truncated;

/// Maximum number of volumes per node in a message.
const NAMED_VOLUMES: usize = 3;

/// A node with attached volumes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttachedNode {
    /// Name of the node. Empty if the VolumeAttachment has none.
    pub name: String,
    /// Facts of the Node object. `None` if it does not exist or cannot be decoded.
    pub facts: Option<NodeFacts>,
    /// Whether a node pod of the driver runs there.
    pub runs_driver: bool,
    /// Whether its CSINode lists the driver. The entry outlives the pod.
    pub is_registered: bool,
    /// PersistentVolumes, sorted.
    pub volumes: Vec<String>,
}

/// The nodes with attached volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttachedNodes {
    Known(Vec<AttachedNode>),
    /// The nodes could not be listed, with the cause.
    Unknown(String),
}

/// Nodes that lose the node plugin by a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LostNodes {
    /// Nodes with their volumes.
    Nodes(BTreeMap<String, Vec<String>>),
    /// The nodes are unknown, with the cause.
    Unknown(String),
}

impl fmt::Display for LostNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(nodes) => f.write_str(&describe_nodes(nodes)),
            Self::Unknown(reason) => f.write_str(reason),
        }
    }
}

impl AttachedNodes {
    /// Returns the nodes that lose the node plugin when the template of the DaemonSet changes from `before` to
    /// `after`, with their volumes. `None` if no node loses it. A missing template means a missing DaemonSet. A node
    /// or attachment with unknown content counts as lost.
    pub fn lost_nodes(&self, before: Option<&PodSpec>, after: Option<&PodSpec>) -> Option<LostNodes> {
        if !may_lose_nodes(before, after) {
            return None;
        }
        let nodes = match self {
            Self::Known(nodes) => nodes,
            Self::Unknown(reason) => return Some(LostNodes::Unknown(reason.clone())),
        };
        let is_lost = |node: &&AttachedNode| {
            let facts = node.facts.as_ref();
            let fits = |template: &PodSpec| facts.is_some_and(|facts| is_eligible(facts, template));
            // Without a template, the registrations show the nodes of an earlier DaemonSet.
            let is_served = match before {
                Some(before) => facts.is_none() || fits(before),
                None => node.is_registered,
            };
            (is_served || node.runs_driver) && !after.is_some_and(fits)
        };
        let lost: BTreeMap<String, Vec<String>> = nodes
            .iter()
            .filter(is_lost)
            .map(|node| (node.name.clone(), node.volumes.clone()))
            .collect();
        (!lost.is_empty()).then_some(LostNodes::Nodes(lost))
    }
}

/// Describes nodes with their volumes.
pub fn describe_nodes(nodes: &BTreeMap<String, Vec<String>>) -> String {
    let node = |(name, volumes): (&String, &Vec<String>)| {
        let name = if name.is_empty() { "an unknown node" } else { name };
        let shown = volumes
            .iter()
            .take(NAMED_VOLUMES)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");
        match volumes.len().saturating_sub(NAMED_VOLUMES) {
            0 => format!("{name} ({shown})"),
            more => format!("{name} ({shown} and {more} more)"),
        }
    };
    join_truncated(&nodes.iter().map(node).collect::<Vec<_>>())
}

/// Whether a node could match the first template and not the second. If both select the same nodes, or the second
/// clearly selects more, the nodes need not be checked.
pub fn may_lose_nodes(before: Option<&PodSpec>, after: Option<&PodSpec>) -> bool {
    let (Some(before), Some(after)) = (before, after) else {
        return true;
    };
    let selects_less = |template: &PodSpec, other: &PodSpec| {
        let mut selectors = template.node_selector.iter().flatten();
        selectors.all(|(key, value)| other.node_selector.as_ref().and_then(|other| other.get(key)) == Some(value))
    };
    let name = |template: &PodSpec| template.node_name.clone().filter(|name| !name.is_empty());
    let tolerations = |template: &PodSpec| template.tolerations.clone().unwrap_or_default();
    let tolerated = tolerations(after);
    let keeps_tolerations = tolerated.iter().any(tolerates_everything)
        || tolerations(before)
            .iter()
            .all(|toleration| tolerated.contains(toleration));
    let keeps_affinity = required(after).is_none() || required(after) == required(before);
    let keeps_name = name(after).is_none() || name(after) == name(before);
    !(selects_less(after, before) && keeps_tolerations && keeps_affinity && keeps_name)
}

fn required(template: &PodSpec) -> Option<&NodeSelector> {
    let affinity = template.affinity.as_ref()?.node_affinity.as_ref()?;
    affinity.required_during_scheduling_ignored_during_execution.as_ref()
}

fn tolerates_everything(toleration: &Toleration) -> bool {
    let is_empty = |text: &Option<String>| text.as_deref().unwrap_or_default().is_empty();
    toleration.operator.as_deref() == Some("Exists") && is_empty(&toleration.key) && is_empty(&toleration.effect)
}

impl Index {
    /// Returns the nodes of these attachments. Each attachment is a pair of node name and volume name.
    pub fn attached_nodes(
        &self,
        driver: &str,
        attachments: impl IntoIterator<Item = (String, String)>,
    ) -> Vec<AttachedNode> {
        let mut by_node = BTreeMap::<String, Vec<String>>::new();
        for (node, volume) in attachments {
            by_node.entry(node).or_default().push(volume);
        }
        let pods: BTreeSet<String> = self.node_pods_of(driver).into_iter().map(|pod| pod.node).collect();
        let attached = by_node.into_iter().map(|(name, mut volumes)| {
            volumes.sort();
            AttachedNode {
                is_registered: self.registration(&name, driver).is_some(),
                facts: self.node(&name).cloned(),
                runs_driver: pods.contains(&name),
                volumes,
                name,
            }
        });
        attached.collect()
    }

    /// Returns the volumes that are attached or being attached, each with its node, according to the watches.
    pub fn attached_volumes(&self, driver: &str) -> Vec<(String, String)> {
        let all = self.attachment_facts(driver);
        all.map(|(name, attachment)| (attachment.node.clone(), volume_of(name, attachment)))
            .collect()
    }

    /// Returns existing nodes with attached volumes that the DaemonSet excludes and that run no pod of the driver,
    /// with the volumes. Volumes in the process of detachment do not count, because they are unmounted.
    pub fn unserved_nodes(&self, driver: &str, template: &PodSpec) -> BTreeMap<String, Vec<String>> {
        let mut left_out = HashMap::<&str, bool>::new();
        let mut unserved = BTreeMap::<String, Vec<String>>::new();
        for (name, attachment) in self.attachment_facts(driver) {
            let node = attachment.node.as_str();
            let is_left_out = *left_out
                .entry(node)
                .or_insert_with(|| self.node(node).is_some_and(|facts| !is_eligible(facts, template)));
            if is_left_out && attachment.deleted.is_none() {
                let volumes = unserved.entry(node.to_owned()).or_default();
                volumes.push(volume_of(name, attachment));
            }
        }
        if !unserved.is_empty() {
            let pods = self.node_pods_of(driver).into_iter().filter(|pod| !pod.leaving);
            let served: BTreeSet<String> = pods.map(|pod| pod.node).collect();
            unserved.retain(|node, _| !served.contains(node));
        }
        for volumes in unserved.values_mut() {
            volumes.sort();
        }
        unserved
    }
}

/// The PersistentVolume of an attachment, or the attachment itself if it has none.
fn volume_of(name: &str, attachment: &AttachmentFact) -> String {
    let volume = Some(&attachment.volume).filter(|volume| !volume.is_empty());
    volume.map_or_else(|| name.to_owned(), String::clone)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn mk_template(spec: &Value) -> PodSpec {
        let mut pod = json!({"containers": [], "tolerations": [{"operator": "Exists"}]});
        json_patch::merge(&mut pod, spec);
        serde_json::from_value(pod).expect("a pod spec")
    }

    fn mk_node(name: &str, volumes: &[&str]) -> AttachedNode {
        AttachedNode {
            name: name.to_owned(),
            facts: Some(NodeFacts {
                name: name.to_owned(),
                labels: BTreeMap::from([("pool".to_owned(), "a".to_owned())]),
                taints: vec![("dedicated".to_owned(), "db".to_owned(), "NoSchedule".to_owned())],
                ..NodeFacts::default()
            }),
            runs_driver: false,
            is_registered: false,
            volumes: volumes.iter().map(|&volume| volume.to_owned()).collect(),
        }
    }

    fn text(lost: Option<LostNodes>) -> Option<String> {
        lost.map(|lost| lost.to_string())
    }

    fn affinity(key: &str, operator: &str) -> Value {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": operator}]}]}}}})
    }

    #[rstest]
    #[case::same(json!({}), None)]
    #[case::image(json!({"containers": [{"name": "x", "image": "y"}]}), None)]
    #[case::selector_that_fits(json!({"nodeSelector": {"pool": "a"}}), None)]
    #[case::selector(json!({"nodeSelector": {"pool": "b"}}), Some("n1 (pv1)"))]
    #[case::affinity_that_fits(affinity("pool", "Exists"), None)]
    #[case::affinity(affinity("pool", "DoesNotExist"), Some("n1 (pv1)"))]
    #[case::region(affinity("topology.kubernetes.io/region", "Exists"), Some("n1 (pv1)"))]
    #[case::fewer_tolerations(json!({"tolerations": []}), Some("n1 (pv1)"))]
    #[case::toleration_that_fits(json!({"tolerations": [{"key": "dedicated", "operator": "Exists"}]}), None)]
    #[case::node_name(json!({"nodeName": "n2"}), Some("n1 (pv1)"))]
    #[case::own_node_name(json!({"nodeName": "n1"}), None)]
    fn template_change_loses_attached_nodes(#[case] after: Value, #[case] expected: Option<&str>) {
        let nodes = AttachedNodes::Known(vec![mk_node("n1", &["pv1"])]);
        let lost = nodes.lost_nodes(Some(&mk_template(&json!({}))), Some(&mk_template(&after)));
        assert_eq!(text(lost).as_deref(), expected);
    }

    #[test]
    fn wider_template_loses_no_unknown_node() {
        let unknown = AttachedNodes::Unknown("not listed".to_owned());
        let narrow = mk_template(&json!({"nodeSelector": {"pool": "a", "disk": "b"}, "tolerations": []}));
        let wide = mk_template(&json!({"nodeSelector": {"pool": "a"}}));
        assert_eq!(unknown.lost_nodes(Some(&narrow), Some(&wide)), None);
        let lost = unknown.lost_nodes(Some(&wide), Some(&narrow));
        assert_eq!(text(lost).as_deref(), Some("not listed"));
    }

    #[test]
    fn unknown_node_counts_as_lost() {
        let node = AttachedNode {
            facts: None,
            ..mk_node("", &["pv1"])
        };
        let nodes = AttachedNodes::Known(vec![node]);
        let before = mk_template(&json!({}));
        let after = mk_template(&json!({"nodeSelector": {"pool": "a"}}));
        let lost = nodes.lost_nodes(Some(&before), Some(&after));
        assert_eq!(text(lost).as_deref(), Some("an unknown node (pv1)"));
        assert_eq!(
            nodes.lost_nodes(None, Some(&after)),
            None,
            "a first DaemonSet takes nothing away"
        );
    }

    #[test]
    fn node_with_pod_is_lost_without_daemon_set() {
        let node = AttachedNode {
            runs_driver: true,
            ..mk_node("n1", &["pv1"])
        };
        let registered = AttachedNode {
            is_registered: true,
            ..mk_node("n3", &["pv3"])
        };
        let nodes = AttachedNodes::Known(vec![node, mk_node("n2", &["pv2"]), registered]);
        let after = mk_template(&json!({"nodeSelector": {"pool": "b"}}));
        let lost = nodes.lost_nodes(None, Some(&after));
        assert_eq!(text(lost).as_deref(), Some("n1 (pv1), n3 (pv3)"));
        let all = nodes.lost_nodes(Some(&mk_template(&json!({}))), None);
        assert_eq!(text(all).as_deref(), Some("n1 (pv1), n2 (pv2), n3 (pv3)"));
    }

    #[test]
    fn nodes_and_volumes_are_bounded() {
        let volumes: Vec<String> = (0..5).map(|number| format!("pv{number}")).collect();
        let nodes = (0..12)
            .map(|number| (format!("n{number:02}"), volumes.clone()))
            .collect();
        let described = describe_nodes(&nodes);
        assert!(
            described.starts_with("n00 (pv0, pv1, pv2 and 2 more), n01"),
            "{described}"
        );
        assert!(
            described.ends_with(" and 2 more") && !described.contains("n11"),
            "{described}"
        );
    }
}
