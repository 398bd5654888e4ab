// SPDX-License-Identifier: Apache-2.0
//! Network policy of the controller pods.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// NetworkPolicy for the controller pods. Policies do not apply to the node pods, which use the network of
/// their node.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicy {
    /// Whether the operator creates the NetworkPolicy.
    #[serde(default)]
    pub mode: NetworkPolicyMode,
}

/// Whether the operator creates the NetworkPolicy.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkPolicyMode {
    /// Allows requests for metrics, and connections to DNS, the Kubernetes API and OpenStack.
    #[default]
    Enabled,
    /// No policy.
    Disabled,
}
