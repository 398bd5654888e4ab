// SPDX-License-Identifier: Apache-2.0
//! Reasons of conditions and events, on which programs and administrators rely. Each reason is a variant of an enum
//! with its meaning and its remedy. The documentation pages are generated from them. A test finds reasons that the
//! code never returns.

use cinder_csi_crds::ConditionType;
use csi_sources::UntrustedText;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// Maximum number of characters of a refusal.
const LONGEST_REFUSAL: usize = 4_000;

/// Name of a reason: by default the name of its variant.
macro_rules! word {
    ($reason:ident) => {
        stringify!($reason)
    };
    ($reason:ident $word:literal) => {
        $word
    };
}

mod conditions;
mod events;
mod refusal;

pub use conditions::*;
pub use events::{Event, EventReason, Severity};
pub use refusal::Refusal;

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

/// Why the operator does not use the credentials of a cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// One word.
    pub reason: Refusal,
    /// Message: the object, the fault and the required action.
    pub message: String,
}

impl Refused {
    /// Creates a refusal. Parts of its message may come from OpenStack services and Secrets.
    pub fn new(reason: Refusal, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: UntrustedText::with_limit(&message.into(), LONGEST_REFUSAL).to_string(),
        }
    }
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

#[cfg(test)]
mod tests;
