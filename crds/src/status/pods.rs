// SPDX-License-Identifier: Apache-2.0
//! What the containers beside the driver are.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A container beside the driver.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SidecarStatus {
    /// Name of the container.
    pub name: String,
    /// Its image.
    pub image: String,
    /// The release that its arguments are written for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// How the release compares with the one for this version of Kubernetes: OK, Old, New, or Pinned where the image's tag names none.
    #[serde(default, alias = "skew")]
    pub version_skew: String,
}
