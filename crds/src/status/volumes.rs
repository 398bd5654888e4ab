// SPDX-License-Identifier: Apache-2.0
//! Which operations on volumes are in trouble.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Operations on volumes of this driver that are in trouble.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct VolumesStatus {
    /// How many operations on volumes have not ended within the times of spec.health.stuck.
    #[serde(default)]
    pub stuck_count: i32,

    /// Those that have waited longest, at most as many as spec.health.stuck.maxReported says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stuck: Vec<StuckVolume>,
}

/// The contents of one kind that the operator listed.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RecordedContents {
    /// VolumeSnapshotContent or VolumeGroupSnapshotContent.
    pub kind: String,

    /// The lowest possible number of them: the list ends at its first page with one.
    pub count: i32,
}

/// An operation on a volume that does not end.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct StuckVolume {
    /// The kind of the object that waits: PersistentVolumeClaim, PersistentVolume or VolumeAttachment.
    pub kind: String,

    /// Its name.
    pub name: String,

    /// The claim, as namespace/name, where one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,

    /// The volume's id in Cinder, where it is known.
    #[serde(rename = "volumeID", default, skip_serializing_if = "Option::is_none")]
    pub volume_id: Option<String>,

    /// The node, for an attachment or a detachment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,

    /// Provision, Attach, Detach, Delete or Resize.
    pub operation: String,

    /// Since when it waits.
    pub since: Time,

    /// Why, in one word; docs/reference/diagnosis.md has all of them.
    pub reason: String,

    /// What is the matter and what to do.
    pub hint: String,
}
