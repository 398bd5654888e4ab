//! The dashboard for Grafana.

use serde_json::{Value, json};

/// One panel: title, unit as Grafana names it, expressions with their legends.
type Panel = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const PANELS: &[Panel] = &[
    (
        "Available",
        "bool_yes_no",
        &[(
            "cinder_csi_operator_condition{driver=\"$driver\",type=\"Available\",status=\"True\"}",
            "available",
        )],
    ),
    (
        "Nodes",
        "short",
        &[("cinder_csi_operator_nodes{driver=\"$driver\"}", "{{state}}")],
    ),
    (
        "Volumes that make no progress",
        "short",
        &[(
            "sum by (operation, reason) (cinder_csi_operator_stuck_volumes{driver=\"$driver\"})",
            "{{operation}}: {{reason}}",
        )],
    ),
    (
        "CSI calls per second",
        "ops",
        &[(
            "sum by (method_name, grpc_status_code) (rate(csi_sidecar_operations_seconds_count{driver=\"$driver\"}[$__rate_interval]))",
            "{{method_name}} {{grpc_status_code}}",
        )],
    ),
    (
        "CSI calls: how long 99 of 100 take",
        "s",
        &[(
            "histogram_quantile(0.99, sum by (method_name, le) (rate(csi_sidecar_operations_seconds_bucket{driver=\"$driver\"}[$__rate_interval])))",
            "{{method_name}}",
        )],
    ),
    (
        "OpenStack calls per second",
        "reqps",
        &[(
            "sum by (service, code) (rate(openstack_api_answers_total{driver=\"$driver\"}[$__rate_interval]))",
            "{{service}} {{code}}",
        )],
    ),
    (
        "OpenStack calls: how long 99 of 100 take",
        "s",
        &[(
            "histogram_quantile(0.99, sum by (request, le) (rate(openstack_api_request_duration_seconds_bucket{driver=\"$driver\"}[$__rate_interval])))",
            "{{request}}",
        )],
    ),
    (
        "What waits in the driver",
        "short",
        &[(
            "sum by (queue) (cinder_csi_queue_depth{driver=\"$driver\"})",
            "{{queue}}",
        )],
    ),
    (
        "Quota in use",
        "percentunit",
        &[(
            "cinder_csi_operator_quota_used{driver=\"$driver\"} / (cinder_csi_operator_quota_limit{driver=\"$driver\"} > 0)",
            "{{cloud}} {{resource}} {{volume_type}}",
        )],
    ),
    (
        "Until something expires",
        "s",
        &[(
            "cinder_csi_operator_credential_expiry_timestamp_seconds{driver=\"$driver\"} - time()",
            "{{cloud}} {{kind}}",
        )],
    ),
    (
        "Reconciles per second",
        "ops",
        &[(
            "sum by (result) (rate(cinder_csi_operator_reconcile_total[$__rate_interval]))",
            "{{result}}",
        )],
    ),
    (
        "Objects put right",
        "short",
        &[(
            "sum by (kind) (increase(cinder_csi_operator_drift_repaired_total{driver=\"$driver\"}[1h]))",
            "{{kind}}",
        )],
    ),
];

/// Panels in a row, and how high they are, in Grafana's units.
const COLUMNS: usize = 3;
const WIDTH: usize = 8;
const HEIGHT: usize = 8;

/// The dashboard of every driver; which one is chosen in it.
pub fn dashboard() -> Value {
    let panels: Vec<Value> = PANELS
        .iter()
        .enumerate()
        .map(|(number, panel)| render(number, panel))
        .collect();
    json!({
        "uid": "cinder-csi",
        "title": "Cinder CSI",
        "tags": ["openstack", "cinder", "csi"],
        "schemaVersion": 39,
        "editable": true,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [
            {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
            {
                "name": "driver",
                "label": "Driver",
                "type": "query",
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "query": "label_values(cinder_csi_operator_condition, driver)",
                "refresh": 2,
            },
        ]},
        "panels": panels,
    })
}

fn render(number: usize, (title, unit, targets): &Panel) -> Value {
    let targets: Vec<Value> = targets
        .iter()
        .zip('A'..)
        .map(|((expression, legend), id)| json!({"refId": id.to_string(), "expr": expression, "legendFormat": legend}))
        .collect();
    json!({
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "gridPos": {
            "x": number % COLUMNS * WIDTH,
            "y": number / COLUMNS * HEIGHT,
            "w": WIDTH,
            "h": HEIGHT,
        },
        "targets": targets,
    })
}
