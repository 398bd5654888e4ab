// SPDX-License-Identifier: Apache-2.0
//! The figures of one driver on one cloud.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::process::{Memory, Processor};

/// How often each operation was asked for.
pub(crate) type Requests = BTreeMap<String, usize>;

/// A figure of the controller and of the node role.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Roles<T> {
    pub(crate) controller: T,
    pub(crate) node: T,
}

/// Of one life, or of one of a crowd.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Lives {
    /// How many there were.
    pub(crate) count: u32,
    /// OpenStack requests of all.
    pub(crate) requests: Requests,
    /// RPCs that failed and were repeated.
    pub(crate) failures: usize,
    /// From the first request to the last answer.
    pub(crate) wall: Duration,
    /// Processor time.
    pub(crate) processor: Roles<Processor>,
    /// From the moment when the cloud had attached a volume to the driver's answer, sorted.
    pub(crate) lateness: Vec<Duration>,
    /// Time until all were attached, for a crowd.
    pub(crate) attach: Duration,
}

/// All of one driver.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Figures {
    /// Memory after the start.
    pub(crate) idle: Roles<Memory>,
    /// The same in the end.
    pub(crate) loaded: Roles<Memory>,
    /// One life after the other.
    pub(crate) alone: Lives,
    /// All at once: crowds of different sizes.
    pub(crate) crowds: Vec<Lives>,
    /// Processor time in a minute in which nobody asks for anything.
    pub(crate) minute: Option<Roles<Duration>>,
    /// Size of the binary in bytes.
    pub(crate) binary: u64,
}

impl Lives {
    /// Of one.
    #[expect(clippy::cast_precision_loss, reason = "counts of a bench are small")]
    pub(crate) fn each(&self, count: usize) -> f64 {
        count as f64 / f64::from(self.count.max(1))
    }

    /// Of one.
    pub(crate) fn requests_each(&self) -> f64 {
        self.each(self.requests.values().sum())
    }

    /// Of one, both roles, with the programs that they start: one driver mounts itself what another one has `mount` do.
    pub(crate) fn processor_each(&self) -> Duration {
        let Roles { controller, node } = self.processor;
        (controller.own + controller.programs + node.own + node.programs) / self.count.max(1)
    }

    /// Of one.
    pub(crate) fn wall_each(&self) -> Duration {
        self.wall / self.count.max(1)
    }

    /// The lateness that this many per cent stay under; `None` where the cloud tells no exact times.
    pub(crate) fn late(&self, per_cent: usize) -> Option<Duration> {
        percentile(&self.lateness, per_cent)
    }
}

/// The one that this many per cent of a sorted list are not above.
pub(crate) fn percentile(sorted: &[Duration], per_cent: usize) -> Option<Duration> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last * per_cent).div_ceil(100)).copied()
}

/// What was asked for since `before`.
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
    fn percentiles_are_of_the_sorted_list() {
        let lives = Lives {
            lateness: (0..=100).map(Duration::from_millis).collect(),
            ..Lives::default()
        };
        assert_eq!(lives.late(50), Some(Duration::from_millis(50)));
        assert_eq!(lives.late(99), Some(Duration::from_millis(99)));
        assert_eq!(Lives::default().late(50), None);
    }
}
