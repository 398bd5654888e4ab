// SPDX-License-Identifier: Apache-2.0
//! What the operator has seen: `status`. Nothing in it changes by itself while the cluster is at rest.

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

/// What the operator has seen of the driver.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CinderCSIDriverStatus {
    /// What the operator does with the driver: spec.managementState, or how far its removal is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<DriverState>,

    /// The generation of the spec that this status is about. -1 until an operator observes the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The version of the driver that is in place everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// The version that the operator brings the driver to: its own. While pods change within the version, a token follows it, as in
    /// 1.2.3+5f2c01ab. Its value as spec.update.approvedVersion approves the update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_version: Option<String>,

    /// The components of the driver: how many pods each has, how many are up to date, how many serve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub components: Vec<ComponentStatus>,

    /// Version of the Kubernetes API, by which the sidecars are chosen. Another version counts once the API servers have reported it for an
    /// hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_version: Option<String>,

    /// The optional APIs by which the sidecars are chosen. A change counts once the API servers have reported it for an hour.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "optionalAPIs")]
    pub optional_apis: Option<Vec<String>>,

    /// The versions of Kubernetes that the chosen releases of the sidecars are for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar_version_set: Option<String>,

    /// The containers beside the driver.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub sidecars: Vec<SidecarStatus>,

    /// Fields of the spec that are given and have no effect, because the API server of this version does not know them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsupported_fields: Vec<String>,

    /// The rollout that is under way, waits or has stopped; not there when everything is as it should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutStatus>,

    /// What would be changed if spec.managementState were Managed. Only there under DryRun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_changes: Option<PendingChanges>,

    /// Available, Progressing, Degraded, each with a reason and a sentence that says what to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// The pods that talk to OpenStack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<ControllerStatus>,

    /// The nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodesStatus>,

    /// The clouds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub clouds: Vec<CloudStatus>,

    /// The namespace where the driver runs. An operator that would run it in another namespace changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operand_namespace: Option<String>,

    /// The project and region where the volumes of each cloud are. Credentials of another project or region are refused while
    /// anything in the cluster needs the driver. The annotation csi.openstack.org/places of the CSIDriver object has the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["cloud".into()]))]
    pub places: Vec<CloudPlace>,

    /// The snapshot contents of this driver in the last successful list, by kind. The record survives a deletion of their
    /// CustomResourceDefinitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["kind".into()]))]
    pub snapshot_contents: Vec<RecordedContents>,

    /// What exists of this driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<VolumesStatus>,

    /// Whether zones are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyStatus>,

    /// StorageClasses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_classes: Option<StorageClassesStatus>,

    /// How far another installation of the driver is replaced, or what would change if it were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adoption: Option<AdoptionStatus>,

    /// What the removal of the driver waits for. Only there while it is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<DeletionStatus>,
}

/// What the operator does with the driver.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverState {
    /// It makes and keeps the driver.
    Managed,
    /// It changes nothing for now.
    Paused,
    /// It changes nothing and reports what it would change.
    DryRun,
    /// It changes nothing and reports how the driver is.
    Unmanaged,
    /// It removes the driver, because spec.managementState is Removed.
    Removing,
    /// It has removed the driver, or has released it. This object stays.
    Removed,
    /// It removes the driver, because this object is being deleted.
    Deleting,
    /// The driver is to go and stays, because something needs it or spec.managementState forbids changes; see condition
    /// DeletionBlocked.
    DeletionBlocked,
}

/// The pods that talk to OpenStack.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ControllerStatus {
    /// How many there should be.
    pub desired: i32,
    /// How many serve, those of an older version included.
    pub ready: i32,
}

/// The nodes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct NodesStatus {
    /// On how many the driver should run.
    pub desired: i32,
    /// On how many the kubelet knows it: those whose CSINode object names the driver.
    pub registered: i32,
    /// Some of those where it should run and is not registered, by name; at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unregistered: Vec<String>,
    /// Those that were without the driver when a rollout came to them, or joined without it, by name, until they have it; at most 200. They
    /// do not count against spec.node.update.maxUnavailable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken_before: Vec<String>,
}

/// What a removal waits for.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct DeletionStatus {
    /// The objects that block the removal, by kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["kind".into()]))]
    pub blockers: Vec<Blocker>,
}

/// Objects of one kind that a removal waits for.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Blocker {
    /// Their kind, such as PersistentVolume.
    pub kind: String,
    /// How many there are.
    pub count: i32,
    /// Some of them, by name; at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}
