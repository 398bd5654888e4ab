// SPDX-License-Identifier: Apache-2.0
//! Checks that every expression of the dashboard returns data from a real Prometheus under various events.

mod prometheus;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use harness::{Prometheus, wait_for, workspace_root};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use serde_json::{Value, json};
use suites::cluster::credentials::rotate;
use suites::cluster::{OPERANDS, claim_of_class, storage_class};

pub(crate) use prometheus::install_kinds;

use crate::world::{DRIVER, NAMESPACE, PATIENCE, USERS, World};

/// Expressions without data in this test, by a part of the expression, and the reason. An expression with data must not
/// be listed.
const NEVER: &[(&str, &str)] = &[(
    "cinder_csi_unstaged_in_use_total",
    "counted where a process outside of the driver keeps the device of a volume for longer than --device-in-use-timeout",
)];
/// Legend labels that may be empty, and the reason.
const EMPTY: &[(&str, &str)] = &[(
    "volume_type",
    "empty for the quota of all types together, which Prometheus takes for no label",
)];
/// Window of rates, which Grafana derives from the scrape interval and the resolution.
const RATE_INTERVAL: &str = "20s";
/// Limit until the last expressions show the events.
const UNTIL_SHOWN: Duration = Duration::from_mins(1);
/// A class with a missing volume type, and one whose volumes cannot be mounted.
const ODD_TYPE: &str = "odd-type";
const ODD_MOUNT: &str = "odd-mount";
/// Name of the ConfigMap with a CA certificate that expires.
const AUTHORITY: &str = "authority";

/// An expression of the dashboard and its position.
struct Expression {
    place: String,
    text: String,
    legend: String,
    /// Fields of the table's columns.
    columns: Vec<String>,
}

/// An expression and its series.
struct ExpressionData<'a> {
    expression: &'a Expression,
    series: Vec<Value>,
}

pub(crate) async fn dashboard_expressions_return_data(world: &World) -> Result<()> {
    world.healthy().await?;
    let monitoring = workspace_root().join("config/monitoring").display().to_string();
    world.kubectl(&["apply", "-k", &monitoring]).await?;
    let before = world.driver().await?["spec"]["clouds"].clone();
    let begun = seconds_since_1970()?;
    let prometheus = prometheus::start(world).await?;
    let outcome = async {
        let happened = something_happens(world, &prometheus, &before).await;
        let shown = all_is_shown(world, &prometheus, begun).await;
        // An event that did not occur explains the missing data.
        match (happened, shown) {
            (Err(reason), Err(error)) => Err(error.context(format!("{reason:#}"))),
            (happened, shown) => happened.and(shown),
        }
    };
    let outcome = outcome.await;
    world.cluster.end_prometheus()?;
    outcome?;
    restore(world, &before).await?;
    world.remove(&["-k", &monitoring]).await
}

fn seconds_since_1970() -> Result<f64> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .context("the clock is wrong")?;
    Ok(now.as_secs_f64())
}

/// Waits until an expression has series.
async fn shows(prometheus: &Prometheus, expression: &str) -> Result<()> {
    wait_for(&format!("data of {expression}"), PATIENCE, async || {
        let series = prometheus.query(expression).await?;
        ensure!(!series.is_empty(), "none");
        Ok(())
    })
    .await
}

/// Causes load and faults: volumes, another CA, failed calls, a change by another client, a stuck volume, a blocked
/// removal, and a rollout that needs an administrator.
async fn something_happens(world: &World, prometheus: &Prometheus, clouds: &Value) -> Result<()> {
    let volumes = async {
        make_classes(world).await?;
        world.start_pod("first", None).await?;
        world.start_pod_of_class("unmounted", ODD_MOUNT).await?;
        world.apply(&claim_of_class("refused", ODD_TYPE)).await?;
        let change = json!({"spec": {"fsGroupPolicy": "None"}});
        world.patch(&["csidriver", DRIVER], &change).await?;
        world.ready("first").await?;
        // A rate needs a sample before the next attachment.
        shows(prometheus, r#"cinder_csi_wait_seconds_count{operation="attach"}"#).await?;
        world.run_pod("second", None).await?;
        let failed = r#"{method_name="/csi.v1.Node/NodeStageVolume",grpc_status_code!="OK"}"#;
        shows(prometheus, &format!("csi_operations_seconds_count{failed}")).await
    };
    tokio::try_join!(volumes, another_authority(world, clouds))?;

    world.remove(&["pods", "--all", "-n", USERS]).await?;
    world.detached().await?;
    let fault = json!({"operation": "delete_volume", "effect": {"status": {"status": 500}}});
    world.cluster.simulator()?.add_fault(&fault).await?;
    let words = ["delete", "pvc", "--all", "-n", USERS, "--wait=false"];
    world.kubectl(&words).await?;
    let stuck = r#"cinder_csi_operator_stuck_volumes{operation="Delete"} > 0"#;
    shows(prometheus, stuck).await?;
    shows(prometheus, r#"ALERTS{alertname="CinderCSIVolumeStuck"}"#).await?;

    world.patch_spec(&json!({"managementState": "Removed"})).await?;
    shows(prometheus, "cinder_csi_operator_deletion_blockers > 0").await?;
    // Causes outdated node pods, which only an administrator can replace.
    let note = "spec: {template: {metadata: {annotations: {example.org/note: changed}}}}";
    let overrides = json!([{"target": {"kind": "DaemonSet", "name": "cinder-csi-node"}, "patch": note}]);
    let outdated =
        json!({"managementState": "Managed", "node": {"update": {"type": "OnDelete"}}, "overrides": overrides});
    world.patch_spec(&outdated).await?;
    shows(prometheus, r#"cinder_csi_operator_rollout_state{state="OnDelete"}"#).await?;
    world.patch_spec(&json!({"node": null, "overrides": null})).await
}

async fn make_classes(world: &World) -> Result<()> {
    let odd_type = storage_class(ODD_TYPE, &json!({"type": "no-such-type"}));
    world.apply(&odd_type).await?;
    let mut odd_mount = storage_class(ODD_MOUNT, &json!({"type": "fast"}));
    odd_mount["mountOptions"] = json!(["no-such-option"]);
    world.apply(&odd_mount).await
}

/// Configures a CA for the driver's cloud, which the driver reloads with the credentials, and soon makes a volume
/// overdue.
async fn another_authority(world: &World, clouds: &Value) -> Result<()> {
    let mut authority = CertificateParams::new(Vec::new()).context("cannot describe an authority")?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().context("cannot make a key")?;
    let pem = authority.self_signed(&key).context("cannot sign an authority")?.pem();
    world.write_config_map(AUTHORITY, "ca.crt", &pem).await?;
    let mut clouds = clouds.clone();
    clouds[0]["caBundleRef"] = json!({"name": AUTHORITY});
    let health = json!({"credentialCheckInterval": "10s", "stuck": {"delete": "5s"}});
    rotate(world, change_spec(world, &json!({"clouds": clouds, "health": health}))).await
}

/// Changes the spec, and triggers a sync of the controller's pods by their kubelets. Kubelets read the Secrets of a
/// changed pod immediately, and otherwise once a minute.
async fn change_spec(world: &World, spec: &Value) -> Result<()> {
    let secret = ["secrets", "-n", NAMESPACE, "-l", OPERANDS];
    let before = world.get(&secret).await?;
    world.patch_spec(spec).await?;
    wait_for("the driver's changed Secret", PATIENCE, async || {
        let now = world.get(&secret).await?;
        ensure!(now["items"][0]["data"] != before["items"][0]["data"], "it is the same");
        Ok(())
    })
    .await?;
    let note = format!("example.org/credentials={}", seconds_since_1970()?);
    let selector = format!("{OPERANDS},app.kubernetes.io/component=controller");
    let pods = ["pods", "-n", NAMESPACE, "-l", &selector];
    world.annotate(&pods, &note).await
}

/// Restores the cluster.
async fn restore(world: &World, clouds: &Value) -> Result<()> {
    world.cluster.simulator()?.clear_faults().await?;
    rotate(world, change_spec(world, &json!({"clouds": clouds, "health": null}))).await?;
    world.remove(&["storageclass", ODD_TYPE, ODD_MOUNT]).await?;
    world.remove(&["configmap", AUTHORITY, "-n", NAMESPACE]).await?;
    world.nothing_left().await?;
    world.healthy().await
}

/// Waits until every expression has had data, and writes a report.
async fn all_is_shown(world: &World, prometheus: &Prometheus, begun: f64) -> Result<()> {
    let words = ["configmap", "cinder-csi-dashboard", "-n", NAMESPACE];
    let map = world.get(&words).await?;
    let text = map["data"]["cinder-csi.json"].as_str();
    let text = text.context("a ConfigMap without a dashboard")?;
    let published = std::fs::read_to_string(workspace_root().join("config/monitoring/dashboard.json"))
        .context("cannot read the dashboard of config/monitoring")?;
    ensure!(
        text == published,
        "the ConfigMap has another dashboard than config/monitoring"
    );
    let dashboard: Value = serde_json::from_str(text).context("the dashboard is not JSON")?;
    drivers_can_be_chosen(prometheus, &dashboard).await?;
    no_label_is_renamed(prometheus).await?;
    let expressions = expressions(&dashboard)?;
    let mut shown = Vec::new();
    let outcome = wait_for("data of the dashboard", UNTIL_SHOWN, async || {
        let mut now_shown = Vec::new();
        let now = seconds_since_1970()?;
        for expression in &expressions {
            let series = prometheus
                .query_range(&expression.text, begun, now)
                .await
                .with_context(|| format!("{}: {}", expression.place, expression.text))?;
            let series = series.into_iter().filter(|series| last(series).is_some()).collect();
            now_shown.push(ExpressionData { expression, series });
        }
        // If the deadline cancels a poll, the previous result remains.
        shown = now_shown;
        check_all(&shown)
    })
    .await;
    let file = world.cluster.logs()?.join("dashboard.txt");
    std::fs::write(&file, report(&shown)).context("cannot write the dashboard's data")?;
    println!("    the data of {} expressions: {}", shown.len(), file.display());
    outcome
}

/// Checks that the variable `driver` has the driver as a value.
async fn drivers_can_be_chosen(prometheus: &Prometheus, dashboard: &Value) -> Result<()> {
    let variables = dashboard["templating"]["list"].as_array().context("no variables")?;
    let driver = variables.iter().find(|variable| variable["name"] == "driver");
    let query = driver.context("no variable driver")?["query"]
        .as_str()
        .unwrap_or_default();
    let metric = query
        .strip_prefix("label_values(")
        .and_then(|rest| rest.strip_suffix(", driver)"));
    let metric = metric.with_context(|| format!("the variable asks {query}"))?;
    let drivers = prometheus.api("label/driver/values", &[("match[]", metric)]).await?;
    ensure!(drivers == json!([DRIVER]), "the drivers to choose from are {drivers}");
    Ok(())
}

/// Checks that no metric has a label with the name of a target label, which Prometheus would rename.
async fn no_label_is_renamed(prometheus: &Prometheus) -> Result<()> {
    let labels = prometheus.api("labels", &[]).await?;
    let mut names = labels.as_array().context("no labels")?.iter().filter_map(Value::as_str);
    ensure!(
        !names.any(|name| name.starts_with("exported_")),
        "a label is renamed: {labels}"
    );
    Ok(())
}

/// Returns all expressions with their variables substituted.
fn expressions(dashboard: &Value) -> Result<Vec<Expression>> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let fill_in = |query: &Value| -> Result<String> {
        let text = query["expr"]
            .as_str()
            .with_context(|| format!("no expression in {query}"))?;
        let text = text
            .replace("$driver", DRIVER)
            .replace("$__rate_interval", RATE_INTERVAL);
        ensure!(!text.contains('$'), "a variable without a value: {text}");
        Ok(text)
    };
    let mut all = Vec::new();
    for panel in list(&dashboard["panels"]) {
        let title = panel["title"].as_str().unwrap_or_default();
        let names = &panel["transformations"][1]["options"]["include"]["names"];
        let columns = list(names)
            .iter()
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect::<Vec<_>>();
        for query in list(&panel["targets"]) {
            all.push(Expression {
                place: format!("{title} {}", query["refId"].as_str().unwrap_or_default()),
                text: fill_in(&query)?,
                legend: query["legendFormat"].as_str().unwrap_or_default().to_owned(),
                columns: columns.clone(),
            });
        }
    }
    for annotation in list(&dashboard["annotations"]["list"]) {
        if annotation["type"] != "dashboard" {
            all.push(Expression {
                place: format!("annotation {}", annotation["name"]),
                text: fill_in(&annotation)?,
                legend: annotation["titleFormat"].as_str().unwrap_or_default().to_owned(),
                columns: Vec::new(),
            });
        }
    }
    ensure!(all.len() > 50, "only {} expressions", all.len());
    Ok(all)
}

/// Returns the last numeric value of a series.
fn last(series: &Value) -> Option<f64> {
    let samples = series["values"].as_array()?.iter().rev();
    samples
        .filter_map(|sample| sample[1].as_str()?.parse().ok())
        .find(|value: &f64| !value.is_nan())
}

fn check_all(shown: &[ExpressionData<'_>]) -> Result<()> {
    let mut wrong = String::new();
    for ExpressionData { expression, series } in shown {
        let Expression { place, text, .. } = expression;
        let never = NEVER.iter().find(|(part, _)| text.contains(part));
        match (series.is_empty(), never) {
            (true, None) => writeln!(wrong, "{place} shows nothing: {text}")?,
            (false, Some((_, reason))) => writeln!(wrong, "{place} shows data, and NEVER says: {reason}")?,
            _ => {}
        }
        let labels: BTreeSet<&str> = series
            .iter()
            .filter_map(|one| one["metric"].as_object())
            .flatten()
            .map(|(name, _)| name.as_str())
            .collect();
        if let Some(label) = ["instance", "pod"].into_iter().find(|label| labels.contains(label)) {
            writeln!(wrong, "{place} has a series for each {label}: {text}")?;
        }
        if !series.is_empty() {
            let columns = expression
                .columns
                .iter()
                .map(String::as_str)
                .filter(|name| !name.starts_with("Value"));
            for label in legend_labels(&expression.legend).chain(columns) {
                if !labels.contains(label) && EMPTY.iter().all(|(name, _)| *name != label) {
                    writeln!(
                        wrong,
                        "{place} names its series by {label}, which none of them has: {labels:?}"
                    )?;
                }
            }
        }
    }
    for (part, _) in NEVER {
        if !shown.iter().any(|one| one.expression.text.contains(part)) {
            writeln!(wrong, "NEVER has {part}, and the dashboard does not")?;
        }
    }
    ensure!(wrong.is_empty(), "{wrong}");
    Ok(())
}

/// Parses `cloud` and `kind` from `{{cloud}} {{kind}}`.
fn legend_labels(legend: &str) -> impl Iterator<Item = &str> {
    legend
        .split("{{")
        .skip(1)
        .filter_map(|part| Some(part.split_once("}}")?.0))
}

/// Renders the dashboard as text: each expression with its series and their last values.
fn report(shown: &[ExpressionData<'_>]) -> String {
    let mut text = String::new();
    for ExpressionData { expression, series } in shown {
        let _ = writeln!(text, "{}\n    {}", expression.place, expression.text);
        for one in series {
            let mut values: Vec<f64> = Vec::new();
            for sample in one["values"].as_array().into_iter().flatten() {
                values.extend(sample[1].as_str().and_then(|value| value.parse::<f64>().ok()));
            }
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let _ = writeln!(
                text,
                "        {} = {} (at most {most}, {} samples)",
                one["metric"],
                last(one).unwrap_or(f64::NAN),
                values.len(),
            );
        }
    }
    text
}
