// SPDX-License-Identifier: Apache-2.0
//! Condition MonitoringReady.

use cinder_csi_crds::MonitoringMode;

use super::{Verdict, verdict};
use crate::{decide::MonitoringView, reasons::MonitoringReady};

pub(super) fn ready(view: MonitoringView) -> Verdict<MonitoringReady> {
    match view {
        MonitoringView {
            mode: MonitoringMode::Disabled,
            ..
        } => verdict(
            MonitoringReady::Disabled,
            "spec.monitoring.mode is Disabled: nothing is made for Prometheus",
        ),
        MonitoringView { served: true, .. } => verdict(
            MonitoringReady::AsExpected,
            "ServiceMonitors, alerts and the dashboard are there as spec.monitoring wants them",
        ),
        MonitoringView {
            mode: MonitoringMode::Auto,
            ..
        } => verdict(
            MonitoringReady::NotInstalled,
            "the cluster has no ServiceMonitors and PrometheusRules; they are made when the Prometheus operator is installed",
        ),
        MonitoringView { .. } => verdict(
            MonitoringReady::CRDsMissing,
            "spec.monitoring.mode is Enabled, and the API server does not know ServiceMonitor and PrometheusRule of \
             monitoring.coreos.com/v1: install the Prometheus operator, or set the mode to Auto or Disabled",
        ),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::reasons::Reason as _;

    #[rstest]
    #[case(MonitoringMode::Auto, true, "True", "AsExpected")]
    #[case(MonitoringMode::Auto, false, "True", "NotInstalled")]
    #[case(MonitoringMode::Enabled, true, "True", "AsExpected")]
    #[case(MonitoringMode::Enabled, false, "False", "CRDsMissing")]
    #[case(MonitoringMode::Disabled, true, "True", "Disabled")]
    #[case(MonitoringMode::Disabled, false, "True", "Disabled")]
    fn only_what_was_asked_for_by_name_is_missed(
        #[case] mode: MonitoringMode,
        #[case] served: bool,
        #[case] status: &str,
        #[case] reason: &str,
    ) {
        let (is, sentence) = ready(MonitoringView { mode, served });

        assert_eq!((is.row().status, is.as_str()), (status, reason), "{sentence}");
    }
}
