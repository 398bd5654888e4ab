// SPDX-License-Identifier: Apache-2.0
//! What must be remembered of classes and zones.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether zones are used.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TopologyStatus {
    /// Whether volumes and nodes carry their zone.
    pub enabled: bool,

    /// Why, in one word.
    pub reason: String,

    /// A comparison of the zones that came out otherwise, and counts once it has come out so three times in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingTopology>,
}

/// A comparison of the zones that does not count yet.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PendingTopology {
    /// What it says.
    pub enabled: bool,

    /// How many times in a row.
    pub times: i32,

    /// When it came out so last.
    pub last_time: String,
}

/// StorageClasses.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct StorageClassesStatus {
    /// The class of claims that name none, where it is one of this driver's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_class: Option<String>,

    /// The default class of another driver, because of which the operator marks none of this driver's as the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existing_default_class: Option<String>,

    /// With storageClasses.state Unmanaged: the classes that the operator has created, and does not create again.
    #[serde(default, alias = "made", skip_serializing_if = "Vec::is_empty")]
    pub created_once: Vec<String>,
}
