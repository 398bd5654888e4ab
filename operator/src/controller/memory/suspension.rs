// SPDX-License-Identifier: Apache-2.0

use cinder_operator_core::reasons::Degraded;

/// The suspension that this process has reported in the status.
#[derive(Debug, Default)]
pub(crate) struct SuspensionMemory {
    /// The generation of the spec, and the reason.
    reported: Option<(Option<i64>, Degraded)>,
}

impl SuspensionMemory {
    /// Whether this process has written the status for a suspension.
    pub(crate) fn is_reported(&self, suspension: &(Option<i64>, Degraded)) -> bool {
        self.reported.as_ref() == Some(suspension)
    }

    pub(crate) fn remember(&mut self, suspension: (Option<i64>, Degraded)) {
        self.reported = Some(suspension);
    }

    /// Ends the suspension after this process has acquired the Lease.
    pub(crate) fn end(&mut self) {
        self.reported = None;
    }
}
