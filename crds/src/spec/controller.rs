//! The pods that talk to OpenStack.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, HostAlias, Toleration, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extra_volume::ExtraVolume;
use super::pods::{Resources, count_or_percentage};
use super::sidecars::{LeaderElection, Sidecars};

/// The pods that talk to OpenStack.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ControllerSpec {
    /// How many pods run; one of them works at a time, the others wait to take over. When it is not given: two if the
    /// cluster has at least two nodes, else one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 5))]
    pub replicas: Option<i32>,

    /// How the pods are replaced. When it is not given: several one by one, without a further one that might find no node; a
    /// single one when its successor serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<ControllerStrategy>,

    /// How many of the pods a drain of nodes may take away at once.
    #[serde(default)]
    pub pod_disruption_budget: PodDisruptionBudget,

    /// How the replicas of a sidecar agree on the one that works.
    #[serde(default)]
    pub leader_election: LeaderElection,

    /// Labels of the nodes where the pods may run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub node_selector: BTreeMap<String, String>,

    /// Taints that the pods tolerate. When it is not given, those of control plane nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub tolerations: Option<Vec<Toleration>>,

    /// Where the pods run best. When it is not given, they avoid each other's nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// How the pods spread over the cluster. When it is not given, over its zones where that is possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    pub topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,

    /// Priority of the pods.
    #[serde(default = "default_priority_class")]
    #[schemars(length(max = 253))]
    pub priority_class_name: String,

    /// Further labels of the pods. The operator's own stay.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub pod_labels: BTreeMap<String, String>,

    /// Further annotations of the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub pod_annotations: BTreeMap<String, String>,

    /// Whether the pods use the network of their nodes, where OpenStack can be reached from there only. The ports from httpPort
    /// on are ports of the node then.
    #[serde(default)]
    pub host_network: bool,

    /// Lines of /etc/hosts in the pods, for endpoints that the cluster's DNS does not know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub host_aliases: Vec<HostAlias>,

    /// Where the pods look up names: ClusterFirst, or ClusterFirstWithHostNet with hostNetwork, when it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns_policy: Option<DnsPolicy>,

    /// Port of the driver's HTTP server in the pods, for checks and metrics. The sidecars have the five ports after it.
    #[serde(default = "default_http_port")]
    #[schemars(range(min = 1024, max = 65530))]
    pub http_port: u16,

    /// Resources of the driver's container. When it is not given: requests of 10m CPU and 32Mi memory, no limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,

    /// Files of Secrets and ConfigMaps for the driver's container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["name".into()]),
        validation = Rule::new("self.all(a, self.exists_one(b, a.mountPath == b.mountPath))")
            .message("each mountPath of extraVolumes can be there only once"),
    )]
    pub extra_volumes: Vec<ExtraVolume>,

    /// The containers beside the driver.
    #[serde(default)]
    pub sidecars: Sidecars,
}

impl Default for ControllerSpec {
    fn default() -> Self {
        Self {
            replicas: None,
            strategy: None,
            pod_disruption_budget: PodDisruptionBudget::default(),
            leader_election: LeaderElection::default(),
            node_selector: BTreeMap::new(),
            tolerations: None,
            affinity: None,
            topology_spread_constraints: None,
            priority_class_name: default_priority_class(),
            pod_labels: BTreeMap::new(),
            pod_annotations: BTreeMap::new(),
            host_network: false,
            host_aliases: Vec::new(),
            dns_policy: None,
            http_port: default_http_port(),
            resources: None,
            extra_volumes: Vec::new(),
            sidecars: Sidecars::default(),
        }
    }
}

/// How the controller's pods are replaced.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(string(self.maxUnavailable) in ['0', '0%'] && string(self.maxSurge) in ['0', '0%'])")
    .message("maxUnavailable and maxSurge cannot both be 0: no pod could ever be replaced"))]
pub struct ControllerStrategy {
    /// How many may be missing meanwhile: a number or a percentage.
    #[serde(default = "default_strategy_unavailable")]
    #[schemars(schema_with = "count_or_percentage")]
    pub max_unavailable: IntOrString,

    /// How many more than wanted may run meanwhile: a number or a percentage.
    #[serde(default = "default_strategy_surge")]
    #[schemars(schema_with = "count_or_percentage")]
    pub max_surge: IntOrString,
}

/// What a drain of nodes may take away.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PodDisruptionBudget {
    /// Whether there is a budget. There is none for a single pod in any case: it would keep nodes from being drained.
    #[serde(default = "default_true")]
    pub enabled: bool,

    /// How many pods may be missing: a number or a percentage. Pods that are not healthy can always be evicted.
    #[serde(default = "default_strategy_unavailable")]
    #[schemars(schema_with = "count_or_percentage")]
    pub max_unavailable: IntOrString,
}

impl Default for PodDisruptionBudget {
    fn default() -> Self {
        Self {
            enabled: true,
            max_unavailable: default_strategy_unavailable(),
        }
    }
}

/// Where pods look up names.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsPolicy {
    /// The cluster's DNS.
    ClusterFirst,
    /// The cluster's DNS, for pods on the network of their node.
    ClusterFirstWithHostNet,
    /// As the node does.
    Default,
}

impl DnsPolicy {
    /// As Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterFirst => "ClusterFirst",
            Self::ClusterFirstWithHostNet => "ClusterFirstWithHostNet",
            Self::Default => "Default",
        }
    }
}

fn default_true() -> bool {
    true
}

fn default_strategy_unavailable() -> IntOrString {
    IntOrString::Int(1)
}

fn default_strategy_surge() -> IntOrString {
    IntOrString::Int(0)
}

fn default_http_port() -> u16 {
    8080
}

fn default_priority_class() -> String {
    "system-cluster-critical".into()
}
