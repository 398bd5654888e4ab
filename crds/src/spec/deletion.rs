// SPDX-License-Identifier: Apache-2.0
//! How the driver goes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happens when this object is deleted, or managementState is Removed.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Deletion {
    /// Block: the driver stays until none of its volumes is left. Orphan: everything goes on running, and the operator no
    /// longer manages it. Force: the driver goes although volumes are left, which can then be neither mounted,
    /// detached nor deleted; it takes the annotation csi.openstack.org/force-delete with the uid of this object.
    #[serde(default)]
    pub policy: DeletionPolicy,

    /// How long the kubelets may take to unregister the driver before its pods are deleted anyway, as in 5m.
    #[serde(default = "default_drain_timeout")]
    #[schemars(length(max = 16), regex(pattern = r"^([1-9][0-9]*(s|m|h))+$"))]
    pub drain_timeout: String,

    /// Whether PersistentVolumes with reclaim policy Retain hold nothing up: their data stays in Cinder in any case. A volume
    /// that is attached to a node still does.
    #[serde(default)]
    pub ignore_retained: bool,
}

impl Default for Deletion {
    fn default() -> Self {
        Self {
            policy: DeletionPolicy::default(),
            drain_timeout: default_drain_timeout(),
            ignore_retained: false,
        }
    }
}

/// What a removal does about volumes that are left.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeletionPolicy {
    /// It waits for them to go.
    #[default]
    Block,
    /// It deletes nothing.
    Orphan,
    /// It deletes the driver although they exist.
    Force,
}

fn default_drain_timeout() -> String {
    "5m".into()
}
