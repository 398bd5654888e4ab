// SPDX-License-Identifier: Apache-2.0
//! StorageClasses.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::TopologySelectorTerm;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OBJECT_NAME;
use super::metadata::labels;

/// The StorageClasses that the operator keeps.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "!has(self.default) || !has(self.default.name) || !has(self.items) || !self.items.exists(c, has(c.isDefault) && c.isDefault && c.name != self.default.name)"
).message("default.name and isDefault of an item name two classes: name one of them"))]
pub struct StorageClasses {
    /// What the operator does with the classes: Managed keeps them as the spec wants them, Unmanaged makes each once and
    /// then leaves it to others, Removed deletes them. Volumes that were made from a class stay in any case.
    #[serde(default)]
    pub state: ClassesState,

    /// The class of claims that name none.
    #[serde(default)]
    pub default: DefaultStorageClass,

    /// One entry per class. Defaults to one class with Cinder's default volume type, named cinder (or, for a
    /// driver of another name, as everything else that is made for it). An empty list means no class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["name".into()]),
        validation = Rule::new("self.filter(c, has(c.isDefault) && c.isDefault).size() <= 1")
            .message("at most one StorageClass can be the default")
    )]
    pub items: Option<Vec<StorageClassItem>>,
}

/// What the operator does with StorageClasses.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClassesState {
    /// They are made and kept as the spec wants them.
    #[default]
    Managed,
    /// Each is made once; what becomes of it then is left to others, its deletion too.
    Unmanaged,
    /// They are deleted.
    Removed,
}

/// The class of claims that name none.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.name) || !has(self.policy) || self.policy != 'Never'")
    .message("with policy Never no class is made the default: leave name out"))]
pub struct DefaultStorageClass {
    /// Whether a class of this driver is marked as the default. IfNoneExists: while no other class of the cluster is, and
    /// a mark that another client has put on the class (true or false) stays. Always: the same, but the operator restores
    /// the mark on the class when another client changes it. Never: the operator marks none. A second default is never made: while another
    /// class is the default, that one is it.
    #[serde(default)]
    pub policy: DefaultClassPolicy,

    /// Name of the class. Defaults to the item with isDefault, else to the first item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub name: Option<String>,
}

/// When a class is marked as the default.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultClassPolicy {
    /// While there is no other, and no other client has marked the class.
    #[default]
    IfNoneExists,
    /// While there is no other, whatever another client writes on the class.
    Always,
    /// Never.
    Never,
}

/// One StorageClass.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct StorageClassItem {
    /// Name of the StorageClass.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = OBJECT_NAME)
    )]
    pub name: String,

    /// Whether this is the class of claims that name none, as default.policy says.
    #[serde(default)]
    pub is_default: bool,

    /// Name or id of the Cinder volume type. Defaults to Cinder's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub volume_type: Option<String>,

    /// Availability zone of Cinder for all volumes of the class. Defaults to the zone of the node that the pod
    /// is scheduled to, or Cinder's default without topology.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub availability: Option<String>,

    /// File system made on volumes that are not raw block devices.
    #[serde(default)]
    pub fs_type: FsType,

    /// The Secret, in the namespace where the driver runs, that says where volumes of the class are made: key cloud names one of
    /// spec.clouds, or the keys of a cloud.conf's section [Global] are credentials of their own. The driver's pods may read it for as
    /// long as a class of the spec names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub secret_name: Option<String>,

    /// Other parameters for the driver.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    #[x_kube(validation = Rule::new("self.all(k, k != 'type' && k != 'availability' && !k.startsWith('csi.storage.k8s.io/'))")
        .message("use the fields volumeType, availability, fsType and secretName in place of the parameters of that meaning; other parameters that begin with csi.storage.k8s.io/ are not supported"))]
    pub extra_parameters: BTreeMap<String, String>,

    /// What becomes of the Cinder volume when its claim is deleted.
    #[serde(default)]
    pub reclaim_policy: ReclaimPolicy,

    /// When a volume is created: as soon as there is a claim, or once a pod needs it and its zone is known.
    #[serde(default)]
    pub volume_binding_mode: VolumeBindingMode,

    /// Options for mounting.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub mount_options: Vec<String>,

    /// Whether the volumes of the class can grow.
    #[serde(default = "yes")]
    pub allow_volume_expansion: bool,

    /// What happens when provisioner, parameters, reclaimPolicy or volumeBindingMode change, which Kubernetes does not
    /// allow to change on a class. Recreate: the class is deleted and created again in one step, with the labels and
    /// annotations of others; volumes keep what they were made with. Refuse: it stays, and condition Degraded reports it.
    #[serde(default)]
    pub on_immutable_change: ImmutableChange,

    /// The zones where volumes of the class may be made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub allowed_topologies: Vec<TopologySelectorTerm>,

    /// Labels of the class. The keys under app.kubernetes.io and csi.openstack.org are the operator's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "labels")]
    pub labels: BTreeMap<String, String>,

    /// Annotations of the class. The keys under csi.openstack.org are the operator's, and so is the mark of the default class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub annotations: BTreeMap<String, String>,
}

impl StorageClassItem {
    /// A class of this name with the defaults in everything else.
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

/// What happens when fields change that Kubernetes does not allow to change.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImmutableChange {
    /// The object is deleted and created again.
    #[default]
    Recreate,
    /// It stays as it is, and the status reports it.
    Refuse,
}

/// The file systems that the driver can make.
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
    /// The name, as mount(8) takes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }
}

/// What becomes of a volume without a claim.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReclaimPolicy {
    /// It is deleted.
    #[default]
    Delete,
    /// It is kept.
    Retain,
}

impl ReclaimPolicy {
    /// As Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "Delete",
            Self::Retain => "Retain",
        }
    }
}

/// When a volume is made.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VolumeBindingMode {
    /// When a pod needs it.
    #[default]
    WaitForFirstConsumer,
    /// When it is claimed.
    Immediate,
}

impl VolumeBindingMode {
    /// As Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WaitForFirstConsumer => "WaitForFirstConsumer",
            Self::Immediate => "Immediate",
        }
    }
}
