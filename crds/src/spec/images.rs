// SPDX-License-Identifier: Apache-2.0
//! Container images.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::OBJECT_NAME;

/// Images of the driver's pods and their registries.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Images {
    /// Registry with mirrors of the images, with an optional path, as in mirror.example.org/k8s. It replaces
    /// registry.k8s.io and ghcr.io in the names of the built-in images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 255),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]([-a-z0-9._]*[a-z0-9])?)*$")
    )]
    pub registry: Option<String>,

    /// Images that replace the built-in images, with which this version of the operator was tested.
    #[serde(default)]
    pub overrides: ImageOverrides,

    /// When the kubelet pulls the images.
    #[serde(default)]
    pub pull_policy: ImagePullPolicy,

    /// Secrets with credentials for the registries, in the namespace of the driver.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub pull_secrets: Vec<LocalObjectRef>,
}

/// One image per component. Defaults to the built-in images. Prefer a digest to a tag.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ImageOverrides {
    /// Image of the driver, in the controller pods and in the node pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))]
    pub driver: Option<String>,

    /// Image of the sidecar csi-provisioner, version 5 or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))]
    pub provisioner: Option<String>,

    /// Image of the sidecar csi-attacher, version 4 or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))]
    pub attacher: Option<String>,

    /// Image of the sidecar csi-resizer, version 1.14 or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))]
    pub resizer: Option<String>,

    /// Image of the sidecar csi-snapshotter, version 8 or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))]
    pub snapshotter: Option<String>,

    /// Image of the sidecar node-driver-registrar, for node.registration Sidecar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))]
    pub registrar: Option<String>,

    /// Image of the sidecar livenessprobe, for node.registration Sidecar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))]
    pub liveness_probe: Option<String>,
}

/// Name of an object in the namespace of the driver.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LocalObjectRef {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub name: String,
}

/// When the kubelet pulls an image.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImagePullPolicy {
    /// At every start of a container.
    Always,
    /// If the node does not have the image.
    #[default]
    IfNotPresent,
    /// Never. The node must have the image.
    Never,
}

impl ImagePullPolicy {
    /// Value in the Kubernetes API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}
