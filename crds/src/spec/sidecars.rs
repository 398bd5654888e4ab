// SPDX-License-Identifier: Apache-2.0
//! Sidecar containers.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pods::Resources;

/// Which releases of the sidecars run.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SidecarPolicy {
    /// The releases for the Kubernetes version of the cluster. An upgrade of the cluster can replace them.
    #[default]
    Auto,
    /// The newest releases that this version of the operator supports, for every Kubernetes version.
    Pinned,
}

/// A container that translates between the Kubernetes API and the driver, by its name in the pods.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum SidecarName {
    /// Creates and deletes volumes.
    #[serde(rename = "csi-provisioner")]
    Provisioner,
    /// Attaches and detaches volumes.
    #[serde(rename = "csi-attacher")]
    Attacher,
    /// Expands volumes and changes their attributes.
    #[serde(rename = "csi-resizer")]
    Resizer,
    /// Takes and deletes snapshots.
    #[serde(rename = "csi-snapshotter")]
    Snapshotter,
}

/// Settings of a sidecar.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.name != 'csi-attacher' || !has(self.enabled) || self.enabled")
    .message("the attacher cannot be turned off: no volume would reach a node"))]
pub struct SidecarSettings {
    /// Name of the sidecar's container.
    pub name: SidecarName,

    /// Whether the sidecar runs. Defaults to true. Without csi-provisioner, only existing volumes can be
    /// used. csi-attacher cannot be disabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,

    /// Time limit of one call to the driver, as in 90s or 3m. Defaults to 5m for csi-attacher and to 3m for
    /// the others. The driver continues the operation after the limit, and the next attempt joins it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = r"^([1-9][0-9]*(s|m|h))+$"))]
    pub timeout: Option<String>,

    /// Number of volumes that the sidecar processes in parallel. Defaults to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub worker_threads: Option<i32>,

    /// Resources of the container. Defaults to requests of 10m CPU and 32Mi memory, without limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
}
