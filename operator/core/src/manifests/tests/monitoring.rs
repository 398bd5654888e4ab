// SPDX-License-Identifier: Apache-2.0
//! Objects for Prometheus and Grafana.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{mk_credentials, mk_in_cluster, pod_spec};
use crate::cluster::OptionalApis;
use crate::manifests::{Operand, operands};
use crate::resolve::{Environment, resolve, tests::mk_environment};

/// Renders the objects in a cluster with the Prometheus operator.
fn mk_monitored(monitoring: &Value) -> Vec<Operand> {
    let mut driver = mk_in_cluster();
    driver.spec.monitoring = serde_json::from_value(monitoring.clone()).unwrap();
    let environment = Environment {
        apis: OptionalApis {
            monitoring: true,
            ..OptionalApis::default()
        },
        ..mk_environment()
    };
    operands(&resolve(&driver, &environment).unwrap(), Some(&mk_credentials())).unwrap()
}

fn of<'a>(operands: &'a [Operand], kind: &str, end: &str) -> &'a Operand {
    let found = operands
        .iter()
        .find(|operand| operand.kind.kind == kind && operand.name().ends_with(end));
    found.unwrap_or_else(|| panic!("no {kind} …{end}"))
}

fn names(values: &Value, field: &str) -> BTreeSet<String> {
    let values = values.as_array().unwrap();
    values
        .iter()
        .map(|value| value[field].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn every_port_is_scraped_with_driver_label() {
    let operands = mk_monitored(&json!({}));

    for (workload, component) in [("Deployment", "controller"), ("DaemonSet", "node")] {
        let containers = pod_spec(&operands, workload)["containers"].as_array().unwrap();
        let ports: BTreeSet<String> = containers
            .iter()
            .filter(|container| container["ports"].is_array())
            .flat_map(|container| names(&container["ports"], "name"))
            // The port for probes serves no metrics.
            .filter(|name| name != "health")
            .collect();
        let service = of(&operands, "Service", &format!("{component}-metrics"));
        let monitor = of(&operands, "ServiceMonitor", component);
        assert_eq!(names(&service.object.data["spec"]["ports"], "name"), ports);
        let endpoints = &monitor.object.data["spec"]["endpoints"];
        assert_eq!(names(endpoints, "port"), ports);
        for endpoint in endpoints.as_array().unwrap() {
            let relabeling = &endpoint["relabelings"][0];
            assert_eq!(relabeling["targetLabel"], "driver");
            assert_eq!(relabeling["replacement"], "cinder.csi.openstack.org");
            // Metrics have a label `service` themselves.
            let dropped = json!({"action": "labeldrop", "regex": "service"});
            assert!(
                endpoint["relabelings"].as_array().unwrap().contains(&dropped),
                "{endpoint}"
            );
        }
        // The monitor selects exactly this Service.
        let wanted = monitor.object.data["spec"]["selector"]["matchLabels"]
            .as_object()
            .unwrap();
        let chosen = operands.iter().filter(|operand| {
            let labels = json!(operand.object.metadata.labels);
            operand.kind.kind == "Service" && wanted.iter().all(|(name, value)| labels[name] == *value)
        });
        assert_eq!(chosen.map(Operand::name).collect::<Vec<_>>(), [service.name()]);
    }
}

#[test]
fn spec_sets_labels_interval_alerts_and_thresholds() {
    let operands = mk_monitored(&json!({
        "serviceMonitor": { "interval": "1m", "labels": { "release": "prometheus", "app.kubernetes.io/name": "other" } },
        "rules": { "disabled": ["CinderCSIAttachSlow"], "labels": { "role": "alerts" }, "thresholds": { "stuckVolumes": 77 } },
    }));

    let monitor = of(&operands, "ServiceMonitor", "node");
    let labels = monitor.object.metadata.labels.as_ref().unwrap();
    assert_eq!(labels["release"], "prometheus");
    assert_eq!(labels["app.kubernetes.io/name"], "cinder-csi", "ours stay");
    assert_eq!(monitor.object.data["spec"]["endpoints"][0]["interval"], "1m");
    let rule = of(&operands, "PrometheusRule", "alerts");
    assert_eq!(rule.object.metadata.labels.as_ref().unwrap()["role"], "alerts");
    let text = rule.object.data.to_string();
    assert!(!text.contains("CinderCSIAttachSlow") && text.contains("CinderCSIUnavailable") && text.contains("> 77"));
    let dashboard = of(&operands, "ConfigMap", "dashboard");
    let labels = dashboard.object.metadata.labels.as_ref().unwrap();
    assert_eq!(labels["grafana_dashboard"], "1");
    let json: Value = serde_json::from_str(dashboard.object.data["data"]["cinder-csi.json"].as_str().unwrap()).unwrap();
    assert_eq!(json["title"], "Cinder CSI");
}

#[test]
fn metrics_are_served_and_scraped_with_same_scheme() {
    for (monitoring, flags) in [
        (json!({}), &["--secure-metrics=true"][..]),
        (json!({ "secure": false }), &[]),
    ] {
        let operands = mk_monitored(&monitoring);
        for (workload, component) in [("Deployment", "controller"), ("DaemonSet", "node")] {
            let driver = &pod_spec(&operands, workload)["containers"][0];
            let args: Vec<&str> = driver["args"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(Value::as_str)
                .collect();
            let given = args
                .into_iter()
                .filter(|arg| arg.contains("secure-metrics") || arg.contains("--tls-"));
            assert_eq!(given.collect::<Vec<_>>(), flags, "{workload} with {monitoring}");
            // The kubelet continues to use plain HTTP.
            assert!(driver["readinessProbe"]["httpGet"]["scheme"].is_null());
            let monitor = of(&operands, "ServiceMonitor", component);
            for endpoint in monitor.object.data["spec"]["endpoints"].as_array().unwrap() {
                let is_secure = endpoint["port"] == "http" && !flags.is_empty();
                assert_eq!(endpoint["scheme"] == "https", is_secure, "{endpoint}");
                assert_eq!(
                    endpoint["tlsConfig"]["insecureSkipVerify"] == true,
                    is_secure,
                    "{endpoint}"
                );
            }
        }
    }
}

#[test]
fn disabled_monitoring_objects_are_not_rendered() {
    let off = json!({ "rules": { "enabled": false }, "dashboards": { "enabled": false } });
    for (monitoring, kinds) in [
        (off, &["Service", "ServiceMonitor"][..]),
        (json!({ "mode": "Disabled" }), &[]),
    ] {
        let operands = mk_monitored(&monitoring);
        let made: BTreeSet<&str> = operands.iter().map(|operand| operand.kind.kind).collect();
        for kind in ["Service", "ServiceMonitor", "PrometheusRule", "ConfigMap"] {
            assert_eq!(made.contains(kind), kinds.contains(&kind), "{kind} with {monitoring}");
        }
    }
}
