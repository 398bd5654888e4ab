// SPDX-License-Identifier: Apache-2.0
//! What Prometheus and Grafana are given.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Objects for the Prometheus operator and for Grafana.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Monitoring {
    /// Auto: the operator creates ServiceMonitors and PrometheusRules if the cluster has their CustomResourceDefinitions. Enabled: the
    /// same, and condition Degraded reports missing definitions. Disabled: the operator creates no such objects.
    #[serde(default)]
    pub mode: MonitoringMode,

    /// How Prometheus reads the driver's metrics.
    #[serde(default)]
    pub service_monitor: ServiceMonitorSettings,

    /// The alerts.
    #[serde(default)]
    pub rules: AlertRules,

    /// The dashboard for Grafana.
    #[serde(default)]
    pub dashboards: Dashboards,

    /// Whether the driver's containers serve their metrics over TLS only. Each container generates a certificate when it starts. It
    /// encrypts the connection, and does not prove the identity of the server. Probes and the metrics of the sidecars use plain HTTP.
    #[serde(default = "enabled")]
    pub secure: bool,
}

impl Default for Monitoring {
    fn default() -> Self {
        Self {
            mode: MonitoringMode::default(),
            service_monitor: ServiceMonitorSettings::default(),
            rules: AlertRules::default(),
            dashboards: Dashboards::default(),
            secure: true,
        }
    }
}

/// Whether the objects are made.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MonitoringMode {
    /// Where the cluster knows their kinds.
    #[default]
    Auto,
    /// In any case.
    Enabled,
    /// Never.
    Disabled,
}

/// How Prometheus reads the driver's metrics.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ServiceMonitorSettings {
    /// Time between two readings, as in 30s.
    #[serde(default = "default_interval")]
    #[schemars(length(max = 32), regex(pattern = r"^([1-9][0-9]*(ms|s|m|h))+$"))]
    pub interval: String,

    /// Labels of the ServiceMonitors, by which a Prometheus finds them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub labels: BTreeMap<String, String>,
}

impl Default for ServiceMonitorSettings {
    fn default() -> Self {
        Self {
            interval: default_interval(),
            labels: BTreeMap::new(),
        }
    }
}

/// The alerts.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct AlertRules {
    /// Whether there are any.
    #[serde(default = "enabled")]
    pub enabled: bool,

    /// Names of alerts to leave out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub disabled: Vec<String>,

    /// Labels of the PrometheusRule, by which a Prometheus finds it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub labels: BTreeMap<String, String>,

    /// From where on something is worth an alert.
    #[serde(default)]
    pub thresholds: AlertThresholds,
}

impl Default for AlertRules {
    fn default() -> Self {
        Self {
            enabled: true,
            disabled: Vec::new(),
            labels: BTreeMap::new(),
            thresholds: AlertThresholds::default(),
        }
    }
}

/// From where on something is worth an alert.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct AlertThresholds {
    /// Seconds that 99 of 100 calls to OpenStack should not take longer than.
    #[serde(default = "default_backend_seconds")]
    #[schemars(range(min = 1, max = 600))]
    pub backend_seconds: i32,

    /// Percentage of calls to OpenStack that may fail on its side.
    #[serde(default = "default_backend_error_percent")]
    #[schemars(range(min = 1, max = 100))]
    pub backend_error_percent: i32,

    /// Seconds that 99 of 100 attachments should not take longer than.
    #[serde(default = "default_attach_seconds")]
    #[schemars(range(min = 1, max = 3600))]
    pub attach_seconds: i32,

    /// Volumes that make no progress from which on the alert is critical.
    #[serde(default = "default_stuck_volumes")]
    #[schemars(range(min = 1, max = 10_000))]
    pub stuck_volumes: i32,
}

impl Default for AlertThresholds {
    fn default() -> Self {
        Self {
            backend_seconds: default_backend_seconds(),
            backend_error_percent: default_backend_error_percent(),
            attach_seconds: default_attach_seconds(),
            stuck_volumes: default_stuck_volumes(),
        }
    }
}

/// The dashboard for Grafana.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Dashboards {
    /// Whether there is a ConfigMap with it. It is made with the objects for the Prometheus operator.
    #[serde(default = "enabled")]
    pub enabled: bool,
}

impl Default for Dashboards {
    fn default() -> Self {
        Self { enabled: true }
    }
}

fn default_interval() -> String {
    "30s".into()
}

fn enabled() -> bool {
    true
}

fn default_backend_seconds() -> i32 {
    20
}

fn default_backend_error_percent() -> i32 {
    5
}

fn default_attach_seconds() -> i32 {
    120
}

fn default_stuck_volumes() -> i32 {
    10
}
