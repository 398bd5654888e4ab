// SPDX-License-Identifier: Apache-2.0
//! Snapshots.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::metadata::labels;
use super::{OBJECT_NAME, ReclaimPolicy};

/// Snapshots of volumes.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Snapshots {
    /// Whether the driver takes snapshots. Auto: as soon as the cluster has the CustomResourceDefinitions of VolumeSnapshots. Enabled:
    /// the same, and condition Degraded reports missing definitions. Disabled: no new ones, and none at all once no contents of
    /// snapshots exist. The cluster also needs a snapshot-controller, one for all its CSI drivers. Event
    /// SnapshotControllerUnavailable reports that none works.
    #[serde(default)]
    pub mode: SnapshotsMode,

    /// The VolumeSnapshotClasses that the operator keeps. Defaults to one, named as the usual StorageClass. An
    /// empty list means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["name".into()]),
        validation = Rule::new("self.filter(c, has(c.isDefault) && c.isDefault).size() <= 1")
            .message("at most one VolumeSnapshotClass can be the default")
    )]
    pub classes: Option<Vec<SnapshotClass>>,

    /// The VolumeGroupSnapshotClasses that the operator keeps, where the cluster knows them (groupsnapshot.storage.k8s.io/v1).
    /// Defaults to one, named as the usual StorageClass. An empty list means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["name".into()]),
        validation = Rule::new("self.filter(c, has(c.isDefault) && c.isDefault).size() <= 1")
            .message("at most one VolumeGroupSnapshotClass can be the default")
    )]
    pub group_classes: Option<Vec<GroupSnapshotClass>>,
}

/// Whether there are snapshots.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SnapshotsMode {
    /// Where the cluster knows VolumeSnapshots.
    #[default]
    Auto,
    /// Yes.
    Enabled,
    /// No.
    Disabled,
}

/// One VolumeSnapshotClass.
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

    /// Whether snapshots that name no class get this one. When it is false, the mark on the class is left to others.
    #[serde(default)]
    pub is_default: bool,

    /// What becomes of the snapshot in Cinder when the VolumeSnapshot is deleted.
    #[serde(default)]
    pub deletion_policy: ReclaimPolicy,

    /// What is made: a snapshot, beside its volume, or a backup, away from it.
    #[serde(rename = "type", default)]
    pub kind: SnapshotType,

    /// Whether a volume in use can be snapshot. Cinder cuts at one moment what was written to the device by then, as after a
    /// loss of power.
    #[serde(default = "yes")]
    pub force_create: bool,

    /// Whether a backup holds only what changed since the one before.
    #[serde(default)]
    pub incremental: bool,

    /// The zone of the backup service. Defaults to Cinder's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub availability: Option<String>,

    /// How long a backup may take for each GiB, in seconds. Defaults to 20.
    #[serde(
        rename = "backupMaxDurationSecondsPerGB",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(range(min = 1, max = 86_400))]
    pub backup_max_duration_seconds_per_gb: Option<u32>,

    /// Labels of the class. The keys under app.kubernetes.io and csi.openstack.org are the operator's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "labels")]
    pub labels: BTreeMap<String, String>,

    /// Annotations of the class. The keys under csi.openstack.org are the operator's, and so is the mark of the default class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub annotations: BTreeMap<String, String>,
}

impl SnapshotClass {
    /// A class of this name with the defaults in everything else.
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

/// What a snapshot is in Cinder.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum SnapshotType {
    /// A snapshot, beside its volume.
    #[default]
    Snapshot,
    /// A backup, away from it.
    Backup,
}

/// One VolumeGroupSnapshotClass.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct GroupSnapshotClass {
    /// Name of the VolumeGroupSnapshotClass.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub name: String,

    /// Whether group snapshots that name no class get this one. When it is false, the mark on the class is left to others.
    #[serde(default)]
    pub is_default: bool,

    /// What becomes of the snapshots in Cinder when the VolumeGroupSnapshot is deleted.
    #[serde(default)]
    pub deletion_policy: ReclaimPolicy,

    /// Name or id of the Cinder group type, which must have consistent_group_snapshot_enabled. Defaults to
    /// the first such type, where Cinder shows it which ones are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub group_type: Option<String>,

    /// Labels of the class. The keys under app.kubernetes.io and csi.openstack.org are the operator's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "labels")]
    pub labels: BTreeMap<String, String>,

    /// Annotations of the class. The keys under csi.openstack.org are the operator's, and so is the mark of the default class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub annotations: BTreeMap<String, String>,
}

impl GroupSnapshotClass {
    /// A class of this name with the defaults in everything else.
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

/// VolumeAttributesClasses.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct VolumeAttributesClasses {
    /// The VolumeAttributesClasses that the operator keeps, on Kubernetes 1.34 and later. Their parameters cannot be changed
    /// while a claim or a volume refers to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub items: Vec<VolumeAttributesClassItem>,
}

/// One VolumeAttributesClass.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct VolumeAttributesClassItem {
    /// Name of the VolumeAttributesClass.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub name: String,

    /// What volumes become: type is the Cinder volume type, migration-policy (never or on-demand) whether the data may move to
    /// another backend for it, metadata.KEY a value of the volume's metadata. At least one.
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = Rule::new("self.size() > 0").message("parameters must hold at least one"))]
    pub parameters: BTreeMap<String, String>,

    /// Labels of the class. The keys under app.kubernetes.io and csi.openstack.org are the operator's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "labels")]
    pub labels: BTreeMap<String, String>,

    /// Annotations of the class. The keys under csi.openstack.org are the operator's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub annotations: BTreeMap<String, String>,
}
