// SPDX-License-Identifier: Apache-2.0
//! When the driver is updated to the version of the operator.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Pattern of a version such as 1.2.3 or 1.2.3-rc.1, with an optional `v` prefix and an optional token of an
/// update within the version.
const VERSION: &str =
    r"^v?(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9a-f]{8})?$";

/// When the operator updates the driver's pods although this spec has not changed. Causes are another version
/// of the operator, other images of the same version, or other sidecars, zones and optional APIs. The
/// operator always applies changes of this spec and of credentials immediately.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.allowDowngrade) && self.allowDowngrade) || has(self.policy) && self.policy == 'Manual'")
    .message("allowDowngrade works only with policy Manual, where approvedVersion names the older version"))]
pub struct Update {
    /// How updates are approved. Automatic: the operator applies an update immediately. Manual: the pods do
    /// not change until approvedVersion equals status.targetVersion.
    #[serde(default)]
    pub policy: UpdatePolicy,

    /// The update that is approved under policy Manual, copied from status.targetVersion. It is a version
    /// such as 1.2.3, or 1.2.3+5f2c01ab for an update within the version. The token approves exactly the
    /// images, Kubernetes version, zones and optional APIs of that update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = VERSION))]
    pub approved_version: Option<String>,

    /// Whether an older operator may downgrade the driver to its own version. An older driver may not
    /// understand data that a newer one has written.
    #[serde(default)]
    pub allow_downgrade: bool,
}

/// How updates are approved.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdatePolicy {
    /// The operator applies updates immediately.
    #[default]
    Automatic,
    /// An administrator approves each update with approvedVersion.
    Manual,
}
