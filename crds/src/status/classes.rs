// SPDX-License-Identifier: Apache-2.0
//! Recorded state of classes and zones.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether availability zones are in use.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TopologyStatus {
    /// Whether volumes and nodes have their zone as a segment.
    pub enabled: bool,

    /// Reason, in one word.
    pub reason: String,

    /// A comparison of the zones with a different result. It takes effect after three consecutive
    /// comparisons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingTopology>,
}

/// A comparison of the zones that is not in effect yet.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PendingTopology {
    /// Result of the comparison.
    pub enabled: bool,

    /// Number of consecutive comparisons with this result.
    pub times: i32,

    /// Time of the last comparison with this result.
    pub last_time: String,
}

/// State of the StorageClasses.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct StorageClassesStatus {
    /// The default class of the cluster, if it belongs to this driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_class: Option<String>,

    /// The default class of another driver. While it exists, the operator marks no class of this driver as
    /// the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existing_default_class: Option<String>,

    /// Classes that the operator has created under storageClasses.state Unmanaged and does not create again.
    #[serde(default, alias = "made", skip_serializing_if = "Vec::is_empty")]
    pub created_once: Vec<String>,
}
