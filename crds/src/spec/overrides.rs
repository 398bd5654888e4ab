// SPDX-License-Identifier: Apache-2.0
//! Changes of the operator's objects that it has no field for.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OBJECT_NAME;

/// A patch of one object that the operator makes. It is the last resort: a later version of the operator may make the object in
/// another way, so that the patch has no effect or does harm.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Override {
    /// The object.
    pub target: OverrideTarget,

    /// How the patch is written.
    #[serde(rename = "type", default)]
    pub kind: OverrideType,

    /// The patch, as JSON or YAML. Names, namespaces and the operator's own labels and annotations cannot be changed.
    #[schemars(length(min = 2, max = 8192))]
    pub patch: String,
}

/// An object that the operator makes.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct OverrideTarget {
    /// Its kind, such as Deployment.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[A-Z][A-Za-z]*$"))]
    #[x_kube(validation = Rule::new("!(self in ['Secret', 'ServiceAccount', 'Role', 'RoleBinding', 'ClusterRole', 'ClusterRoleBinding'])")
        .message("Secrets, ServiceAccounts, roles and their bindings cannot be overridden"))]
    pub kind: String,

    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub name: String,
}

/// How a patch is written.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverrideType {
    /// A JSON merge patch (RFC 7386): fields to set, and null for those to remove. Lists are replaced as a whole.
    #[default]
    #[serde(rename = "merge")]
    Merge,
    /// A JSON patch (RFC 6902): a list of operations.
    #[serde(rename = "json")]
    Json,
}
