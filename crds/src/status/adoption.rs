// SPDX-License-Identifier: Apache-2.0
//! How far the other installation of the driver is replaced.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The other installation. How far it is replaced, under spec.adoption.mode Migrate, until nothing is left of it, or while a migration is
/// reverted; what would change for volumes and classes, under Refuse.
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
    /// How many findings there are, those that do not fit into the list included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding_count: Option<i32>,
    /// What changes for volumes, classes and settings when this driver takes the place of the other installation, at most 50. Only there
    /// while spec.adoption.mode is Refuse and another installation is found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<AdoptionFinding>,
}

/// Something that this driver does otherwise than the other installation.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct AdoptionFinding {
    /// What it is about.
    pub reason: AdoptionFindingReason,
    /// The kind of volumes, the flag, the key or the parameter.
    pub subject: String,
    /// How many objects it is about.
    pub count: i32,
    /// Some of them by name; at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// What changes.
    pub message: String,
    /// What to do about it, where there is something to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

/// What a finding is about.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdoptionFindingReason {
    /// Volumes with ReadWriteMany and a file system: this driver attaches them to one node at a time.
    SharedFileSystem,
    /// Pods with in-line volumes, which this driver does not serve.
    InlineVolume,
    /// A flag of the other installation that this driver is not given, or that means something else here.
    Flag,
    /// A key of the other installation's cloud.conf that has another place here, or no effect.
    ConfigurationKey,
    /// A parameter of a class that this driver does not know.
    UnknownParameter,
    /// Something could not be looked at.
    NotChecked,
}

/// A step of a migration, in their order.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdoptionStep {
    /// The spec or the credentials do not work yet: nothing is touched before they do.
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
