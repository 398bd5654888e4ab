// SPDX-License-Identifier: Apache-2.0
//! The driver's pods on the nodes, in the driver's namespace, reduced to the facts that a rollout needs.

use std::collections::HashMap;

use cinder_csi_crds::INSTANCE_LABEL;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use kube::{Resource, api::ObjectMeta};
use serde::Deserialize;

use super::facts::{NodePod, PodFact};
use super::index::{Affected, Index, Indexed};
use super::labels::{COMPONENT_LABEL, NODE_COMPONENT, REVISION_LABEL};

/// The relevant part of a Pod.
#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = Pod)]
pub struct PodObject {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    node_name: Option<String>,
    affinity: Option<Affinity>,
}

/// The DaemonSet controller stores the node of an unscheduled pod here.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Affinity {
    node_affinity: Option<k8s_openapi::api::core::v1::NodeAffinity>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStatus {
    conditions: Option<Vec<PodCondition>>,
    container_statuses: Option<Vec<ContainerStatus>>,
    message: Option<String>,
    phase: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    message: Option<String>,
    last_transition_time: Option<Time>,
}

#[derive(Debug, Clone, Deserialize)]
struct ContainerStatus {
    name: String,
    state: Option<ContainerState>,
}

#[derive(Debug, Clone, Deserialize)]
struct ContainerState {
    waiting: Option<Cause>,
    terminated: Option<Cause>,
}

#[derive(Debug, Clone, Deserialize)]
struct Cause {
    reason: Option<String>,
    message: Option<String>,
}

impl Indexed for PodObject {
    type Kept = PodFact;

    fn keep(&self) -> Option<PodFact> {
        let labels = self.metadata.labels.as_ref()?;
        if labels.get(COMPONENT_LABEL).map(String::as_str) != Some(NODE_COMPONENT) {
            return None;
        }
        let driver = labels.get(INSTANCE_LABEL)?.clone();
        let node = self.spec.node_name.clone().or_else(|| self.intended_node())?;
        Some(PodFact {
            driver,
            pod: self.on(node),
        })
    }

    fn affected(fact: &PodFact) -> Affected {
        Affected::Drivers([fact.driver.clone()].into())
    }

    fn table(index: &mut Index) -> &mut HashMap<String, PodFact> {
        &mut index.pods
    }
}

impl PodObject {
    /// Returns the pod, unless all its containers have ended permanently, as after an eviction. The node of an
    /// unscheduled pod is empty.
    pub fn unended(&self) -> Option<NodePod> {
        let has_ended = matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"));
        (!has_ended).then(|| self.on(self.spec.node_name.clone().unwrap_or_default()))
    }

    fn on(&self, node: String) -> NodePod {
        let ready = self.condition("Ready");
        let made = self.metadata.creation_timestamp.as_ref();
        let changed = ready.and_then(|ready| ready.last_transition_time.as_ref());
        let labels = self.metadata.labels.as_ref();
        let revision = labels.and_then(|labels| labels.get(REVISION_LABEL));
        NodePod {
            name: self.metadata.name.clone().unwrap_or_default(),
            uid: self.metadata.uid.clone().unwrap_or_default(),
            node,
            revision: revision.cloned().unwrap_or_default(),
            ready: ready.is_some_and(|ready| ready.status == "True"),
            leaving: self.metadata.deletion_timestamp.is_some(),
            created: made.map(|time| time.0),
            since: made.into_iter().chain(changed).map(|time| time.0).max(),
            trouble: self.trouble(),
        }
    }

    fn condition(&self, type_: &str) -> Option<&PodCondition> {
        let mut conditions = self.status.conditions.iter().flatten();
        conditions.find(|condition| condition.type_ == type_)
    }

    /// The node that a pod of a DaemonSet waits for.
    fn intended_node(&self) -> Option<String> {
        let affinity = self.spec.affinity.as_ref()?.node_affinity.as_ref()?;
        let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
        let fields = required
            .node_selector_terms
            .iter()
            .flat_map(|term| term.match_fields.iter().flatten());
        let mut names = fields.filter(|field| field.key == "metadata.name");
        names.next()?.values.as_ref()?.first().cloned()
    }

    /// Returns why the pod is not ready, in the message of its source. The text has no counters.
    fn trouble(&self) -> Option<String> {
        let containers = self.status.container_statuses.iter().flatten().filter_map(|container| {
            let state = container.state.as_ref()?;
            let cause = state.waiting.as_ref().or(state.terminated.as_ref())?;
            let reason = cause.reason.as_deref().unwrap_or("not running");
            // A crashing container has run and has a log. The message of its back-off contains the delay, which
            // changes.
            let has_log = reason == "CrashLoopBackOff" || state.terminated.is_some();
            let detail = match &cause.message {
                Some(message) if reason != "CrashLoopBackOff" => message.clone(),
                _ if has_log => "its log has the cause".to_owned(),
                _ => "the events of its pod have the cause".to_owned(),
            };
            Some(format!("container {} is {reason}: {detail}", container.name))
        });
        let scheduling = self
            .condition("PodScheduled")
            .filter(|condition| condition.status != "True")
            .and_then(|condition| condition.message.clone());
        containers.chain(scheduling).chain(self.status.message.clone()).next()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn mk_pod(spec: &Value, status: &Value) -> PodObject {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {
                (INSTANCE_LABEL): "d", (COMPONENT_LABEL): NODE_COMPONENT, (REVISION_LABEL): "r"}},
            "spec": spec, "status": status,
        }))
        .expect("a pod")
    }

    #[test]
    fn ready_pod_has_node_revision_and_time() {
        let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}]);
        let mut index = Index::default();
        index.put(&mk_pod(&json!({"nodeName": "n1"}), &json!({"conditions": ready})));
        assert_eq!(
            index.node_pods_of("d"),
            [NodePod {
                name: "p".to_owned(),
                uid: "u".to_owned(),
                node: "n1".to_owned(),
                revision: "r".to_owned(),
                ready: true,
                leaving: false,
                created: "2026-01-01T00:00:00Z".parse().ok(),
                since: "2026-01-01T00:01:00Z".parse().ok(),
                trouble: None,
            }]
        );
        assert!(index.node_pods_of("other").is_empty());
    }

    #[rstest]
    #[case::crashing(
        json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 2m40s restarting failed container"}}),
        "CrashLoopBackOff: its log has the cause"
    )]
    #[case::terminated(json!({"terminated": {"reason": "Error", "exitCode": 1}}), "Error: its log has the cause")]
    #[case::creating(json!({"waiting": {"reason": "ContainerCreating"}}), "ContainerCreating: the events of its pod have the cause")]
    #[case::image(json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}), "ImagePullBackOff: no such image")]
    fn pod_failure_includes_its_source(#[case] state: Value, #[case] expected: &str) {
        let status = json!({"containerStatuses": [{"name": "driver", "state": state}]});
        let fact = mk_pod(&json!({"nodeName": "n1"}), &status).keep().expect("kept");
        assert_eq!(fact.pod.trouble, Some(format!("container driver is {expected}")));
    }

    #[test]
    fn unschedulable_pod_counts_for_intended_node() {
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}]}}});
        let conditions = json!([{"type": "PodScheduled", "status": "False", "message": "Insufficient memory"}]);
        let fact = mk_pod(&json!({"affinity": affinity}), &json!({"conditions": conditions}))
            .keep()
            .expect("kept");
        assert_eq!(
            (fact.pod.node.as_str(), fact.pod.trouble.as_deref()),
            ("n2", Some("Insufficient memory"))
        );
    }

    #[test]
    fn controller_pods_are_ignored() {
        let mut pod = mk_pod(&json!({"nodeName": "n1"}), &json!({}));
        let labels = pod.metadata.labels.get_or_insert_default();
        labels.insert(COMPONENT_LABEL.to_owned(), "controller".to_owned());
        assert_eq!(pod.keep(), None);
    }
}
