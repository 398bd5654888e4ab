//! The controller's pods and the nodes' pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use schemars::JsonSchema;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Where most distributions keep the kubelet's state.
pub const DEFAULT_KUBELET_DIR: &str = "/var/lib/kubelet";

/// The pods that talk to OpenStack.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ControllerSpec {
    /// How many pods run; one of them works at a time, the others wait to take over. When it is not given: two if the
    /// cluster has at least two nodes, else one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 5))]
    pub replicas: Option<i32>,

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

    /// Priority of the pods.
    #[serde(default = "controller_priority_class")]
    #[schemars(length(max = 253))]
    pub priority_class_name: String,

    /// Resources of the driver's container. When it is not given: requests of 10m CPU and 32Mi memory, no limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,

    /// The containers beside the driver.
    #[serde(default)]
    pub sidecars: Sidecars,
}

impl Default for ControllerSpec {
    fn default() -> Self {
        Self {
            replicas: None,
            node_selector: BTreeMap::new(),
            tolerations: None,
            affinity: None,
            priority_class_name: controller_priority_class(),
            resources: None,
            sidecars: Sidecars::default(),
        }
    }
}

/// The containers that translate between the Kubernetes API and the driver.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Sidecars {
    /// csi-provisioner creates and deletes volumes. Its timeout is 3m and its longest pause between tries 30m when they
    /// are not given.
    #[serde(default)]
    pub provisioner: SidecarSettings,

    /// csi-attacher attaches and detaches volumes. Its timeout is 5m and its longest pause between tries 5m when they
    /// are not given.
    #[serde(default)]
    pub attacher: SidecarSettings,
}

/// How a sidecar works.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SidecarSettings {
    /// How long the sidecar waits for one answer of the driver, as in 90s or 3m. The driver goes on with the work after
    /// that, and the next try joins it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = r"^([1-9][0-9]*(s|m|h))+$"))]
    pub timeout: Option<String>,

    /// How many volumes are worked on at once; 100 when it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub worker_threads: Option<i32>,

    /// The longest pause between two tries for the same volume, as in 90s or 3m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = r"^([1-9][0-9]*(s|m|h))+$"))]
    pub retry_interval_max: Option<String>,

    /// Requests per second to the Kubernetes API; 20 when it is not given.
    #[serde(rename = "kubeAPIQPS", default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub kube_api_qps: Option<i32>,

    /// Requests to the Kubernetes API that may be made at once after a pause; 100 when it is not given.
    #[serde(rename = "kubeAPIBurst", default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub kube_api_burst: Option<i32>,

    /// Resources of the container. When it is not given: requests of 10m CPU and 32Mi memory, no limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
}

/// The pods that mount volumes.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodeSpec {
    /// The kubelet's root directory on the nodes: /var/lib/kubelet, or for example /var/lib/k0s/kubelet with k0s and
    /// /var/snap/microk8s/common/var/lib/kubelet with MicroK8s. Volumes that are mounted stay where they are, so change
    /// it only on a cluster without any.
    #[serde(default = "default_kubelet_dir")]
    #[schemars(length(min = 2, max = 79))]
    #[x_kube(validation = Rule::new("self.matches('^(/[A-Za-z0-9_.-]+)+$') && !self.matches('(^|/)[.][.]?(/|$)')")
        .message("kubeletDir must be an absolute path without '.' or '..' parts, empty parts and a slash at its end, of letters, digits, '_', '.' and '-'"))]
    pub kubelet_dir: String,

    /// Port of the driver's HTTP server on every node, for the kubelet's checks and for metrics. It is a port of the host:
    /// a second CinderCSIDriver needs another one.
    #[serde(default = "default_http_port")]
    #[schemars(range(min = 1024, max = 65535))]
    pub http_port: u16,

    /// Labels of the nodes where the driver runs. Volumes cannot be mounted on others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub node_selector: BTreeMap<String, String>,

    /// Taints that the pods tolerate. When it is not given, all: a node without the driver cannot unmount its volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub tolerations: Option<Vec<Toleration>>,

    /// Where the pods run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// Priority of the pods.
    #[serde(default = "node_priority_class")]
    #[schemars(length(max = 253))]
    pub priority_class_name: String,

    /// Resources of the driver's container. When it is not given: requests of 10m CPU and 16Mi memory, no limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,

    /// How many nodes may be without the driver at once while it is updated: a number or a percentage.
    #[serde(default = "default_max_unavailable")]
    #[schemars(extend("minimum" = 1, "pattern" = "^([1-9][0-9]?|100)%$"))]
    pub max_unavailable: IntOrString,
}

impl Default for NodeSpec {
    fn default() -> Self {
        Self {
            kubelet_dir: default_kubelet_dir(),
            http_port: default_http_port(),
            node_selector: BTreeMap::new(),
            tolerations: None,
            affinity: None,
            priority_class_name: node_priority_class(),
            resources: None,
            max_unavailable: default_max_unavailable(),
        }
    }
}

/// What a container asks for and may use at most.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// What the scheduler sets aside, by resource, as in cpu: 10m.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "quantities")]
    pub requests: BTreeMap<String, Quantity>,

    /// What the container may use at most, by resource, as in memory: 256Mi.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "quantities")]
    pub limits: BTreeMap<String, Quantity>,
}

/// Amounts by resource. Kubernetes' own type says nothing about how an amount is written, so that a misspelt one would only
/// be noticed when the pods are made.
fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {
            "x-kubernetes-int-or-string": true,
            "pattern": r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?$",
        },
    })
}

fn default_kubelet_dir() -> String {
    DEFAULT_KUBELET_DIR.into()
}

/// Not 9808, which other drivers take when nobody tells them otherwise.
fn default_http_port() -> u16 {
    9897
}

fn default_max_unavailable() -> IntOrString {
    IntOrString::String("10%".into())
}

fn controller_priority_class() -> String {
    "system-cluster-critical".into()
}

fn node_priority_class() -> String {
    "system-node-critical".into()
}
