// SPDX-License-Identifier: Apache-2.0
//! How the operator monitors clouds and volumes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A time as in 90s, 15m, 1h30m or 14d.
const DURATION: &str = r"^([1-9][0-9]*(s|m|h|d))+$";

/// How the operator monitors clouds and volumes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// How often good credentials are tried again by a login, as in 5m. Defaults to the operator's flag
    /// --credentials-check-interval (5m).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), regex(pattern = DURATION))]
    pub credential_check_interval: Option<String>,

    /// How long before its expiry an application credential, a token that cannot be renewed or a certificate is called Expiring
    /// in condition CredentialsValid, which stays True.
    #[serde(default = "expiry_warning")]
    #[schemars(length(max = 16), regex(pattern = DURATION))]
    pub expiry_warning: String,

    /// How long before the expiry condition CredentialsValid becomes False.
    #[serde(default = "expiry_critical")]
    #[schemars(length(max = 16), regex(pattern = DURATION))]
    pub expiry_critical: String,

    /// How long operations on volumes may take.
    #[serde(default)]
    pub stuck: StuckHealth,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            credential_check_interval: None,
            expiry_warning: expiry_warning(),
            expiry_critical: expiry_critical(),
            stuck: StuckHealth::default(),
        }
    }
}

/// How long an operation on a volume may take before the operator reports it as stuck, with its cause.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct StuckHealth {
    /// To attach a volume to a node.
    #[serde(default = "five_minutes")]
    #[schemars(length(max = 16), regex(pattern = DURATION))]
    pub attach: String,

    /// To detach it.
    #[serde(default = "ten_minutes")]
    #[schemars(length(max = 16), regex(pattern = DURATION))]
    pub detach: String,

    /// To create the volume of a claim.
    #[serde(default = "ten_minutes")]
    #[schemars(length(max = 16), regex(pattern = DURATION))]
    pub provision: String,

    /// To delete the volume of a deleted claim.
    #[serde(default = "fifteen_minutes")]
    #[schemars(length(max = 16), regex(pattern = DURATION))]
    pub delete: String,

    /// To enlarge a volume.
    #[serde(default = "fifteen_minutes")]
    #[schemars(length(max = 16), regex(pattern = DURATION))]
    pub resize: String,

    /// How many stuck volumes are listed in the status; all are counted.
    #[serde(default = "max_reported")]
    #[schemars(range(min = 1, max = 20))]
    pub max_reported: i32,
}

impl Default for StuckHealth {
    fn default() -> Self {
        Self {
            attach: five_minutes(),
            detach: ten_minutes(),
            provision: ten_minutes(),
            delete: fifteen_minutes(),
            resize: fifteen_minutes(),
            max_reported: max_reported(),
        }
    }
}

fn expiry_warning() -> String {
    "14d".into()
}

fn expiry_critical() -> String {
    "3d".into()
}

fn five_minutes() -> String {
    "5m".into()
}

fn ten_minutes() -> String {
    "10m".into()
}

fn fifteen_minutes() -> String {
    "15m".into()
}

fn max_reported() -> i32 {
    20
}
