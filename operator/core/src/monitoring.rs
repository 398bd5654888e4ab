//! What is worth an alert, and how a driver looks on a dashboard. Both are data: `alerts.yaml` and `dashboard.json`.
//!
//! The PrometheusRule of a driver, that of the operator (`config/monitoring`) and the page `docs/reference/alerts.md` are made from them.

mod alerts;

pub use alerts::{Alert, Annotations, Labels, driver_alerts, groups, operator_alerts};

/// The dashboard of every driver, for Grafana; the user chooses the driver in it.
pub const DASHBOARD: &str = include_str!("monitoring/dashboard.json");
