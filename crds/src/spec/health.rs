// SPDX-License-Identifier: Apache-2.0
//! How the operator monitors clouds and volumes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Pattern of a duration, as in 90s, 15m, 1h30m or 14d.
const DURATION: &str = r"^([1-9][0-9]*(s|m|h|d))+$";

/// How the operator monitors clouds and volumes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// Time between logins that verify valid credentials, as in 5m. Defaults to the operator's flag
    /// --credentials-check-interval (5m).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), regex(pattern = DURATION))]
    pub credential_check_interval: Option<String>,

    /// Time before an expiry from which condition CredentialsValid has reason Expiring and remains True, as
    /// in 14d. It applies to application credentials, tokens that cannot be renewed, and certificates.
    #[serde(default = "expiry_warning")]
    #[schemars(length(max = 16), regex(pattern = DURATION))]
    pub expiry_warning: String,

    /// Time before an expiry from which condition CredentialsValid is False, as in 24h.
    #[serde(default = "expiry_critical")]
    #[schemars(length(max = 16), regex(pattern = DURATION))]
    pub expiry_critical: String,

    /// Time limits of operations on volumes.
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

/// Time limits of operations on volumes. The operator reports an operation beyond its limit as stuck, with
/// the cause.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct StuckHealth {
    /// Time limit to attach a volume to a node, as in 10m.
    #[serde(default = "five_minutes")]
    #[schemars(length(max = 16), regex(pattern = DURATION))]
    pub attach: String,

    /// Time limit to detach a volume, as in 10m.
    #[serde(default = "ten_minutes")]
    #[schemars(length(max = 16), regex(pattern = DURATION))]
    pub detach: String,

    /// Time limit to create the volume of a claim, as in 10m.
    #[serde(default = "ten_minutes")]
    #[schemars(length(max = 16), regex(pattern = DURATION))]
    pub provision: String,

    /// Time limit to delete the volume of a deleted claim, as in 10m.
    #[serde(default = "fifteen_minutes")]
    #[schemars(length(max = 16), regex(pattern = DURATION))]
    pub delete: String,

    /// Time limit to expand a volume, as in 10m.
    #[serde(default = "fifteen_minutes")]
    #[schemars(length(max = 16), regex(pattern = DURATION))]
    pub resize: String,

    /// Maximum number of stuck volumes in the status. The status counts all of them.
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
