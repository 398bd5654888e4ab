// SPDX-License-Identifier: Apache-2.0
//! Removal of the driver.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the driver is removed when this object is deleted or managementState is Removed.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Deletion {
    /// How the operator handles existing volumes. Block: the driver remains until none of its volumes exists.
    /// Orphan: the driver continues to run, and the operator no longer manages it. Force: the operator
    /// removes the driver although volumes exist, which can then not be mounted, detached or deleted. Force
    /// requires the annotation csi.openstack.org/force-delete with the uid of this object.
    #[serde(default)]
    pub policy: DeletionPolicy,

    /// Time for the kubelets to unregister the driver, as in 5m. After it, the operator deletes the node pods
    /// anyway.
    #[serde(default = "default_drain_timeout")]
    #[schemars(length(max = 16), regex(pattern = r"^([1-9][0-9]*(s|m|h))+$"))]
    pub drain_timeout: String,

    /// Whether PersistentVolumes with reclaim policy Retain do not block the removal. Their data remains in
    /// Cinder in any case. A volume that is attached to a node still blocks the removal.
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

/// How a removal handles existing volumes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeletionPolicy {
    /// The operator waits until they are deleted.
    #[default]
    Block,
    /// The operator deletes nothing.
    Orphan,
    /// The operator deletes the driver although volumes exist.
    Force,
}

fn default_drain_timeout() -> String {
    "5m".into()
}
