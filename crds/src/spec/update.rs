// SPDX-License-Identifier: Apache-2.0
//! When the driver follows the operator to another version.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A version as in 1.2.3 or 1.2.3-rc.1; a `v` in front is allowed.
const VERSION: &str = r"^v?(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$";

/// How the driver follows the operator to another version. Changes of this spec are carried out at once in any case.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.allowDowngrade) && self.allowDowngrade) || has(self.policy) && self.policy == 'Manual'")
    .message("allowDowngrade works only with policy Manual, where approvedVersion names the older version"))]
pub struct Update {
    /// Automatic: the driver follows as soon as the operator runs in another version. Manual: it stays as it is until
    /// approvedVersion is the operator's version.
    #[serde(default)]
    pub policy: UpdatePolicy,

    /// The version that the driver may be brought to under policy Manual, as in 1.2.3. status.targetVersion is the one that
    /// waits.
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
    /// The operator's own version does.
    #[default]
    Automatic,
    /// An administrator does, by approvedVersion.
    Manual,
}
