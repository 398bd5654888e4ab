// SPDX-License-Identifier: Apache-2.0
//! Documentation of a reason of a condition.

use cinder_csi_crds::ConditionType;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// Documentation of a reason of a condition.
#[derive(Debug)]
pub struct ConditionReason {
    /// The condition with this reason.
    pub type_: ConditionType,
    /// True, False or Unknown.
    pub status: &'static str,
    /// Name in the status.
    pub reason: &'static str,
    /// Meaning of the reason.
    pub meaning: &'static str,
    /// Required action. Empty if none.
    pub remedy: &'static str,
}

/// A reason of a condition.
pub trait Reason: Copy {
    /// Returns its documentation.
    fn row(self) -> &'static ConditionReason;

    /// Name in the status.
    fn as_str(self) -> &'static str {
        self.row().reason
    }

    /// Whether a condition has this reason.
    fn is(self, condition: &Condition) -> bool {
        let row = self.row();
        (row.type_.as_str(), row.status, row.reason) == (&condition.type_, &condition.status, &condition.reason)
    }
}
