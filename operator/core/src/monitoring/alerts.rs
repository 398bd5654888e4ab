// SPDX-License-Identifier: Apache-2.0
//! The alerts of `alerts.yaml`, each with its runbook, and those about a driver with its name and thresholds.

use std::sync::LazyLock;

use cinder_csi_crds::AlertThresholds;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{fill_in, leaders, runbook, thresholds};
use crate::templates::{self, Template};

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
        self.annotations.runbook_url = runbook(&self.name);
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
pub fn driver_alerts(driver: &str, values: &AlertThresholds) -> Result<Vec<Alert>, serde_json::Error> {
    // A driver's name holds letters, digits, dots and dashes: nothing that PromQL would read otherwise.
    let mut words = vec![("DRIVER", format!("driver=\"{driver}\"")), leaders()];
    words.extend(thresholds(values));
    let alerts = templates::get(&ALERTS)?.driver.iter().cloned();
    let filled_in = alerts.map(|alert| Alert {
        expression: fill_in(&alert.expression, &words),
        ..alert
    });
    Ok(filled_in.map(Alert::with_runbook).collect())
}
