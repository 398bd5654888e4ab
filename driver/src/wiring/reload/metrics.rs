// SPDX-License-Identifier: Apache-2.0
//! What Prometheus is told about changes of the configuration.

use csi_kit::metrics::{Metrics, MetricsError};
use prometheus::{IntCounterVec, IntGaugeVec, Opts};

/// What became of a changed configuration.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReloadOutcome {
    /// It is in use.
    Applied,
    /// It cannot be understood.
    Malformed,
    /// The cloud does not let it in, or it is another cloud's.
    Refused,
    /// The cloud gave no answer; it is tried again.
    Unreachable,
}

impl ReloadOutcome {
    const ALL: [Self; 4] = [Self::Applied, Self::Malformed, Self::Refused, Self::Unreachable];

    fn name(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Malformed => "malformed",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
        }
    }
}

/// Counts. Cheap to clone; clones count together.
#[derive(Debug, Clone)]
pub(in crate::wiring) struct ReloadMetrics {
    reloads: IntCounterVec,
    loaded: IntGaugeVec,
}

impl ReloadMetrics {
    /// Registers the families in the process's registry.
    pub(in crate::wiring) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let reloads = Opts::new(
            "cinder_csi_config_reloads_total",
            "Changed configurations by what became of them; all but `applied` leave the last good one in use.",
        );
        let reloads = metrics.registered(IntCounterVec::new(reloads, &["outcome"]))?;
        let loaded = Opts::new(
            "cinder_csi_config_loaded_info",
            "The configuration in use, by the beginning of the hash that the operator shows for the credentials.",
        );
        let loaded = metrics.registered(IntGaugeVec::new(loaded, &["hash"]))?;
        for outcome in ReloadOutcome::ALL {
            reloads.with_label_values(&[outcome.name()]);
        }
        Ok(Self { reloads, loaded })
    }

    pub(super) fn count(&self, outcome: ReloadOutcome) {
        self.reloads.with_label_values(&[outcome.name()]).inc();
    }

    pub(super) fn show(&self, hash: &str) {
        self.loaded.reset();
        self.loaded.with_label_values(&[hash]).set(1);
    }
}
