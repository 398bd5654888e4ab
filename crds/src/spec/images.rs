// SPDX-License-Identifier: Apache-2.0
//! Container images.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OBJECT_NAME;

/// Images of the driver's pods and how they are pulled.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Images {
    /// Registry that mirrors the images, with a path where it has one, as in mirror.example.org/k8s: it takes the place of
    /// registry.k8s.io and ghcr.io in the names of images that this version of the operator chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 255),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]([-a-z0-9._]*[a-z0-9])?)*$")
    )]
    pub registry: Option<String>,

    /// Images to use in place of those that this version of the operator was tested with.
    #[serde(default)]
    pub overrides: ImageOverrides,

    /// When the kubelet pulls the images.
    #[serde(default)]
    pub pull_policy: ImagePullPolicy,

    /// Secrets of the operator's namespace with credentials for the registries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub pull_secrets: Vec<LocalObjectRef>,
}

/// One image per component. What is not given is the operator's own choice. A digest is better than a tag.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ImageOverrides {
    /// The driver, in the controller's pods and on the nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))]
    pub driver: Option<String>,

    /// The sidecar csi-provisioner, version 5 or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))]
    pub provisioner: Option<String>,

    /// The sidecar csi-attacher, version 4 or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))]
    pub attacher: Option<String>,

    /// The sidecar csi-resizer, version 1.14 or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))]
    pub resizer: Option<String>,

    /// The sidecar csi-snapshotter, version 8 or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))]
    pub snapshotter: Option<String>,

    /// The sidecar node-driver-registrar, for node.registration Sidecar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))]
    pub registrar: Option<String>,

    /// The sidecar livenessprobe, for node.registration Sidecar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))]
    pub liveness_probe: Option<String>,
}

/// A name of an object in the namespace where the driver runs.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LocalObjectRef {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub name: String,
}

/// When an image is pulled.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImagePullPolicy {
    /// At every start of a container.
    Always,
    /// When the node does not have it.
    #[default]
    IfNotPresent,
    /// Never: the node must have it.
    Never,
}

impl ImagePullPolicy {
    /// As Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}
