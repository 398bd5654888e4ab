// SPDX-License-Identifier: Apache-2.0
//! Adoption of another installation of this driver.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the operator handles an existing driver with the name of this object: the Go driver
/// (cinder-csi-plugin), or this driver after its object was deleted.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Adoption {
    /// How the operator handles the existing installation. Refuse: it changes nothing while another
    /// installation exists. Adopt: it adopts objects that an operator created under this object's name and
    /// released (spec.deletion.policy Orphan). Adopt restarts no pods. Migrate: it replaces the Go driver. It
    /// stops the controller of the Go driver and starts this driver's controller. Then it replaces the node
    /// plugins, at most spec.node.update.maxUnavailable at a time. Volumes stay mounted in pods. Migrate
    /// needs the role in config/rbac/adoption.
    #[serde(default)]
    pub mode: AdoptionMode,

    /// Namespace of the other installation.
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

/// Whether the operator replaces another installation of this driver.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdoptionMode {
    /// The other installation remains, and the operator changes nothing.
    #[default]
    Refuse,
    /// The operator adopts released objects.
    Adopt,
    /// The operator replaces the other installation step by step.
    Migrate,
}

fn default_namespace() -> String {
    "kube-system".into()
}
