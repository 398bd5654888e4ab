//! The containers beside the driver, and how their replicas agree on who works.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pods::Resources;

/// Which releases of the sidecars run.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SidecarPolicy {
    /// Those that belong to the version of the cluster. After an upgrade of the cluster others may take their place.
    #[default]
    Auto,
    /// The newest that this version of the operator knows, whatever the version of the cluster.
    Pinned,
}

/// The containers that translate between the Kubernetes API and the driver.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.attacher.enabled) || self.attacher.enabled")
    .message("the attacher cannot be turned off: no volume would reach a node"))]
pub struct Sidecars {
    /// csi-provisioner creates and deletes volumes. When they are not given, its timeout is 3m and its longest pause
    /// between tries 30m. Without it, only volumes that somebody else made can be used.
    #[serde(default)]
    pub provisioner: SidecarSettings,

    /// csi-attacher attaches and detaches volumes. When they are not given, its timeout is 5m and its longest pause between
    /// tries 5m.
    #[serde(default)]
    pub attacher: SidecarSettings,

    /// csi-resizer lets volumes grow and changes their attributes. When they are not given, its timeout is 3m and its longest
    /// pause between tries 30m.
    #[serde(default)]
    pub resizer: SidecarSettings,

    /// csi-snapshotter takes and deletes snapshots. It runs only where the cluster has the API of snapshots. When they are not
    /// given, its timeout is 3m and its longest pause between tries 30m.
    #[serde(default)]
    pub snapshotter: SidecarSettings,

    /// csi-external-health-monitor-controller reports volumes that are not well as events on their claims. It runs only where
    /// `enabled` is true, and wants the roles of config/rbac/health-monitor, because it watches every pod of the cluster. When it
    /// is not given, its timeout is 3m; it has no pause between tries.
    #[serde(default)]
    pub health_monitor: SidecarSettings,
}

/// How a sidecar works.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SidecarSettings {
    /// Whether the sidecar runs. When it is not given: yes, but for the health monitor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,

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

    /// Feature gates of the sidecar, by name. They go before those that the operator chooses by the versions of sidecar and
    /// cluster. A sidecar does not start with a gate that it does not know.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub feature_gates: BTreeMap<String, bool>,

    /// Further arguments, each as in --name=value. Those that the operator sets itself are refused. A sidecar does not start
    /// with an argument that it does not know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        inner(length(min = 3, max = 256), regex(pattern = r"^--?[a-z][a-z0-9-]*(=.*)?$"))
    )]
    #[x_kube(validation = Rule::new("self.all(a, !a.matches('^--?(csi-address|endpoint|kubeconfig|master|leader-election.*|http-endpoint|metrics-address|feature-gates|v|cloud-config|timeout|worker-threads|workers|retry-interval-max|kube-api-qps|kube-api-burst|node-deployment.*|enable-capacity|default-fstype|extra-create-metadata|handle-volume-inuse-error|version|help)(=|$)'))")
        .message("extraArgs must not name an argument that the operator sets: csi-address, kubeconfig, leader-election*, http-endpoint, feature-gates, v, timeout, worker-threads, retry-interval-max, kube-api-*, node-deployment*, default-fstype, extra-create-metadata and their like have fields of their own or are decided by the operator"))]
    pub extra_args: Vec<String>,

    /// Resources of the container. When it is not given: requests of 10m CPU and 32Mi memory, no limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
}

/// How the replicas of a sidecar agree on the one that works. The defaults outlast an API server that is away for more than a
/// minute; a sidecar that ends in order makes room at once.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("duration(self.leaseDuration) > duration(self.renewDeadline) && duration(self.renewDeadline) > duration(self.retryPeriod)")
    .message("leaseDuration must be longer than renewDeadline, and renewDeadline longer than retryPeriod"))]
pub struct LeaderElection {
    /// How long the others wait for the one that works to show itself before one of them takes over.
    #[serde(default = "default_lease_duration")]
    #[schemars(length(max = 32), regex(pattern = r"^([1-9][0-9]*(s|m|h))+$"))]
    pub lease_duration: String,

    /// How long the one that works tries to show itself before it gives up.
    #[serde(default = "default_renew_deadline")]
    #[schemars(length(max = 32), regex(pattern = r"^([1-9][0-9]*(s|m|h))+$"))]
    pub renew_deadline: String,

    /// The pause between two tries.
    #[serde(default = "default_retry_period")]
    #[schemars(length(max = 32), regex(pattern = r"^([1-9][0-9]*(s|m|h))+$"))]
    pub retry_period: String,
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self {
            lease_duration: default_lease_duration(),
            renew_deadline: default_renew_deadline(),
            retry_period: default_retry_period(),
        }
    }
}

fn default_lease_duration() -> String {
    "137s".into()
}

fn default_renew_deadline() -> String {
    "107s".into()
}

fn default_retry_period() -> String {
    "26s".into()
}
