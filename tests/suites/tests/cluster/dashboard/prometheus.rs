// SPDX-License-Identifier: Apache-2.0
//! Prometheus, configured from ServiceMonitors and PrometheusRules as by the Prometheus operator. Debian's Prometheus
//! does not support discovery through the API server, so this module discovers the targets.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::{Prometheus, wait_for};
use serde_json::{Value, json};

use crate::metrics;
use crate::world::{NAMESPACE, World};

/// Scrape interval, shorter than in the ServiceMonitors.
const INTERVAL: &str = "1s";
/// Limit until Prometheus has discovered and scraped every pod.
const UNTIL_READ: Duration = Duration::from_mins(1);

/// Installs the kinds of the Prometheus operator, without validation.
pub(crate) async fn install_kinds(world: &World) -> Result<()> {
    let kinds = [
        ("ServiceMonitor", "servicemonitors"),
        ("PrometheusRule", "prometheusrules"),
    ];
    for (kind, plural) in kinds {
        let name = format!("{plural}.monitoring.coreos.com");
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
            "spec": {
                "group": "monitoring.coreos.com", "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }],
            },
        });
        world.apply(&definition).await?;
        let definition = format!("crd/{name}");
        let wait = ["wait", "--for=condition=Established", "--timeout=50s", &definition];
        world.kubectl(&wait).await?;
    }
    Ok(())
}

/// Starts Prometheus, and waits until it has scraped every discovered pod.
pub(super) async fn start(world: &World) -> Result<Prometheus> {
    let directory = world.cluster.prometheus_directory()?;
    let token = directory.join("token");
    std::fs::write(&token, metrics::token(world).await?).context("cannot write the token")?;
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).context("cannot protect the token")?;
    let rules = directory.join("rules.json");
    std::fs::write(&rules, rules_of(world).await?.to_string()).context("cannot write the rules")?;
    let mut jobs = Vec::new();
    for monitor in world.list(&["servicemonitors", "-n", NAMESPACE]).await? {
        jobs.extend(jobs_of(world, &monitor, &token).await?);
    }
    ensure!(jobs.len() > 5, "ServiceMonitors with {} endpoints", jobs.len());
    let config = json!({
        "global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL},
        "rule_files": [rules],
        "scrape_configs": jobs,
    });
    let prometheus = world.cluster.start_prometheus(&config).await?;
    let read = wait_for("a look at every pod's metrics", UNTIL_READ, async || {
        every_job_is_read(&prometheus, jobs.len()).await
    });
    read.await.map(|()| prometheus)
}

async fn every_job_is_read(prometheus: &Prometheus, jobs: usize) -> Result<()> {
    let data = prometheus.api("targets", &[("state", "active")]).await?;
    let targets = data["activeTargets"].as_array().context("no targets")?;
    for target in targets {
        let (url, error) = (&target["scrapeUrl"], &target["lastError"]);
        ensure!(target["health"] == "up", "{url}: {error}");
    }
    let pools: std::collections::BTreeSet<&str> = targets
        .iter()
        .filter_map(|target| target["scrapePool"].as_str())
        .collect();
    ensure!(
        pools.len() == jobs,
        "pods of {pools:?} alone are read, of {jobs} endpoints"
    );
    Ok(())
}

/// Returns the rule groups of all PrometheusRules.
async fn rules_of(world: &World) -> Result<Value> {
    let rules = world.list(&["prometheusrules", "-n", NAMESPACE]).await?;
    let groups: Vec<Value> = rules
        .iter()
        .filter_map(|rule| rule["spec"]["groups"].as_array())
        .flatten()
        .cloned()
        .collect();
    // One group of the operator, and one of the driver.
    ensure!(groups.len() == 2, "{} groups of rules", groups.len());
    Ok(json!({ "groups": groups }))
}

/// Returns the scrape configuration of each endpoint of a ServiceMonitor.
async fn jobs_of(world: &World, monitor: &Value, token: &Path) -> Result<Vec<Value>> {
    let namespace = match &monitor["spec"]["namespaceSelector"]["matchNames"] {
        Value::Null => &monitor["metadata"]["namespace"],
        names => &names[0],
    };
    let namespace = namespace.as_str().context("a ServiceMonitor without a namespace")?;
    let selector = selector(&monitor["spec"]["selector"]["matchLabels"]);
    let services = ["services", "-n", namespace, "-l", &selector];
    let services = world.list(&services).await?;
    let mut jobs = Vec::new();
    let endpoints = monitor["spec"]["endpoints"].as_array().into_iter().flatten();
    for (number, endpoint) in endpoints.enumerate() {
        let mut targets = Vec::new();
        for service in &services {
            targets.extend(targets_of(world, service, endpoint).await?);
        }
        let name = monitor["metadata"]["name"].as_str().unwrap_or_default();
        let mut job = json!({
            "job_name": format!("{name}/{number}"),
            "metrics_path": endpoint["path"],
            "scheme": endpoint["scheme"].as_str().unwrap_or("http"),
            "static_configs": targets,
        });
        if endpoint["tlsConfig"]["insecureSkipVerify"] == true {
            job["tls_config"] = json!({"insecure_skip_verify": true});
        }
        if endpoint["bearerTokenFile"].is_string() {
            job["authorization"] = json!({"credentials_file": token});
        }
        let relabelings = endpoint["relabelings"].as_array().into_iter().flatten();
        job["relabel_configs"] = relabelings.map(relabeling).collect();
        jobs.push(job);
    }
    Ok(jobs)
}

/// Converts a relabeling rule of a ServiceMonitor to Prometheus' format.
fn relabeling(rule: &Value) -> Value {
    let names = [
        ("action", "action"),
        ("regex", "regex"),
        ("replacement", "replacement"),
        ("targetLabel", "target_label"),
    ];
    let fields = names.into_iter().filter(|(name, _)| !rule[*name].is_null());
    fields.map(|(name, own)| (own.to_owned(), rule[name].clone())).collect()
}

/// Returns the pods behind a port of a Service, with the target labels of the Prometheus operator.
async fn targets_of(world: &World, service: &Value, endpoint: &Value) -> Result<Vec<Value>> {
    let name = &service["metadata"]["name"];
    let namespace = service["metadata"]["namespace"].as_str().unwrap_or_default();
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let port = ports.clone().find(|port| port["name"] == endpoint["port"]);
    let port = port.with_context(|| format!("Service {name} has no port {}", endpoint["port"]))?;
    let pods = ["pods", "-n", namespace, "-l", &selector(&service["spec"]["selector"])];
    let mut targets = Vec::new();
    for pod in world.list(&pods).await? {
        let address = pod["status"]["podIP"].as_str().context("a pod without an address")?;
        for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
            let ports = container["ports"].as_array().into_iter().flatten();
            for open in ports.filter(|open| open["name"] == port["targetPort"]) {
                targets.push(json!({
                    "targets": [format!("{address}:{}", open["containerPort"])],
                    "labels": {
                        "namespace": namespace, "service": name, "job": name, "endpoint": port["name"],
                        "pod": pod["metadata"]["name"], "container": container["name"],
                    },
                }));
            }
        }
    }
    let port = &endpoint["port"];
    ensure!(!targets.is_empty(), "no pod serves {port} of Service {name}");
    Ok(targets)
}

fn selector(labels: &Value) -> String {
    let pairs = labels.as_object().into_iter().flatten();
    let pairs: Vec<String> = pairs
        .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()))
        .collect();
    pairs.join(",")
}
