// SPDX-License-Identifier: Apache-2.0
//! Alerts and the dashboard. `alerts.yaml` defines the alerts.
//!
//! Three files are generated from them: the PrometheusRule of a driver, the PrometheusRule of the operator
//! (`config/monitoring`) and the page `docs/reference/alerts.md`.

mod alerts;

pub use alerts::{Alert, Annotations, Labels, driver_alerts, groups, operator_alerts};

/// The dashboard of all drivers, as Grafana JSON. It is edited in Grafana.
pub const DASHBOARD: &str = include_str!("../../../config/monitoring/dashboard.json");
