// SPDX-License-Identifier: Apache-2.0
//! When the driver follows the operator to another version.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A version as in 1.2.3 or 1.2.3-rc.1, perhaps with the token of an update within the version; a `v` in front is allowed.
const VERSION: &str =
    r"^v?(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9a-f]{8})?$";

/// When the driver's pods change without a change of this spec: another version of the operator, other images of the same version, other
/// sidecars for another Kubernetes, zones and optional APIs. Changes of this spec and of credentials are carried out at once in any case.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.allowDowngrade) && self.allowDowngrade) || has(self.policy) && self.policy == 'Manual'")
    .message("allowDowngrade works only with policy Manual, where approvedVersion names the older version"))]
pub struct Update {
    /// Automatic: such a change is carried out at once. Manual: the pods stay as they are until approvedVersion is
    /// status.targetVersion.
    #[serde(default)]
    pub policy: UpdatePolicy,

    /// The update that is approved under policy Manual: status.targetVersion. It is a version such as 1.2.3, or, for an update within
    /// the version, 1.2.3+5f2c01ab. The token approves exactly the images, Kubernetes version, zones and optional APIs of that update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = VERSION))]
    pub approved_version: Option<String>,

    /// Whether an older operator may bring the driver back to its own version. It is refused otherwise: an older driver may
    /// not understand what a newer one has written.
    #[serde(default)]
    pub allow_downgrade: bool,
}

/// Who decides about another version.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdatePolicy {
    /// The operator does.
    #[default]
    Automatic,
    /// An administrator does, by approvedVersion.
    Manual,
}
