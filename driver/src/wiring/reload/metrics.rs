// SPDX-License-Identifier: Apache-2.0
//! Metrics of configuration reloads.

use std::sync::Arc;

use csi_kit::metrics::{Metrics, MetricsError};
use csi_sources::Sources;
use prometheus::IntGauge;
use tokio::sync::Notify;

/// Metrics of the configuration in use. Clones share their values.
#[derive(Debug, Clone)]
pub(in crate::wiring) struct ReloadMetrics {
    success: IntGauge,
    timestamp: IntGauge,
    /// Notified after each change of the configuration in use.
    pub(in crate::wiring) changed: Arc<Notify>,
}

impl ReloadMetrics {
    /// Registers the metrics.
    pub(in crate::wiring) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let success = IntGauge::new(
            "cinder_csi_config_reload_success",
            "1 while the configuration in the files is in use, 0 while an earlier one is.",
        );
        let timestamp = IntGauge::new(
            "cinder_csi_config_reload_timestamp_seconds",
            "Time of the last configuration that the driver began to use.",
        );
        Ok(Self {
            success: metrics.registered(success)?,
            timestamp: metrics.registered(timestamp)?,
            changed: Arc::default(),
        })
    }

    pub(super) fn report(&self, success: bool) {
        self.success.set(success.into());
    }

    pub(super) fn applied(&self, sources: &Sources) {
        self.timestamp.set(sources.now().as_second());
    }
}
