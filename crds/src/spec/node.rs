// SPDX-License-Identifier: Apache-2.0
//! The node pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, Toleration};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pods::Resources;

/// Root directory of the kubelet in most distributions.
pub const DEFAULT_KUBELET_DIR: &str = "/var/lib/kubelet";

/// The node pods, which mount volumes.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.registration) && self.registration == 'Sidecar') || !has(self.httpPort) || self.httpPort <= 65532")
    .message("registration Sidecar also uses the three ports after httpPort: it can be 65532 at most"))]
pub struct NodeSpec {
    /// Root directory of the kubelet on the nodes. Examples are /var/lib/k0s/kubelet for k0s and
    /// /var/snap/microk8s/common/var/lib/kubelet for MicroK8s.
    #[serde(default = "default_kubelet_dir")]
    #[schemars(length(min = 2, max = 79))]
    #[x_kube(validation = Rule::new("self.matches('^(/[A-Za-z0-9_.-]+)+$') && !self.matches('(^|/)[.][.]?(/|$)')")
        .message("kubeletDir must be an absolute path without '.' or '..' parts, empty parts and a slash at its end, of letters, digits, '_', '.' and '-'"))]
    pub kubelet_dir: String,

    /// Which program registers the driver with the kubelet.
    #[serde(default)]
    pub registration: NodeRegistration,

    /// Whether the pods use the network of their nodes. Without it, the driver queries the metadata service
    /// through the pod network, where it may be unavailable. Nodes then need a config drive or cloud-init as
    /// the source of their zone.
    #[serde(default = "default_host_network")]
    pub host_network: bool,

    /// Port of the driver's metrics in the pods. The probes of the kubelet use the next port. With
    /// hostNetwork, both are ports of the host, the second one on 127.0.0.1, and a second CinderCSIDriver
    /// needs other ports. Registration Sidecar also uses the two ports after them.
    #[serde(default = "default_http_port")]
    #[schemars(range(min = 1024, max = 65534))]
    pub http_port: u16,

    /// Labels of the nodes where the driver runs. Other nodes cannot mount volumes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub node_selector: BTreeMap<String, String>,

    /// Taints that the pods tolerate. Defaults to all taints, because a node without the driver cannot
    /// unmount its volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub tolerations: Option<Vec<Toleration>>,

    /// Scheduling constraints of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

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

    /// Resources of the driver's container. Defaults to requests of 10m CPU and 16Mi memory, without limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,

    /// How the pods are replaced.
    #[serde(default)]
    pub update: NodeUpdate,

    /// A taint that keeps pods off new nodes until the driver is registered there.
    #[serde(default)]
    pub startup_taint: StartupTaint,
}

impl Default for NodeSpec {
    fn default() -> Self {
        Self {
            kubelet_dir: default_kubelet_dir(),
            registration: NodeRegistration::default(),
            host_network: default_host_network(),
            http_port: default_http_port(),
            node_selector: BTreeMap::new(),
            tolerations: None,
            affinity: None,
            priority_class_name: default_priority_class(),
            pod_labels: BTreeMap::new(),
            pod_annotations: BTreeMap::new(),
            resources: None,
            update: NodeUpdate::default(),
            startup_taint: StartupTaint::default(),
        }
    }
}

/// Which program registers the driver with the kubelet.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeRegistration {
    /// The driver itself, which also serves its own liveness probe: one container per node. The registration
    /// outlives a restart of the container.
    #[default]
    Integrated,
    /// The sidecars node-driver-registrar and livenessprobe: three containers per node.
    Sidecar,
}

/// How the node pods are replaced. Two pods never run on one node.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct NodeUpdate {
    /// How old pods are replaced. RollingUpdate: the operator replaces them on maxUnavailable nodes at a
    /// time. OnDelete: an administrator or another controller deletes the old pods.
    #[serde(rename = "type", default)]
    pub kind: NodeUpdateType,

    /// Maximum number of nodes without the driver at the same time, as a number or a percentage. It has no
    /// effect on OnDelete.
    #[serde(default = "default_max_unavailable")]
    #[schemars(extend("minimum" = 1, "pattern" = "^([1-9][0-9]?|100)%$"))]
    pub max_unavailable: IntOrString,
}

impl Default for NodeUpdate {
    fn default() -> Self {
        Self {
            kind: NodeUpdateType::default(),
            max_unavailable: default_max_unavailable(),
        }
    }
}

/// How old node pods are replaced.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeUpdateType {
    /// The operator replaces them on maxUnavailable nodes at a time.
    #[default]
    RollingUpdate,
    /// Another client deletes them, for example when it replaces the node.
    OnDelete,
}

impl NodeUpdateType {
    /// Value in the Kubernetes API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RollingUpdate => "RollingUpdate",
            Self::OnDelete => "OnDelete",
        }
    }
}

/// A taint on new nodes, which the operator removes when the driver is registered there.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct StartupTaint {
    /// Whether the operator removes the taint.
    #[serde(default)]
    pub enabled: bool,

    /// Key of the taint. Defaults to the driver's name followed by /agent-not-ready. Its value and its effect
    /// do not matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 317),
        regex(pattern = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
    )]
    #[x_kube(validation = Rule::new("!self.matches('^([^/]*[.])?(kubernetes|k8s)[.]io/')")
        .message("a taint of Kubernetes itself cannot be the startup taint"))]
    pub key: Option<String>,
}

fn default_kubelet_dir() -> String {
    DEFAULT_KUBELET_DIR.into()
}

/// The metadata service answers on the network of the node in every cloud.
fn default_host_network() -> bool {
    true
}

/// Differs from 9808, the default of other drivers.
fn default_http_port() -> u16 {
    9897
}

fn default_max_unavailable() -> IntOrString {
    IntOrString::String("10%".into())
}

fn default_priority_class() -> String {
    "system-node-critical".into()
}
