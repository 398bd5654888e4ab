// SPDX-License-Identifier: Apache-2.0
//! Problems that an administrator must solve, as conditions report them.

use crate::reasons::Degraded;

/// A problem that an administrator must solve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Reason of condition Degraded, if this is the most severe problem.
    pub reason: Degraded,
    /// Message: the object, the fault and the required action.
    pub message: String,
}
