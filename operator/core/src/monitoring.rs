// SPDX-License-Identifier: Apache-2.0
//! Alerts and the dashboard. The alerts are data: `alerts.yaml`.
//!
//! The PrometheusRule of a driver, that of the operator (`config/monitoring`) and the page `docs/reference/alerts.md` are generated from
//! the alerts.

mod alerts;

use cinder_csi_crds::AlertThresholds;

pub use alerts::{Alert, Annotations, Labels, driver_alerts, groups, operator_alerts};

/// The dashboard of all drivers, in Grafana's JSON. It is edited in Grafana.
pub const DASHBOARD: &str = include_str!("../../../config/monitoring/dashboard.json");

/// Where the runbooks are read: a section for each alert.
const RUNBOOKS: &str = "https://github.com/cinder-csi/cinder-csi/blob/main/docs/runbooks.md";

/// The address of a section of the runbooks.
fn runbook(heading: &str) -> String {
    format!("{RUNBOOKS}#{}", heading.to_lowercase().replace(' ', "-"))
}

/// What is filled in for a word of a template.
type Word = (&'static str, String);

/// The series of a replica that leads. Two replicas have them while the leader changes.
fn leaders() -> Word {
    ("LEADERS(", "max without (instance, pod) (".to_owned())
}

/// The names of thresholds with their values.
fn thresholds(thresholds: &AlertThresholds) -> [Word; 4] {
    let ratio = f64::from(thresholds.backend_error_percent) / 100.0;
    [
        ("BACKEND_SECONDS", thresholds.backend_seconds.to_string()),
        ("BACKEND_ERROR_RATIO", ratio.to_string()),
        ("STUCK_VOLUMES", thresholds.stuck_volumes.to_string()),
        ("ATTACH_SECONDS", thresholds.attach_seconds.to_string()),
    ]
}

/// A text with its words filled in.
fn fill_in(text: &str, words: &[Word]) -> String {
    let filled_in = |text: String, (word, value): &Word| text.replace(word, value);
    words.iter().fold(text.to_owned(), filled_in)
}
