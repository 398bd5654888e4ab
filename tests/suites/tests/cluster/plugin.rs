// SPDX-License-Identifier: Apache-2.0
//! `kubectl cinder-csi`: the kubectl plugin.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use harness::wait_for;
use serde_json::Value;
use suites::chart;
use suites::cluster::Plugin;
use suites::expect::{expect_field, expect_parts};

use crate::world::{DRIVER, NAMESPACE, PATIENCE, World};

/// Returns the shell completions of the plugin's last argument.
async fn complete(world: &World, plugin: &Plugin, words: &[&str]) -> Result<String> {
    let command = plugin.kubectl(world)?.args(["__complete", "cinder-csi"]);
    command.args(words).output().await
}

pub(crate) async fn kubectl_reports_driver_as_text_and_json(world: &World) -> Result<()> {
    world.healthy().await?;
    let plugin = Plugin::install(world)?;

    let screen = plugin.command(world, &["status"])?.output().await?;
    let objects = plugin.command(world, &["status", DRIVER, "-o", "json"])?;
    let objects = objects.output().await?;

    let condition = "Available=True (AsExpected)";
    let parts = [DRIVER, "Operator: running", condition, "LOGIN OK", "default"];
    expect_parts(&screen, &parts)?;
    let objects: Value = serde_json::from_str(&objects).context("is no JSON")?;
    expect_field(&objects, "/drivers/0/metadata/name", DRIVER)?;
    expect_field(&objects, "/operator/state", "Running")?;
    let offered = complete(world, &plugin, &["sta"]).await?;
    ensure!(offered.starts_with("status\t"), "{offered}");
    let offered = complete(world, &plugin, &["diagnose", "--na"]).await?;
    ensure!(offered.starts_with("--namespace\t"), "{offered}");
    let refused = plugin.command(world, &["status", "other.example.org"])?.output().await;
    let error = format!("{:#}", refused.err().context("a driver that does not exist was shown")?);
    expect_parts(&error, &["other.example.org"])
}

/// Runs in the operator's image with its service account, like `helm test`.
pub(crate) async fn helm_test_pod_reports_driver(world: &World) -> Result<()> {
    let mut pods = chart::template(NAMESPACE, &["--show-only=templates/tests/status.yaml"])?;
    let pod = pods.pop().context("the chart has no test")?;
    ensure!(pods.is_empty() && pod["metadata"]["namespace"] == NAMESPACE, "{pod}");
    let name = pod["metadata"]["name"].as_str().context("the pod has no name")?;
    world.apply(&pod).await?;
    let ended = wait_for("the end of the test", PATIENCE, async || {
        let pod = world.get(&["pod", name, "-n", NAMESPACE]).await?;
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        ensure!(["Succeeded", "Failed"].contains(&phase), "{}", pod["status"]);
        Ok(pod)
    })
    .await?;
    let screen = world.kubectl(&["logs", name, "-n", NAMESPACE]).await?;
    expect_field(&ended, "/status/phase", "Succeeded").with_context(|| screen.clone())?;
    expect_parts(&screen, &[DRIVER, "Available=True"])?;
    world.remove(&["pod", name, "-n", NAMESPACE]).await
}

pub(crate) async fn support_bundle_contains_no_secret(world: &World) -> Result<()> {
    let plugin = Plugin::install(world)?;
    let place = plugin.directory().join("bundle");
    let place_text = place.display().to_string();
    let bundle = plugin.command(world, &["support-bundle", "--directory", &place_text])?;

    let output = bundle.output().await?;

    expect_parts(&output, &[&place_text])?;
    let mut files = Vec::new();
    collect(&place, &mut files)?;
    let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "cindercsidrivers.json",
        "operands-secrets.json",
        "operands-daemonsets.json",
        "cinder-csi-driver.current.log",
    ];
    expect_parts(&names.join("\n"), &expected)?;
    let logs = names.iter().filter(|name| name.ends_with("operator.current.log"));
    ensure!(logs.count() == 2, "not the logs of both replicas of the operator");
    let secret = world.login()?.secret;
    for (name, content) in &files {
        ensure!(
            !content.contains(&secret),
            "{name} contains the secret of the application credential"
        );
    }
    // A second bundle does not overwrite the first one.
    ensure!(bundle.output().await.is_err(), "a bundle was written into another one");
    Ok(())
}

fn collect(directory: &Path, files: &mut Vec<(String, String)>) -> Result<()> {
    for entry in std::fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            let content = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let content = String::from_utf8_lossy(&content).into_owned();
            files.push((path.display().to_string(), content));
        }
    }
    Ok(())
}
