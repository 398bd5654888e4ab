// SPDX-License-Identifier: Apache-2.0
//! State of the sidecar containers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of a sidecar container.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SidecarStatus {
    /// Name of the container.
    pub name: String,
    /// Image of the container.
    pub image: String,
    /// Release that the arguments of the container are for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// Compares the release with the one for this version of Kubernetes: OK, Old, New, or Pinned if the tag
    /// of the image names no release.
    #[serde(default, alias = "skew")]
    pub version_skew: String,
}
