// SPDX-License-Identifier: Apache-2.0
//! What needs a human, as conditions tell it.

use crate::reasons::Degraded;

/// What needs a human.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The reason of Degraded, when it is the gravest.
    pub reason: Degraded,
    /// For people: the thing, what is wrong with it, what to do.
    pub message: String,
}
