// SPDX-License-Identifier: Apache-2.0
//! Stuck operations on volumes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Stuck operations on volumes of this driver.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct VolumesStatus {
    /// Number of operations on volumes that have exceeded their limit in spec.health.stuck.
    #[serde(default)]
    pub stuck_count: i32,

    /// The oldest of these operations, at most spec.health.stuck.maxReported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stuck: Vec<StuckVolume>,
}

/// The contents of one kind that the operator listed.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RecordedContents {
    /// VolumeSnapshotContent or VolumeGroupSnapshotContent.
    pub kind: String,

    /// Lower bound of their number: the list ends at the first page with a content of this driver.
    pub count: i32,
}

/// A stuck operation on a volume.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct StuckVolume {
    /// Kind of the waiting object: PersistentVolumeClaim, PersistentVolume or VolumeAttachment.
    pub kind: String,

    /// Name of the object.
    pub name: String,

    /// The claim as namespace/name, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,

    /// Id of the volume in Cinder, if known.
    #[serde(rename = "volumeID", default, skip_serializing_if = "Option::is_none")]
    pub volume_id: Option<String>,

    /// Name of the node, for an attachment or a detachment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,

    /// The operation: Provision, Attach, Detach, Delete or Resize.
    pub operation: String,

    /// Start of the wait.
    pub since: Time,

    /// Reason, in one word. docs/reference/diagnosis.md lists all reasons.
    pub reason: String,

    /// Cause and required action.
    pub hint: String,
}
