// SPDX-License-Identifier: Apache-2.0
//! Versions of the components, rollouts and pending changes.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A component of the driver.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ComponentStatus {
    /// Name of the component: controller or node.
    pub name: String,
    /// Kind of the object that owns its pods.
    pub kind: String,
    /// Version of the driver in the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Image of the driver's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Desired number of pods.
    pub desired: i32,
    /// Number of pods that match the object.
    pub updated: i32,
    /// Number of ready pods. On nodes, the kubelet must also have registered the driver.
    pub ready: i32,
}

/// A rollout that is in progress, waits or has stopped.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// Component that the rollout currently updates: controller or node.
    pub component: String,
    /// Progress of the rollout.
    pub state: RolloutState,
    /// Version before the rollout. Absent if the version does not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_version: Option<String>,
    /// Version after the rollout.
    pub to_version: String,
    /// Desired number of pods of the component.
    pub desired: i32,
    /// Number of updated pods of the component.
    pub updated: i32,
    /// Nodes whose pod was not ready in time, at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["node".into()]))]
    pub failed: Vec<FailedNode>,
}

/// Progress of a rollout.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RolloutState {
    /// The operator replaces pods.
    #[default]
    Rolling,
    /// The rollout waits for spec.update.approvedVersion.
    WaitingForApproval,
    /// The rollout would be a downgrade, which spec.update.allowDowngrade does not permit.
    DowngradeRefused,
    /// The operator is more than one minor version newer than the driver.
    SkipRefused,
    /// Pods were not ready in time, and the operator replaces no further ones.
    Stopped,
    /// spec.managementState forbids changes.
    Paused,
    /// Under spec.node.update.type OnDelete, an administrator deletes the outdated node pods.
    OnDelete,
}

/// A node whose new pod is not ready.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct FailedNode {
    /// Name of the node.
    pub node: String,
    /// Name of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Cause of the failure.
    pub reason: String,
}

/// Changes that the operator would apply under spec.managementState Managed.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PendingChanges {
    /// Number of objects that would change.
    pub count: i32,
    /// Number of changes that replace pods, or delete or recreate an object.
    pub disruptive: i32,
    /// The first 20 changes, in the order in which the operator would apply them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<PendingChange>,
}

/// An object that would change.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PendingChange {
    /// The object, as in `DaemonSet cinder-csi/cinder-csi-node`.
    pub resource: String,
    /// The action on the object.
    pub action: ChangeAction,
    /// Whether the change replaces pods, or deletes or recreates the object.
    pub disruptive: bool,
    /// Paths of the fields that differ, at most 10, without their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}

/// An action on an object.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangeAction {
    /// The object is missing and would be created.
    #[default]
    Create,
    /// The object would be updated to the spec and the version of the operator.
    Update,
    /// Another client changed the object, and it would be restored.
    Repair,
    /// Immutable fields differ, and the object would be deleted and recreated.
    Recreate,
    /// The object is obsolete and would be deleted.
    Delete,
    /// The object blocks another change, and would not change itself. Condition Degraded has the required
    /// action.
    Blocked,
}
