//! What is worth an alert, and how a driver looks on a dashboard. Pure: made from settings alone.
//!
//! The rules are data. The PrometheusRule of a driver, that of the operator (`config/monitoring`) and the page
//! `docs/reference/alerts.md` are made from the same list.

mod alerts;
mod dashboard;

pub use alerts::{Alert, Severity, driver_alerts, groups, operator_alerts};
pub use dashboard::dashboard;
