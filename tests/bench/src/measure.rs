// SPDX-License-Identifier: Apache-2.0
//! Figures of one driver on one cloud.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::process::{Memory, Processor};

/// Number of requests by operation.
pub(crate) type Requests = BTreeMap<String, usize>;

/// A figure per role: controller and node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Roles<T> {
    pub(crate) controller: T,
    pub(crate) node: T,
}

/// Figures of sequential lifecycles, or of one crowd.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Lives {
    /// Number of lifecycles.
    pub(crate) count: u32,
    /// OpenStack requests of all lifecycles.
    pub(crate) requests: Requests,
    /// Number of failed RPCs that were retried.
    pub(crate) failures: usize,
    /// Time from the first request to the last response.
    pub(crate) wall: Duration,
    pub(crate) processor: Roles<Processor>,
    /// Delays between the end of the attach in the cloud and the driver's response, sorted.
    pub(crate) lateness: Vec<Duration>,
    /// For a crowd: time until all volumes were attached.
    pub(crate) attach: Duration,
}

/// All figures of one driver.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Figures {
    /// Memory after the start.
    pub(crate) idle: Roles<Memory>,
    /// Memory at the end of the run.
    pub(crate) loaded: Roles<Memory>,
    /// Sequential lifecycles.
    pub(crate) alone: Lives,
    /// Crowds of different sizes.
    pub(crate) crowds: Vec<Lives>,
    /// Processor time of an idle minute.
    pub(crate) minute: Option<Roles<Duration>>,
    /// Size of the binary in bytes.
    pub(crate) binary: u64,
}

impl Lives {
    /// Returns the share of one lifecycle.
    #[expect(clippy::cast_precision_loss, reason = "counts of a bench are small")]
    pub(crate) fn each(&self, count: usize) -> f64 {
        count as f64 / f64::from(self.count.max(1))
    }

    /// Returns the number of requests of one lifecycle.
    pub(crate) fn requests_each(&self) -> f64 {
        self.each(self.requests.values().sum())
    }

    /// Returns the processor time of one lifecycle in both roles. Includes child processes, because one driver mounts
    /// by system call and the other runs `mount`.
    pub(crate) fn processor_each(&self) -> Duration {
        let Roles { controller, node } = self.processor;
        (controller.own + controller.programs + node.own + node.programs) / self.count.max(1)
    }

    /// Returns the elapsed time of one lifecycle.
    pub(crate) fn wall_each(&self) -> Duration {
        self.wall / self.count.max(1)
    }

    /// Returns a percentile of the lateness; `None` if the cloud reports no exact times.
    pub(crate) fn late(&self, per_cent: usize) -> Option<Duration> {
        percentile(&self.lateness, per_cent)
    }
}

/// Returns a percentile of a sorted list.
pub(crate) fn percentile(sorted: &[Duration], per_cent: usize) -> Option<Duration> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last * per_cent).div_ceil(100)).copied()
}

/// Returns the requests since `before`.
pub(crate) fn since(mut now: Requests, before: &Requests) -> Requests {
    for (operation, count) in &mut now {
        *count -= before.get(operation).copied().unwrap_or_default().min(*count);
    }
    now.retain(|_, count| *count > 0);
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computes_percentiles_of_sorted_list() {
        let lives = Lives {
            lateness: (0..=100).map(Duration::from_millis).collect(),
            ..Lives::default()
        };
        assert_eq!(lives.late(50), Some(Duration::from_millis(50)));
        assert_eq!(lives.late(99), Some(Duration::from_millis(99)));
        assert_eq!(Lives::default().late(50), None);
    }
}
