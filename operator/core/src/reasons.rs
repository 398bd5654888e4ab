// SPDX-License-Identifier: Apache-2.0
//! Reasons of conditions and events, on which programs and administrators rely. Each reason is a variant of an enum
//! with its meaning and its remedy. The documentation pages are generated from them. A test finds reasons that the
//! code never returns.

use csi_sources::UntrustedText;

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
mod reason;
mod refusal;

pub use conditions::*;
pub use events::{Event, EventReason, Severity};
pub use reason::{ConditionReason, Reason};
pub use refusal::Refusal;

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

#[cfg(test)]
mod tests;
