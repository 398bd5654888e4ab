// SPDX-License-Identifier: Apache-2.0
//! The progress of a migration from another installation of the driver.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The progress of a migration from another installation of the driver, or of its reversal. Present under spec.adoption.mode Migrate
/// while objects of the other installation exist.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct AdoptionStatus {
    /// Current step. Absent while spec.adoption.mode is Refuse and no migration has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<AdoptionStep>,
    /// Objects of the other installation that are no longer needed, at most 20. The operator does not delete
    /// them. An administrator can delete them when no reversal is intended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leftovers: Vec<String>,
}

/// A step of a migration, in order.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdoptionStep {
    /// The spec or the credentials do not work yet, or the check has open findings. The operator changes nothing in this step.
    Preparing,
    /// This driver's node pods start next to the others, and a dry run tests its controller. The operator stops nothing before both
    /// succeed.
    StartingNodes,
    /// The operator stops the other controller, and waits until its pods and the Leases of its sidecars end.
    StoppingController,
    /// This driver's controller replaces it, and then this driver owns the CSIDriver object.
    StartingController,
    /// The operator replaces the node plugins, a few nodes at a time.
    ReplacingNodes,
    /// This driver serves on all nodes.
    Done,
    /// This driver's controller did not start, or spec.adoption.mode is no longer Migrate. The operator restores the pods of the other
    /// controller.
    GivingBack,
    /// The pods of the other controller are restored, because this driver's controller did not start. Condition Degraded has the cause.
    GivenBack,
}
