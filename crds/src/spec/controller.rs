// SPDX-License-Identifier: Apache-2.0
//! The controller pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, Toleration, TopologySpreadConstraint};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::pods::Resources;
use super::sidecars::SidecarSettings;

/// The controller pods, which send requests to OpenStack.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ControllerSpec {
    /// Number of pods. Defaults to two if the cluster has at least two nodes, else to one. One pod is the
    /// leader, and the others are on standby.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 5))]
    pub replicas: Option<i32>,

    /// Labels of the nodes where the pods may run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub node_selector: BTreeMap<String, String>,

    /// Taints that the pods tolerate. Defaults to those of control plane nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub tolerations: Option<Vec<Toleration>>,

    /// Scheduling preferences of the pods. Defaults to pods on different nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// How the pods are spread over the cluster. Defaults to different zones, if possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    pub topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,

    /// Name of the PriorityClass of the pods.
    #[serde(default = "default_priority_class")]
    #[schemars(length(max = 253))]
    pub priority_class_name: String,

    /// Additional labels of the pods. They cannot replace the operator's own labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub pod_labels: BTreeMap<String, String>,

    /// Additional annotations of the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub pod_annotations: BTreeMap<String, String>,

    /// Whether the pods use the network of their nodes, for clouds that only nodes can reach. httpPort and
    /// the ports after it are then ports of the node.
    #[serde(default)]
    pub host_network: bool,

    /// Port of the driver's metrics in the pods. The probes of the kubelet use the next port, and the
    /// sidecars the four ports after that.
    #[serde(default = "default_http_port")]
    #[schemars(range(min = 1024, max = 65530))]
    pub http_port: u16,

    /// Resources of the driver's container. Defaults to requests of 10m CPU and 32Mi memory, without limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,

    /// Settings of the sidecars. csi-provisioner creates and deletes volumes. csi-attacher attaches and
    /// detaches them. csi-resizer expands them and changes their attributes. csi-snapshotter takes and
    /// deletes snapshots, if the cluster has the snapshot API.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub sidecars: Vec<SidecarSettings>,

    /// Whether claims may use VolumeSnapshots and claims of other namespaces as their source. A
    /// ReferenceGrant in that namespace must allow it. The cluster needs the CustomResourceDefinition of
    /// ReferenceGrants (Gateway API, v1beta1) and the alpha feature gate CrossNamespaceVolumeDataSource of
    /// the API server.
    #[serde(default)]
    pub cross_namespace_sources: bool,
}

impl Default for ControllerSpec {
    fn default() -> Self {
        Self {
            replicas: None,
            node_selector: BTreeMap::new(),
            tolerations: None,
            affinity: None,
            topology_spread_constraints: None,
            priority_class_name: default_priority_class(),
            pod_labels: BTreeMap::new(),
            pod_annotations: BTreeMap::new(),
            host_network: false,
            http_port: default_http_port(),
            resources: None,
            sidecars: Vec::new(),
            cross_namespace_sources: false,
        }
    }
}

fn default_http_port() -> u16 {
    8080
}

fn default_priority_class() -> String {
    "system-cluster-critical".into()
}
