// SPDX-License-Identifier: Apache-2.0
//! All generated files: the pages of `docs/reference`, and other files with the same sources.

use std::fmt::Write as _;

use anyhow::Result;
use cinder_csi_crds::{AlertThresholds, ConditionType, DEFAULT_DRIVER_NAME, crd, to_yaml};
use cinder_csi_operator::metrics::Metrics;
use cinder_operator_core::{
    diagnosis::{Operation, RULES},
    monitoring::{Alert, driver_alerts, groups, operator_alerts},
    reasons::{Event, reasons_of},
};
use prometheus::core::Desc;
use serde_json::json;

use crate::{fields, flags, issues, markdown::cell, settings};

/// The generated files by their paths in the repository.
pub(crate) fn pages() -> Result<Vec<(&'static str, String)>> {
    Ok(vec![
        ("crds/cindercsidrivers.csi.openstack.org.yaml", to_yaml(&crd())?),
        ("docs/go-driver-issues.md", issues::page()?),
        ("docs/reference/conditions.md", conditions()),
        ("docs/reference/events.md", events()),
        ("docs/reference/metrics.md", metrics(Metrics::new()?.descriptions())),
        ("docs/reference/alerts.md", alerts()?),
        ("docs/reference/diagnosis.md", diagnosis()),
        ("docs/reference/settings.md", settings::page(MADE)?),
        ("docs/reference/spec.md", fields::page(MADE, "spec")?),
        ("docs/reference/status.md", fields::page(MADE, "status")?),
        ("docs/reference/flags.md", flags::page(MADE)),
        ("config/monitoring/prometheus_rule.yaml", rule()?),
    ])
}

const MADE: &str = "<!-- Made from the code by `make generate`. -->\n\n";

fn conditions() -> String {
    let mut page = format!(
        "{MADE}# Conditions of a CinderCSIDriver\n\nIn `status.conditions`. The reason is for programs, the message for people; what is \
         said here is the rule behind it.\n"
    );
    for type_ in ConditionType::ALL {
        let _ = write!(
            page,
            "\n## {type_}\n\nHealthy value: {}.\n\n| status | reason | what is the case | what to do |\n|---|---|---|---|\n",
            type_.good_status()
        );
        for row in reasons_of(*type_) {
            let _ = writeln!(
                page,
                "| {} | `{}` | {} | {} |",
                row.status,
                row.reason,
                cell(row.meaning.trim_start()),
                cell(row.remedy)
            );
        }
    }
    page
}

fn diagnosis() -> String {
    let mut page = format!(
        "{MADE}# Why an operation on a volume does not end\n\nIn `status.volumes.stuck`, in the events of the claim, and in what \
         `kubectl cinder-csi diagnose PVC` prints. The first cause that fits is shown, in this order; the hint next to it has the remedy. \
         The operator has no right to read events: a cause that only an event of claim or pod has is `Unexplained`, and `diagnose` \
         prints these events.\n\n| reason | operations | what is the case |\n|---|---|---|\n"
    );
    for rule in RULES {
        let operations: Vec<&str> = if rule.operations.len() == Operation::ALL.len() {
            vec!["any"]
        } else {
            rule.operations.iter().map(|operation| operation.as_str()).collect()
        };
        let _ = writeln!(
            page,
            "| `{}` | {} | {} |",
            rule.reason,
            operations.join(", "),
            cell(rule.meaning)
        );
    }
    page
}

fn events() -> String {
    let mut page = format!(
        "{MADE}# Events of the operator\n\nThe same sentence about the same object is not sent twice within ten minutes.\n\n| type | reason | \
         on | what happened |\n|---|---|---|---|\n"
    );
    let claim = Event::VolumeStuck.row().reason;
    for row in Event::ROWS {
        let object = match row.reason {
            reason if reason == claim => "PersistentVolumeClaim",
            _ => "CinderCSIDriver",
        };
        let _ = writeln!(
            page,
            "| {:?} | `{}` | {object} | {} |",
            row.severity,
            row.reason,
            cell(row.meaning.trim_start())
        );
    }
    page
}

fn metrics(descriptions: &[Desc]) -> String {
    let mut page = format!(
        "{MADE}# Metrics of the operator\n\nAt `/metrics` of the operator's Service, over TLS, for service accounts that are bound to the \
         ClusterRole `cinder-csi-metrics-reader`. No label holds the name of a node, a volume or a claim.\n\nThe driver's pods have metrics \
         of their own: [those of the driver](../monitoring.md#metrics-of-the-driver), and those of the sidecars as their documents describe.\n\n| metric | labels | what it \
         shows |\n|---|---|---|\n"
    );
    for description in descriptions {
        let labels: Vec<String> = description
            .variable_labels
            .iter()
            .map(|label| format!("`{label}`"))
            .collect();
        let _ = writeln!(
            page,
            "| `{}` | {} | {} |",
            description.fq_name,
            labels.join(", "),
            cell(&description.help)
        );
    }
    page
}

/// Every alert: of the operator, and of a driver with the default thresholds.
fn every_alert() -> Result<Vec<Alert>> {
    let mut alerts = operator_alerts()?;
    alerts.extend(driver_alerts(DEFAULT_DRIVER_NAME, &AlertThresholds::default())?);
    Ok(alerts)
}

fn alerts() -> Result<String> {
    let mut page = format!(
        "{MADE}# Alerts\n\nThose about a driver are in a PrometheusRule that the operator makes (`spec.monitoring`), shown here for \
         `{DEFAULT_DRIVER_NAME}` with the usual thresholds. Those about the operator itself are in `config/monitoring`. While \
         `CinderCSIBackendDown` fires, `CinderCSIVolumeStuck`, `CinderCSIProvisionFailing` and `CinderCSIAttachSlow` say nothing new: let \
         it inhibit them.\n"
    );
    for Alert {
        name,
        expression,
        holds,
        labels,
        annotations,
    } in every_alert()?
    {
        let _ = write!(
            page,
            "\n## {name}\n\n{} {}, after {holds}. [Runbook](../runbooks.md#{})\n\n```\n{expression}\n```\n",
            annotations.summary,
            labels.severity,
            name.to_lowercase(),
        );
    }
    Ok(page)
}

/// The alerts about the operator, for clusters with the Prometheus operator.
fn rule() -> Result<String> {
    let rule = json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "cinder-csi-operator", "namespace": "cinder-csi"},
        "spec": {"groups": groups("cinder-csi-operator", &operator_alerts()?)},
    });
    Ok(format!("# Made from the code by `make generate`.\n{}", to_yaml(&rule)?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use cinder_operator_core::monitoring::DASHBOARD;

    use super::*;

    #[test]
    fn alerts_and_dashboard_use_existing_metrics() {
        let metrics = Metrics::new().expect("metrics");
        let own: BTreeSet<&str> = metrics.descriptions().iter().map(|one| one.fq_name.as_str()).collect();
        let driver = [
            DRIVER_METRICS.map(file).concat(),
            "\"cinder_csi_driver_build_info\"".to_owned(),
        ]
        .concat();
        let sidecars = [
            "csi_sidecar_operations_seconds",
            "controller_persistentvolumeclaim_provision_failed_total",
            "controller_persistentvolumeclaim_provision_total",
            "leader_election_master_status",
            "process_cpu_seconds_total",
        ];
        let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).expect("JSON");
        let mut expressions = Vec::new();
        collect_expressions(&dashboard, &mut expressions);
        expressions.extend(every_alert().expect("alerts").into_iter().map(|alert| alert.expression));
        let mut asked = BTreeSet::new();
        for word in expressions
            .iter()
            .flat_map(|text| text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')))
        {
            // Histograms have three series each.
            let ends = ["_bucket", "_count", "_sum"];
            let name = ends.iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
            if ["cinder_csi_", "csi_", "openstack_"]
                .iter()
                .any(|start| name.starts_with(start))
                || name.ends_with("_total")
            {
                asked.insert(name);
                let known = own.contains(name) || sidecars.contains(&name) || driver.contains(&format!("\"{name}\""));
                assert!(known, "{word} is no known metric");
            }
        }
        // The alerts or the dashboard must show every counted value.
        let hidden: Vec<_> = own.iter().filter(|name| !asked.contains(**name)).collect();
        assert!(hidden.is_empty(), "neither alerts nor the dashboard show {hidden:?}");
    }

    /// Every `expr` of a dashboard.
    fn collect_expressions(value: &serde_json::Value, expressions: &mut Vec<String>) {
        let inner: Vec<&serde_json::Value> = match value {
            serde_json::Value::Array(values) => values.iter().collect(),
            serde_json::Value::Object(fields) => fields.values().collect(),
            _ => return,
        };
        expressions.extend(value["expr"].as_str().map(str::to_owned));
        for value in inner {
            collect_expressions(value, expressions);
        }
    }

    /// The files that name the driver's metrics.
    const DRIVER_METRICS: [&str; 3] = [
        "driver/src/metrics.rs",
        "driver/src/observation.rs",
        "driver/src/wiring/reload/metrics.rs",
    ];

    /// A file of the repository.
    fn file(name: &str) -> String {
        let path = std::path::Path::new(crate::paths::ROOT).join(name);
        std::fs::read_to_string(path).unwrap_or_default()
    }

    #[test]
    fn table_of_driver_metrics_is_complete() {
        fn names(text: &str) -> BTreeSet<&str> {
            text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .filter(|word| {
                    ["csi_operations_", "cinder_csi_", "openstack_api_"]
                        .iter()
                        .any(|beginning| word.starts_with(beginning))
                })
                .collect()
        }
        let code = DRIVER_METRICS.map(file);
        let code = code.iter().filter_map(|text| text.split("#[cfg(test)]").next());
        let page = file("docs/monitoring.md");
        let (_, section) = page
            .split_once("## Metrics of the driver\n")
            .expect("the page has the section");
        let section = section.split("\n## ").next().unwrap_or_default();
        assert_eq!(names(section), code.flat_map(names).collect());
    }
}
