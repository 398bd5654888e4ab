// SPDX-License-Identifier: Apache-2.0
//! The reasons of conditions and events, which programs and people rely on. Each is the variant of an enum with its meaning and
//! remedy: the pages of the documentation are made from here, and a test finds a reason that no code gives.

use cinder_csi_crds::ConditionType;
use csi_sources::UntrustedText;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// The most characters of a refusal.
const LONGEST_REFUSAL: usize = 4_000;

/// The word of a reason: the name of its variant, where no other is given.
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

/// What there is to say of one reason of a condition.
#[derive(Debug)]
pub struct ConditionReason {
    /// The condition that has it.
    pub type_: ConditionType,
    /// True, False or Unknown.
    pub status: &'static str,
    /// The word in the status.
    pub reason: &'static str,
    /// What is the case.
    pub meaning: &'static str,
    /// What to do about it; empty where there is nothing to do.
    pub remedy: &'static str,
}

/// Why the credentials of a cloud are not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why, in a word.
    pub reason: Refusal,
    /// For people: the thing, what is wrong with it, what to do.
    pub message: String,
}

impl Refused {
    /// A refusal with its sentence. Services of OpenStack and Secrets write parts of it.
    pub fn new(reason: Refusal, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: UntrustedText::with_limit(&message.into(), LONGEST_REFUSAL).to_string(),
        }
    }
}

/// A reason of one of the conditions.
pub trait Reason: Copy {
    /// What there is to say of it.
    fn row(self) -> &'static ConditionReason;

    /// The word in the status.
    fn as_str(self) -> &'static str {
        self.row().reason
    }

    /// Whether a condition has it.
    fn is(self, condition: &Condition) -> bool {
        let row = self.row();
        (row.type_.as_str(), row.status, row.reason) == (&condition.type_, &condition.status, &condition.reason)
    }
}

#[cfg(test)]
mod tests;
