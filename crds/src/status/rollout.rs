// SPDX-License-Identifier: Apache-2.0
//! What runs in which version, what is on its way, and what would be done.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One program of the driver.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ComponentStatus {
    /// controller or node.
    pub name: String,
    /// The kind of the object that its pods belong to.
    pub kind: String,
    /// The version that the object was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The image of the driver's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// How many pods there should be.
    pub desired: i32,
    /// How many are as the object wants them.
    pub updated: i32,
    /// How many serve. On nodes: where the pod is Ready and the kubelet knows the driver.
    pub ready: i32,
}

/// A rollout that is under way, waits or has stopped.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// What it is about now: controller or node.
    pub component: String,
    /// Whether it goes on.
    pub state: RolloutState,
    /// The version that it comes from; not there when the version stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_version: Option<String>,
    /// The version that it goes to.
    pub to_version: String,
    /// How many pods of the component there should be.
    pub desired: i32,
    /// How many of them are done.
    pub updated: i32,
    /// Pods that did not come up in time, by node; at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["node".into()]))]
    pub failed: Vec<FailedNode>,
}

/// Whether a rollout goes on.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RolloutState {
    /// Pods are being replaced.
    #[default]
    Rolling,
    /// It waits for spec.update.approvedVersion.
    WaitingForApproval,
    /// It would lead to an older version, which spec.update.allowDowngrade does not allow.
    DowngradeRefused,
    /// The operator is more than one minor version later than the driver.
    SkipRefused,
    /// Pods did not come up in time; no further ones are replaced.
    Stopped,
    /// spec.managementState forbids changes.
    Paused,
    /// spec.node.update.type leaves it to the administrator to delete the node pods that are out of date.
    OnDelete,
}

/// A node whose new pod did not come up.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct FailedNode {
    /// The node.
    pub node: String,
    /// The pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// What is wrong.
    pub reason: String,
}

/// What the operator would do if spec.managementState were Managed.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PendingChanges {
    /// How many objects would change.
    pub count: i32,
    /// How many of these changes replace pods, or delete or recreate an object.
    pub disruptive: i32,
    /// The first 20 of them, in the order in which they would be made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<PendingChange>,
}

/// One object that would change.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PendingChange {
    /// The object, as in `DaemonSet cinder-csi/cinder-csi-node`.
    pub resource: String,
    /// What would be done.
    pub action: ChangeAction,
    /// Whether pods are replaced, or the object is deleted or recreated.
    pub disruptive: bool,
    /// Paths of the fields that differ, at most 10, never their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}

/// What would be done to an object.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangeAction {
    /// It is missing and would be made.
    #[default]
    Create,
    /// It would be brought to what the spec and the operator's version want.
    Update,
    /// Another client changed it, and it would be restored.
    Repair,
    /// Fields differ that cannot be changed: it would be deleted and recreated.
    Recreate,
    /// It is no longer wanted and would be deleted.
    Delete,
    /// It blocks another change, and would be left alone; condition Degraded says what to do.
    Blocked,
}
