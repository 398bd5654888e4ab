// SPDX-License-Identifier: Apache-2.0
//! Patches of objects that the operator creates, for settings without a field.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::OBJECT_NAME;

/// A patch of one object that the operator creates. Use it as a last resort: a later version of the operator
/// may create a different object, on which the patch has no effect or does harm.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Override {
    /// The object to patch.
    pub target: OverrideTarget,

    /// Format of the patch.
    #[serde(rename = "type", default)]
    pub kind: OverrideType,

    /// The patch, as JSON or YAML. It cannot change names, namespaces, and the labels and annotations of the
    /// operator.
    #[schemars(length(min = 2, max = 8192))]
    pub patch: String,
}

/// An object that the operator creates.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct OverrideTarget {
    /// Kind of the object, such as Deployment.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[A-Z][A-Za-z]*$"))]
    #[x_kube(validation = Rule::new("!(self in ['Secret', 'ServiceAccount', 'Role', 'RoleBinding', 'ClusterRole', 'ClusterRoleBinding'])")
        .message("Secrets, ServiceAccounts, roles and their bindings cannot be overridden"))]
    pub kind: String,

    /// Name of the object.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub name: String,
}

/// Format of a patch.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverrideType {
    /// A JSON merge patch (RFC 7386): fields to set, and null for fields to remove. It replaces lists as a
    /// whole.
    #[default]
    #[serde(rename = "merge")]
    Merge,
    /// A JSON patch (RFC 6902): a list of operations.
    #[serde(rename = "json")]
    Json,
}
