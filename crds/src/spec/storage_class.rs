// SPDX-License-Identifier: Apache-2.0
//! StorageClasses.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::TopologySelectorTerm;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::metadata::labels;
use crate::names::OBJECT_NAME;

/// The StorageClasses that the operator manages.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "!has(self.default) || !has(self.default.name) || !has(self.items) || !self.items.exists(c, has(c.isDefault) && c.isDefault && c.name != self.default.name)"
).message("default.name and isDefault of an item name two classes: name one of them"))]
pub struct StorageClasses {
    /// How the operator manages the classes. Managed: it creates them and reverts other changes. Unmanaged:
    /// it creates each class once and then ignores it. Removed: it deletes them. Volumes of a class remain in
    /// any case.
    #[serde(default)]
    pub state: ClassesState,

    /// The default StorageClass of the cluster.
    #[serde(default)]
    pub default: DefaultStorageClass,

    /// The StorageClasses. Defaults to one class with Cinder's default volume type, named cinder for the
    /// default name of the driver, and as instanceName for any other name. With an empty list, the operator
    /// creates none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["name".into()]),
        validation = Rule::new("self.filter(c, has(c.isDefault) && c.isDefault).size() <= 1")
            .message("at most one StorageClass can be the default")
    )]
    pub items: Option<Vec<StorageClassItem>>,
}

/// How the operator manages StorageClasses.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClassesState {
    /// The operator creates the classes and reverts other changes.
    #[default]
    Managed,
    /// The operator creates each class once and ignores later changes, including its deletion.
    Unmanaged,
    /// The operator deletes the classes.
    Removed,
}

/// The default StorageClass, for claims without a class.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.name) || !has(self.policy) || self.policy != 'Never'")
    .message("with policy Never no class is made the default: leave name out"))]
pub struct DefaultStorageClass {
    /// When the operator marks a class of this driver as the default. IfNoneExists: while the cluster has no
    /// other default class. A value that another client has set (true or false) remains. Always: the same,
    /// but the operator restores the annotation when another client changes it. Never: it marks no class. The
    /// operator never creates a second default class.
    #[serde(default)]
    pub policy: DefaultClassPolicy,

    /// Name of the class. Defaults to the item with isDefault, else to the first item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub name: Option<String>,
}

/// When the operator marks a class as the default.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultClassPolicy {
    /// While no other default exists and no other client has set the annotation.
    #[default]
    IfNoneExists,
    /// While no other default exists, even if another client changes the annotation.
    Always,
    /// Never.
    Never,
}

/// A StorageClass.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct StorageClassItem {
    /// Name of the StorageClass.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = OBJECT_NAME)
    )]
    pub name: String,

    /// Whether this is the default class of claims, according to default.policy.
    #[serde(default)]
    pub is_default: bool,

    /// Name or id of the Cinder volume type. Defaults to the default type of Cinder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub volume_type: Option<String>,

    /// Availability zone of Cinder for all volumes of the class. Defaults to the zone of the pod's node, or
    /// to the default of Cinder without topology.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub availability: Option<String>,

    /// File system of volumes that are not raw block devices.
    #[serde(default)]
    pub fs_type: FsType,

    /// Secret in the namespace of the driver that selects the cloud of the class. Its key cloud names one of
    /// spec.clouds, or its keys from the section Global of a cloud.conf are separate credentials. The
    /// driver's pods can read it while a class of the spec references it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub secret_name: Option<String>,

    /// Additional parameters for the driver.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    #[x_kube(validation = Rule::new("self.all(k, k != 'type' && k != 'availability' && !k.startsWith('csi.storage.k8s.io/'))")
        .message("use the fields volumeType, availability, fsType and secretName in place of the parameters of that meaning; other parameters that begin with csi.storage.k8s.io/ are not supported"))]
    pub extra_parameters: BTreeMap<String, String>,

    /// Whether the Cinder volume is deleted or retained when its claim is deleted.
    #[serde(default)]
    pub reclaim_policy: ReclaimPolicy,

    /// When a volume is created: as soon as a claim exists, or when a pod needs the volume and its zone is
    /// known.
    #[serde(default)]
    pub volume_binding_mode: VolumeBindingMode,

    /// Mount options of the volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub mount_options: Vec<String>,

    /// Whether volumes of the class can be expanded.
    #[serde(default = "yes")]
    pub allow_volume_expansion: bool,

    /// How the operator handles changes of provisioner, parameters, reclaimPolicy and volumeBindingMode,
    /// which are immutable in Kubernetes. Recreate: it deletes and recreates the class in one step, with the
    /// labels and annotations of other clients. Existing volumes do not change. Refuse: the class remains,
    /// and condition Degraded reports it.
    #[serde(default)]
    pub on_immutable_change: ImmutableChange,

    /// The zones where volumes of the class may be created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub allowed_topologies: Vec<TopologySelectorTerm>,

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

impl StorageClassItem {
    /// Creates a class with this name and defaults in all other fields.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            is_default: false,
            volume_type: None,
            availability: None,
            fs_type: FsType::default(),
            secret_name: None,
            extra_parameters: BTreeMap::new(),
            reclaim_policy: ReclaimPolicy::default(),
            volume_binding_mode: VolumeBindingMode::default(),
            mount_options: Vec::new(),
            allow_volume_expansion: yes(),
            on_immutable_change: ImmutableChange::default(),
            allowed_topologies: Vec::new(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        }
    }
}

fn yes() -> bool {
    true
}

/// How the operator handles changes of immutable fields.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImmutableChange {
    /// The operator deletes and recreates the object.
    #[default]
    Recreate,
    /// The object remains unchanged, and the status reports it.
    Refuse,
}

/// File systems that the driver can create.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum FsType {
    /// ext4.
    #[default]
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
}

impl FsType {
    /// Name of the file system in mount(8).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }
}

/// How a volume without a claim is handled.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReclaimPolicy {
    /// It is deleted.
    #[default]
    Delete,
    /// It is retained.
    Retain,
}

impl ReclaimPolicy {
    /// Value in the Kubernetes API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "Delete",
            Self::Retain => "Retain",
        }
    }
}

/// When a volume is created.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VolumeBindingMode {
    /// When a pod needs the volume.
    #[default]
    WaitForFirstConsumer,
    /// As soon as the claim exists.
    Immediate,
}

impl VolumeBindingMode {
    /// Value in the Kubernetes API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WaitForFirstConsumer => "WaitForFirstConsumer",
            Self::Immediate => "Immediate",
        }
    }
}
