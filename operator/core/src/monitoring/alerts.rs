//! The alerts of `alerts.yaml`, each with its runbook, and those about a driver with its name and thresholds.

use std::sync::LazyLock;

use cinder_csi_crds::AlertThresholds;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::templates::{self, Template};

/// Where the runbooks are read: a section for each alert.
const RUNBOOKS: &str = "https://github.com/cinder-csi/cinder-csi/blob/main/docs/runbooks.md";

static ALERTS: Template<Alerts> = LazyLock::new(|| templates::read(include_str!("alerts.yaml")));

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Alerts {
    operator: Vec<Alert>,
    driver: Vec<Alert>,
}

/// One alert, as Prometheus reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alert {
    /// Its name.
    #[serde(rename = "alert")]
    pub name: String,
    /// When it fires, in PromQL.
    #[serde(rename = "expr")]
    pub expression: String,
    /// How long the expression must hold.
    #[serde(rename = "for")]
    pub holds: String,
    /// How soon a person should look.
    pub labels: Labels,
    /// What that person reads.
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
    /// What it means and what to do first, with the values of the labels filled in.
    pub description: String,
    /// The section of the runbooks.
    #[serde(default)]
    pub runbook_url: String,
}

impl Alert {
    fn with_runbook(mut self) -> Self {
        self.annotations.runbook_url = format!("{RUNBOOKS}#{}", self.name.to_lowercase());
        self
    }
}

/// The groups of a PrometheusRule or of a file of rules.
pub fn groups(name: &str, alerts: &[Alert]) -> Value {
    json!([{"name": name, "rules": alerts}])
}

/// Alerts about the operator itself: once in a cluster.
pub fn operator_alerts() -> Result<Vec<Alert>, serde_json::Error> {
    let alerts = templates::get(&ALERTS)?.operator.iter().cloned();
    Ok(alerts.map(Alert::with_runbook).collect())
}

/// Alerts about one driver.
pub fn driver_alerts(driver: &str, thresholds: &AlertThresholds) -> Result<Vec<Alert>, serde_json::Error> {
    // A driver's name holds letters, digits, dots and dashes: nothing that PromQL would read otherwise.
    let filled_in = [
        ("DRIVER", format!("driver=\"{driver}\"")),
        ("LEADERS(", "max without (instance, pod) (".to_owned()),
        ("BACKEND_SECONDS", thresholds.backend_seconds.to_string()),
        (
            "BACKEND_ERROR_RATIO",
            (f64::from(thresholds.backend_error_percent) / 100.0).to_string(),
        ),
        ("STUCK_VOLUMES", thresholds.stuck_volumes.to_string()),
        ("ATTACH_SECONDS", thresholds.attach_seconds.to_string()),
    ];
    let alerts = templates::get(&ALERTS)?.driver.iter().cloned();
    let fill_in = |mut alert: Alert| {
        for (word, value) in &filled_in {
            alert.expression = alert.expression.replace(word, value);
        }
        alert.with_runbook()
    };
    Ok(alerts.map(fill_in).collect())
}
