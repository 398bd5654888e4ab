// SPDX-License-Identifier: Apache-2.0
//! Who may talk to the controller's pods, and whom they may talk to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A NetworkPolicy for the controller's pods. The nodes' pods are on the network of their node, where there are no policies.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicy {
    /// Whether there is one.
    #[serde(default)]
    pub mode: NetworkPolicyMode,
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
