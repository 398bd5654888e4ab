// SPDX-License-Identifier: Apache-2.0
//! Snapshots and VolumeAttributesClasses.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::metadata::labels;
use super::storage_class::ReclaimPolicy;
use crate::names::OBJECT_NAME;

/// Snapshots of volumes.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Snapshots {
    /// Whether the driver takes snapshots. Auto: if the cluster has the CustomResourceDefinitions of
    /// VolumeSnapshots. Enabled: the same, and condition Degraded reports missing definitions. Disabled: it
    /// takes no new snapshots, and it stops serving snapshots when no snapshot contents exist. The cluster
    /// also needs one snapshot-controller for all its CSI drivers. Event SnapshotControllerUnavailable
    /// reports its absence.
    #[serde(default)]
    pub mode: SnapshotsMode,

    /// The VolumeSnapshotClasses that the operator manages. Defaults to one class with the name of the
    /// default StorageClass. With an empty list, the operator creates none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["name".into()]),
        validation = Rule::new("self.filter(c, has(c.isDefault) && c.isDefault).size() <= 1")
            .message("at most one VolumeSnapshotClass can be the default")
    )]
    pub classes: Option<Vec<SnapshotClass>>,

    /// The VolumeGroupSnapshotClasses that the operator manages, if the cluster has their API
    /// (groupsnapshot.storage.k8s.io/v1). Defaults to one class with the name of the default StorageClass.
    /// With an empty list, the operator creates none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["name".into()]),
        validation = Rule::new("self.filter(c, has(c.isDefault) && c.isDefault).size() <= 1")
            .message("at most one VolumeGroupSnapshotClass can be the default")
    )]
    pub group_classes: Option<Vec<GroupSnapshotClass>>,
}

/// Whether the driver takes snapshots.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SnapshotsMode {
    /// If the cluster has the API of VolumeSnapshots.
    #[default]
    Auto,
    /// Always.
    Enabled,
    /// Never.
    Disabled,
}

/// A VolumeSnapshotClass.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(has(self.type) && self.type == 'backup') || !(has(self.incremental) && self.incremental)")
        .message("incremental is about backups: set type to backup"),
    validation = Rule::new("(has(self.type) && self.type == 'backup') || !(has(self.availability) || has(self.backupMaxDurationSecondsPerGB))")
        .message("availability and backupMaxDurationSecondsPerGB are about backups: set type to backup")
)]
pub struct SnapshotClass {
    /// Name of the VolumeSnapshotClass.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub name: String,

    /// Whether this is the default class of snapshots. When it is false, the operator does not manage the
    /// annotation of the default class.
    #[serde(default)]
    pub is_default: bool,

    /// Whether the snapshot in Cinder is deleted or retained when its VolumeSnapshot is deleted.
    #[serde(default)]
    pub deletion_policy: ReclaimPolicy,

    /// Type of snapshot in Cinder: a snapshot in the backend of its volume, or a backup in the backup
    /// service.
    #[serde(rename = "type", default)]
    pub kind: SnapshotType,

    /// Whether the driver takes snapshots of attached volumes. Cinder captures the data that was written to
    /// the device at one moment, as after a power failure.
    #[serde(default = "yes")]
    pub force_create: bool,

    /// Whether a backup contains only the changes since the previous one.
    #[serde(default)]
    pub incremental: bool,

    /// Availability zone of the backup service. Defaults to the choice of Cinder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub availability: Option<String>,

    /// Time limit of a backup, in seconds per GiB. Defaults to 20.
    #[serde(
        rename = "backupMaxDurationSecondsPerGB",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(range(min = 1, max = 86_400))]
    pub backup_max_duration_seconds_per_gb: Option<u32>,

    /// Labels of the class. The operator reserves keys under app.kubernetes.io and csi.openstack.org.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "labels")]
    pub labels: BTreeMap<String, String>,

    /// Annotations of the class. The operator reserves keys under csi.openstack.org and the annotation of the
    /// default class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub annotations: BTreeMap<String, String>,
}

impl SnapshotClass {
    /// Creates a class with this name and defaults in all other fields.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            is_default: false,
            deletion_policy: ReclaimPolicy::default(),
            kind: SnapshotType::default(),
            force_create: yes(),
            incremental: false,
            availability: None,
            backup_max_duration_seconds_per_gb: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        }
    }
}

/// Type of a snapshot in Cinder.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum SnapshotType {
    /// A snapshot in the backend of its volume.
    #[default]
    Snapshot,
    /// A backup in the backup service.
    Backup,
}

/// A VolumeGroupSnapshotClass.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct GroupSnapshotClass {
    /// Name of the VolumeGroupSnapshotClass.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub name: String,

    /// Whether this is the default class of group snapshots. When it is false, the operator does not manage
    /// the annotation of the default class.
    #[serde(default)]
    pub is_default: bool,

    /// Whether the snapshots in Cinder are deleted or retained when their VolumeGroupSnapshot is deleted.
    #[serde(default)]
    pub deletion_policy: ReclaimPolicy,

    /// Name or id of the Cinder group type, which must have consistent_group_snapshot_enabled. Defaults to
    /// the first such type, if Cinder shows the driver this property.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub group_type: Option<String>,

    /// Labels of the class. The operator reserves keys under app.kubernetes.io and csi.openstack.org.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "labels")]
    pub labels: BTreeMap<String, String>,

    /// Annotations of the class. The operator reserves keys under csi.openstack.org and the annotation of the
    /// default class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub annotations: BTreeMap<String, String>,
}

impl GroupSnapshotClass {
    /// Creates a class with this name and defaults in all other fields.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            is_default: false,
            deletion_policy: ReclaimPolicy::default(),
            group_type: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        }
    }
}

fn yes() -> bool {
    true
}

/// The VolumeAttributesClasses of the driver.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct VolumeAttributesClasses {
    /// The VolumeAttributesClasses that the operator manages, on Kubernetes 1.34 and later. Their parameters
    /// cannot change while a claim or a volume refers to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub items: Vec<VolumeAttributesClassItem>,
}

/// A VolumeAttributesClass.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct VolumeAttributesClassItem {
    /// Name of the VolumeAttributesClass.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub name: String,

    /// Attributes that volumes receive, at least one. type is the Cinder volume type. migration-policy (never
    /// or on-demand) is whether the data may move to another backend. metadata.KEY is a value of the volume's
    /// metadata.
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = Rule::new("self.size() > 0").message("parameters must hold at least one"))]
    pub parameters: BTreeMap<String, String>,

    /// Labels of the class. The operator reserves keys under app.kubernetes.io and csi.openstack.org.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "labels")]
    pub labels: BTreeMap<String, String>,

    /// Annotations of the class. The operator reserves keys under csi.openstack.org.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub annotations: BTreeMap<String, String>,
}
