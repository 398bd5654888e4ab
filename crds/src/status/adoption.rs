// SPDX-License-Identifier: Apache-2.0
//! How far the other installation of the driver is replaced.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How far the other installation is replaced, under spec.adoption.mode Migrate, until nothing is left of it, or while a migration is
/// reverted.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct AdoptionStatus {
    /// What is being done; not there while spec.adoption.mode is Refuse and nothing was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<AdoptionStep>,
    /// What is left of the other installation and is not needed any more, at most 20 objects. It is not deleted: whoever installed it
    /// may do that when there is to be no way back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leftovers: Vec<String>,
}

/// A step of a migration, in their order.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdoptionStep {
    /// The spec or the credentials do not work yet, or findings of the check are open: nothing is touched before.
    Preparing,
    /// This driver's node pods start beside the others, and its controller is tried by a dry run: nothing is stopped before they pass.
    StartingNodes,
    /// The other controller is stopped; its pods end, and its sidecars' leases.
    StoppingController,
    /// This driver's controller takes its place, and then this driver owns the CSIDriver object.
    StartingController,
    /// The node plugins change, a few nodes at once.
    ReplacingNodes,
    /// This driver serves everywhere.
    Done,
    /// This driver's controller did not come up, or spec.adoption.mode is no longer Migrate: the other one gets its pods back.
    GivingBack,
    /// The other controller has its pods back, because this driver's did not come up; condition Degraded says why.
    GivenBack,
}
