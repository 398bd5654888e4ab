// SPDX-License-Identifier: Apache-2.0
//! `status`, the observed state. It does not change while the cluster is idle.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod adoption;
mod classes;
mod cloud;
mod pods;
mod rollout;
mod volumes;

pub use adoption::{AdoptionStatus, AdoptionStep};
pub use classes::{PendingTopology, StorageClassesStatus, TopologyStatus};
pub use cloud::{CloudPlace, CloudStatus};
pub use pods::SidecarStatus;
pub use rollout::{
    ChangeAction, ComponentStatus, FailedNode, PendingChange, PendingChanges, RolloutState, RolloutStatus,
};
pub use volumes::{RecordedContents, StuckVolume, VolumesStatus};

/// Observed state of the driver.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CinderCSIDriverStatus {
    /// How the operator manages the driver: the value of spec.managementState, or the progress of a removal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<DriverState>,

    /// Generation of the spec that this status describes. It is -1 until an operator observes the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Version of the driver that runs in all pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// Version that the operator updates the driver to: its own. During an update within the version it has a
    /// token, as in 1.2.3+5f2c01ab. To approve the update, copy the value to spec.update.approvedVersion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_version: Option<String>,

    /// Components of the driver, with the number of desired, updated and ready pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub components: Vec<ComponentStatus>,

    /// Version of the Kubernetes API, which selects the releases of the sidecars. A new version takes effect
    /// after the API servers have reported it for an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_version: Option<String>,

    /// Optional APIs of the cluster, which also select the sidecars. A change takes effect after the API
    /// servers have reported it for an hour.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "optionalAPIs")]
    pub optional_apis: Option<Vec<String>>,

    /// Kubernetes versions that the selected sidecar releases support.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar_version_set: Option<String>,

    /// Sidecar containers of the driver's pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub sidecars: Vec<SidecarStatus>,

    /// Fields of the spec that have no effect, because the API server of this version does not support them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsupported_fields: Vec<String>,

    /// Rollout that is in progress, waits or has stopped. Absent when no rollout is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutStatus>,

    /// Changes that the operator would apply under spec.managementState Managed. Present only under DryRun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_changes: Option<PendingChanges>,

    /// Conditions such as Available, Progressing and Degraded. Each has a reason and a message with the
    /// required action.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// State of the controller pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<ControllerStatus>,

    /// State of the driver on the nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodesStatus>,

    /// State of the clouds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub clouds: Vec<CloudStatus>,

    /// Namespace of the driver's pods. An operator that is configured for another namespace changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operand_namespace: Option<String>,

    /// Project and region of the volumes of each cloud. The operator refuses credentials of another project
    /// or region while an object in the cluster needs the driver. The annotation csi.openstack.org/places of
    /// the CSIDriver object has the same value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["cloud".into()]))]
    pub places: Vec<CloudPlace>,

    /// Number of snapshot contents of this driver in the last successful list, by kind. The record outlives
    /// their CustomResourceDefinitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["kind".into()]))]
    pub snapshot_contents: Vec<RecordedContents>,

    /// Volumes of this driver with stuck operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<VolumesStatus>,

    /// Whether availability zones are in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyStatus>,

    /// State of the StorageClasses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_classes: Option<StorageClassesStatus>,

    /// Progress of a migration from another installation of the driver, or the changes that a migration would
    /// apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adoption: Option<AdoptionStatus>,

    /// Objects that block the removal of the driver. Present only while a removal is requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<DeletionStatus>,
}

/// How the operator manages the driver.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverState {
    /// The operator installs and updates the driver.
    Managed,
    /// The operator suspends all changes.
    Paused,
    /// The operator changes nothing and reports its pending changes.
    DryRun,
    /// The operator changes nothing and reports the state of the driver.
    Unmanaged,
    /// The operator removes the driver, because spec.managementState is Removed.
    Removing,
    /// The operator has removed or released the driver. This object remains.
    Removed,
    /// The operator removes the driver, because this object is being deleted.
    Deleting,
    /// The removal is blocked, because an object needs the driver or spec.managementState forbids changes.
    /// Condition DeletionBlocked has the details.
    DeletionBlocked,
}

/// State of the controller pods.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ControllerStatus {
    /// Desired number of pods.
    pub desired: i32,
    /// Number of ready pods, including pods of an older version.
    pub ready: i32,
}

/// State of the driver on the nodes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct NodesStatus {
    /// Number of nodes where the driver should run.
    pub desired: i32,
    /// Number of nodes whose kubelet has registered the driver: their CSINode object lists it.
    pub registered: i32,
    /// Names of nodes where the driver should run and is not registered, at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unregistered: Vec<String>,
    /// Names of nodes that had no working driver when the rollout reached them or when they joined, at most
    /// 200. A node remains in the list until the driver serves there. These nodes do not count against
    /// spec.node.update.maxUnavailable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken_before: Vec<String>,
}

/// Objects that block a removal.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct DeletionStatus {
    /// The objects that block the removal, by kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["kind".into()]))]
    pub blockers: Vec<Blocker>,
}

/// Objects of one kind that block a removal.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Blocker {
    /// Kind of the objects, such as PersistentVolume.
    pub kind: String,
    /// Number of objects.
    pub count: i32,
    /// Names of some of the objects, at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}
