// SPDX-License-Identifier: Apache-2.0
//! Metrics, alerts and dashboards for Prometheus and Grafana.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Objects for the Prometheus operator and for Grafana.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Monitoring {
    /// Whether the operator creates monitoring objects. Auto: it creates ServiceMonitors and PrometheusRules
    /// if the cluster has their CustomResourceDefinitions. Enabled: the same, and condition Degraded reports
    /// missing definitions. Disabled: it creates none.
    #[serde(default)]
    pub mode: MonitoringMode,

    /// How Prometheus scrapes the driver's metrics.
    #[serde(default)]
    pub service_monitor: ServiceMonitorSettings,

    /// The alerts of the PrometheusRule.
    #[serde(default)]
    pub rules: AlertRules,

    /// The dashboard for Grafana.
    #[serde(default)]
    pub dashboards: Dashboards,

    /// Whether the driver's containers serve their metrics over TLS only. Each container generates a
    /// certificate when it starts. The certificate encrypts the connection, and does not prove the identity
    /// of the server. Probes and the metrics of the sidecars use plain HTTP.
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

/// Whether the operator creates monitoring objects.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MonitoringMode {
    /// If the cluster has their kinds.
    #[default]
    Auto,
    /// Always.
    Enabled,
    /// Never.
    Disabled,
}

/// How Prometheus scrapes the driver's metrics.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ServiceMonitorSettings {
    /// Time between two scrapes, as in 30s.
    #[serde(default = "default_interval")]
    #[schemars(length(max = 32), regex(pattern = r"^([1-9][0-9]*(ms|s|m|h))+$"))]
    pub interval: String,

    /// Labels of the ServiceMonitors, for the selector of a Prometheus.
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

/// The alerts of the PrometheusRule.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct AlertRules {
    /// Whether the operator creates the PrometheusRule.
    #[serde(default = "enabled")]
    pub enabled: bool,

    /// Names of alerts to omit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub disabled: Vec<String>,

    /// Labels of the PrometheusRule, for the selector of a Prometheus.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub labels: BTreeMap<String, String>,

    /// Thresholds of the alerts.
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

/// Thresholds of the alerts.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct AlertThresholds {
    /// Maximum duration of 99% of calls to OpenStack, in seconds.
    #[serde(default = "default_backend_seconds")]
    #[schemars(range(min = 1, max = 600))]
    pub backend_seconds: i32,

    /// Maximum percentage of calls to OpenStack that fail with a server error.
    #[serde(default = "default_backend_error_percent")]
    #[schemars(range(min = 1, max = 100))]
    pub backend_error_percent: i32,

    /// Maximum duration of 99% of attachments, in seconds.
    #[serde(default = "default_attach_seconds")]
    #[schemars(range(min = 1, max = 3600))]
    pub attach_seconds: i32,

    /// Number of stuck volumes from which the alert is critical.
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
    /// Whether the operator creates a ConfigMap with the dashboard. It does so under the same conditions as
    /// the objects for the Prometheus operator.
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
