// SPDX-License-Identifier: Apache-2.0
//! What becomes of another installation of this driver.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is done about a driver that is installed in the cluster under the name of this object already: the Go driver
/// (cinder-csi-plugin), or this one after its object went.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Adoption {
    /// Refuse: nothing is done beside another installation. Adopt: what an operator made under this object's name and released
    /// (spec.deletion.policy Orphan) is this object's again, without a pod restarted. Migrate: this driver replaces the Go driver: its controller is stopped, and then this driver's
    /// controller takes its place; then the node plugins are replaced, as many at once as spec.node.update.maxUnavailable says. Pods
    /// keep their volumes. Migrate needs the role in config/rbac/adoption.
    #[serde(default)]
    pub mode: AdoptionMode,

    /// The namespace that the other installation is in.
    #[serde(default = "default_namespace")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: String,
}

impl Default for Adoption {
    fn default() -> Self {
        Self {
            mode: AdoptionMode::default(),
            namespace: default_namespace(),
        }
    }
}

/// Whether another installation of this driver is replaced.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdoptionMode {
    /// It stays, and nothing is done beside it.
    #[default]
    Refuse,
    /// What an operator has released is adopted again.
    Adopt,
    /// It is replaced part by part.
    Migrate,
}

fn default_namespace() -> String {
    "kube-system".into()
}
