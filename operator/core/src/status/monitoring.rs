// SPDX-License-Identifier: Apache-2.0
//! Whether the objects for Prometheus can be created.

use cinder_csi_crds::MonitoringMode;

use crate::{decide::MonitoringView, problem::Problem, reasons::Degraded};

/// Returns the problem if spec.monitoring requires kinds that the cluster does not serve.
pub(super) fn issue(view: MonitoringView) -> Option<Problem> {
    (view.mode == MonitoringMode::Enabled && !view.served).then(|| Problem {
        reason: Degraded::MonitoringCRDsMissing,
        message:
            "spec.monitoring.mode is Enabled, and the API server does not know ServiceMonitor and PrometheusRule of \
                  monitoring.coreos.com/v1: install the Prometheus operator, or set the mode to Auto or Disabled"
                .to_owned(),
    })
}
