//! StorageClasses.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::TopologySelectorTerm;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OBJECT_NAME;

/// The StorageClasses that the operator keeps.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct StorageClasses {
    /// One entry per class. When it is not given: one class with Cinder's default volume type, named cinder (or, for a
    /// driver of another name, as everything else that is made for it). An empty list means no class.
    // No default in the schema: server-side apply would merge it with the classes that somebody names later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["name".into()]),
        validation = Rule::new("self.filter(c, has(c.isDefault) && c.isDefault).size() <= 1")
            .message("at most one StorageClass can be the default")
    )]
    pub items: Option<Vec<StorageClassItem>>,
}

/// One StorageClass.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct StorageClassItem {
    /// Name of the StorageClass.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = OBJECT_NAME)
    )]
    pub name: String,

    /// Whether claims that name no class get this one. When it is false, the mark on the class is left to others.
    #[serde(default)]
    pub is_default: bool,

    /// Name or id of the Cinder volume type. When it is not given, Cinder's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub volume_type: Option<String>,

    /// Availability zone of Cinder for all volumes of the class. When it is not given, the zone of the node that the pod
    /// is scheduled to, or Cinder's default without topology.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub availability: Option<String>,

    /// File system made on volumes that are not raw block devices.
    #[serde(default)]
    pub fs_type: FsType,

    /// Other parameters for the driver.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    #[x_kube(validation = Rule::new("self.all(k, k != 'type' && k != 'availability' && !k.startsWith('csi.storage.k8s.io/'))")
        .message("use the fields volumeType, availability and fsType in place of the parameters of that meaning; other parameters that begin with csi.storage.k8s.io/ are not supported"))]
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

    /// The zones where volumes of the class may be made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub allowed_topologies: Vec<TopologySelectorTerm>,
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
}

impl FsType {
    /// The name, as mount(8) takes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
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
