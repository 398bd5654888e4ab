//! Who may talk to the controller's pods, and whom they may talk to.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A NetworkPolicy for the controller's pods. The nodes' pods are on the network of their node, where there are no policies.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicy {
    /// Whether there is one.
    #[serde(default)]
    pub mode: NetworkPolicyMode,

    /// TCP ports of OpenStack's endpoints and of proxies on the way there, besides those of the Kubernetes API (443 and 6443) and
    /// DNS. When it is not given, every TCP port can be reached: clouds differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(range(min = 1, max = 65535)))]
    pub egress_ports: Vec<u16>,
}

/// Whether there is a NetworkPolicy.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkPolicyMode {
    /// The pods can be asked for metrics, and reach DNS, the Kubernetes API and OpenStack.
    #[default]
    Enabled,
    /// No policy.
    Disabled,
}
