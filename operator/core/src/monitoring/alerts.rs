// SPDX-License-Identifier: Apache-2.0
//! The alerts of `alerts.yaml` with their runbooks. Alerts about a driver have its name and thresholds.

use std::sync::LazyLock;

use cinder_csi_crds::AlertThresholds;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::templates::{self, Template};

static ALERTS: Template<Alerts> = LazyLock::new(|| templates::read(include_str!("alerts.yaml")));

/// The published runbooks, with a section for each alert.
const RUNBOOKS: &str = "https://github.com/cinder-csi/cinder-csi/blob/main/docs/runbooks.md";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Alerts {
    operator: Vec<Alert>,
    driver: Vec<Alert>,
}

/// One alert in the format of Prometheus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alert {
    #[serde(rename = "alert")]
    pub name: String,
    /// Condition of the alert, in PromQL.
    #[serde(rename = "expr")]
    pub expression: String,
    /// How long the condition must be true before the alert fires.
    #[serde(rename = "for")]
    pub holds: String,
    /// Severity of the alert.
    pub labels: Labels,
    /// Texts of the alert.
    pub annotations: Annotations,
}

/// The labels of an alert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Labels {
    /// `critical`, `warning` or `info`.
    pub severity: String,
}

/// The texts of an alert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Annotations {
    /// One line.
    pub summary: String,
    /// Meaning and first action, with the values of the labels.
    pub description: String,
    /// URL of the section in the runbooks.
    #[serde(default)]
    pub runbook_url: String,
}

impl Alert {
    fn with_runbook(mut self) -> Self {
        self.annotations.runbook_url = runbook(&self.name);
        self
    }
}

/// Returns the groups of a PrometheusRule or of a rule file.
pub fn groups(name: &str, alerts: &[Alert]) -> Value {
    json!([{"name": name, "rules": alerts}])
}

/// Returns the alerts about the operator itself, which exist once in a cluster.
pub fn operator_alerts() -> Result<Vec<Alert>, serde_json::Error> {
    let alerts = templates::get(&ALERTS)?.operator.iter().cloned();
    Ok(alerts.map(Alert::with_runbook).collect())
}

/// Returns the alerts about one driver.
pub fn driver_alerts(driver: &str, values: &AlertThresholds) -> Result<Vec<Alert>, serde_json::Error> {
    // The name of a driver contains only letters, digits, dots and dashes, which PromQL does not interpret.
    let mut words = vec![("DRIVER", format!("driver=\"{driver}\"")), leaders()];
    words.extend(thresholds(values));
    let alerts = templates::get(&ALERTS)?.driver.iter().cloned();
    let filled_in = alerts.map(|alert| Alert {
        expression: fill_in(&alert.expression, &words),
        ..alert
    });
    Ok(filled_in.map(Alert::with_runbook).collect())
}

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
