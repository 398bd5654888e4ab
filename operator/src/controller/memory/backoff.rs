// SPDX-License-Identifier: Apache-2.0

use std::time::Duration;

use super::super::pauses::OBSTACLE_PAUSE;

/// The failures and obstacles that determine the pause until the next reconcile.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
    /// The obstacles of the last reconcile that no watch reports.
    obstacles: Vec<String>,
    /// How many reconciles in a row had the same obstacles, without the first.
    repetitions: u32,
}

impl Backoff {
    /// Counts a failed reconcile. Returns the number of failures in a row.
    pub(crate) fn record_failure(&mut self) -> u32 {
        self.failures = self.failures.saturating_add(1);
        self.failures
    }

    /// Ends the series of failures.
    pub(crate) fn reset_failures(&mut self) {
        self.failures = 0;
    }

    /// The pause until obstacles are checked again that no watch reports. It grows while they do not change. `None` without obstacles.
    pub(crate) fn obstacle_pause(&mut self, obstacles: Vec<String>, longest: Duration) -> Option<Duration> {
        self.repetitions = if self.obstacles == obstacles {
            self.repetitions.saturating_add(1)
        } else {
            0
        };
        self.obstacles = obstacles;
        let pause = OBSTACLE_PAUSE.saturating_mul(2_u32.saturating_pow(self.repetitions));
        (!self.obstacles.is_empty()).then(|| pause.min(longest))
    }
}
