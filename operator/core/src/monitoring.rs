// SPDX-License-Identifier: Apache-2.0
//! Alerts and the dashboard. `alerts.yaml` defines the alerts.
//!
//! Three files are generated from them: the PrometheusRule of a driver, the PrometheusRule of the operator
//! (`config/monitoring`) and the page `docs/reference/alerts.md`.

mod alerts;

use cinder_csi_crds::AlertThresholds;

pub use alerts::{Alert, Annotations, Labels, driver_alerts, groups, operator_alerts};

/// The dashboard of all drivers, as Grafana JSON. It is edited in Grafana.
pub const DASHBOARD: &str = include_str!("../../../config/monitoring/dashboard.json");

/// The published runbooks, with a section for each alert.
const RUNBOOKS: &str = "https://github.com/cinder-csi/cinder-csi/blob/main/docs/runbooks.md";

/// Returns the URL of a section of the runbooks.
fn runbook(heading: &str) -> String {
    format!("{RUNBOOKS}#{}", heading.to_lowercase().replace(' ', "-"))
}

/// A placeholder of a template and its value.
type Placeholder = (&'static str, String);

/// Selects the series of the leading replica. Two replicas have them during a change of leader.
fn leaders() -> Placeholder {
    ("LEADERS(", "max without (instance, pod) (".to_owned())
}

/// Returns the names of the thresholds with their values.
fn thresholds(thresholds: &AlertThresholds) -> [Placeholder; 4] {
    let ratio = f64::from(thresholds.backend_error_percent) / 100.0;
    [
        ("BACKEND_SECONDS", thresholds.backend_seconds.to_string()),
        ("BACKEND_ERROR_RATIO", ratio.to_string()),
        ("STUCK_VOLUMES", thresholds.stuck_volumes.to_string()),
        ("ATTACH_SECONDS", thresholds.attach_seconds.to_string()),
    ]
}

/// Replaces the placeholders in a text.
fn fill_in(text: &str, words: &[Placeholder]) -> String {
    let filled_in = |text: String, (word, value): &Placeholder| text.replace(word, value);
    words.iter().fold(text.to_owned(), filled_in)
}
