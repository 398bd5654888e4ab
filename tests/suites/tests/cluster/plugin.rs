// SPDX-License-Identifier: Apache-2.0
//! `kubectl cinder-csi`: the operator's program as a kubectl plugin.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use harness::{Command, wait_for};
use serde_json::Value;
use suites::chart;

use crate::world::{DRIVER, NAMESPACE, PATIENCE, World};

/// kubectl with the plugin in its `PATH`.
pub(crate) struct Plugin {
    directory: tempfile::TempDir,
    path: String,
}

impl Plugin {
    pub(crate) fn install(world: &World) -> Result<Self> {
        let directory = tempfile::tempdir().context("cannot make a directory")?;
        for name in ["kubectl-cinder_csi", "kubectl_complete-cinder_csi"] {
            std::os::unix::fs::symlink(&world.product()?.operator, directory.path().join(name))
                .context("cannot link the plugin")?;
        }
        let path = format!(
            "{}:{}",
            directory.path().display(),
            std::env::var("PATH").unwrap_or_default()
        );
        Ok(Self { directory, path })
    }

    /// Returns a command of the plugin.
    pub(crate) fn kubectl(&self, world: &World, words: &[&str]) -> Result<Command> {
        Ok(self.bare_kubectl(world)?.arg("cinder-csi").args(words))
    }

    /// Returns the shell completions of the plugin's last argument.
    async fn completed(&self, world: &World, words: &[&str]) -> Result<String> {
        let command = self.bare_kubectl(world)?.args(["__complete", "cinder-csi"]);
        command.args(words).output().await
    }

    fn bare_kubectl(&self, world: &World) -> Result<Command> {
        let kubectl = world.cluster.tools().path("kubectl")?.display().to_string();
        Ok(world.cluster.command_in_network(&kubectl)?.env("PATH", &self.path))
    }
}

pub(crate) async fn kubectl_reports_driver_as_text_and_json(world: &World) -> Result<()> {
    world.healthy().await?;
    let plugin = Plugin::install(world)?;

    let screen = plugin.kubectl(world, &["status"])?.output().await?;
    let objects = plugin
        .kubectl(world, &["status", DRIVER, "-o", "json"])?
        .output()
        .await?;

    for part in [
        DRIVER,
        "Operator: running",
        "Available=True (AsExpected)",
        "LOGIN OK",
        "default",
    ] {
        ensure!(screen.contains(part), "no {part} in\n{screen}");
    }
    let objects: Value = serde_json::from_str(&objects).context("is no JSON")?;
    ensure!(objects["drivers"][0]["metadata"]["name"] == DRIVER, "{objects}");
    ensure!(objects["operator"]["state"] == "Running", "{objects}");
    let offered = plugin.completed(world, &["sta"]).await?;
    ensure!(offered.starts_with("status\t"), "{offered}");
    let offered = plugin.completed(world, &["diagnose", "--na"]).await?;
    ensure!(offered.starts_with("--namespace\t"), "{offered}");
    let refused = plugin.kubectl(world, &["status", "other.example.org"])?.output().await;
    let error = format!("{:#}", refused.err().context("a driver that does not exist was shown")?);
    ensure!(error.contains("other.example.org"), "{error}");
    Ok(())
}

/// Runs in the operator's image with its service account, like `helm test`.
pub(crate) async fn helm_test_pod_reports_driver(world: &World) -> Result<()> {
    let mut pods = chart::template(NAMESPACE, &["--show-only=templates/tests/status.yaml"])?;
    let pod = pods.pop().context("the chart has no test")?;
    ensure!(pods.is_empty() && pod["metadata"]["namespace"] == NAMESPACE, "{pod}");
    let name = pod["metadata"]["name"].as_str().context("the pod has no name")?;
    world.cluster.apply(&pod.to_string()).await?;
    wait_for("the end of the test", PATIENCE, async || {
        let status = world.cluster.get(&["pod", name, "-n", NAMESPACE]).await?["status"].take();
        let ended = status["phase"].as_str().unwrap_or_default();
        ensure!(["Succeeded", "Failed"].contains(&ended), "{status}");
        Ok(())
    })
    .await?;
    let screen = world.cluster.kubectl(&["logs", name, "-n", NAMESPACE]).await?;
    let pod = world.cluster.get(&["pod", name, "-n", NAMESPACE]).await?;
    ensure!(pod["status"]["phase"] == "Succeeded", "{screen}\n{}", pod["status"]);
    ensure!(screen.contains(DRIVER) && screen.contains("Available=True"), "{screen}");
    world
        .cluster
        .kubectl(&["delete", "pod", name, "-n", NAMESPACE])
        .await
        .map(drop)
}

pub(crate) async fn support_bundle_contains_no_secret(world: &World) -> Result<()> {
    let plugin = Plugin::install(world)?;
    let place = plugin.directory.path().join("bundle");
    let place_text = place.display().to_string();

    let output = plugin
        .kubectl(world, &["support-bundle", "--directory", &place_text])?
        .output()
        .await?;

    ensure!(output.contains(&place_text), "{output}");
    let mut files = Vec::new();
    collect(&place, &mut files)?;
    let contains = |part: &str| files.iter().any(|(name, _)| name.contains(part));
    for part in [
        "cindercsidrivers.json",
        "operands-secrets.json",
        "operands-daemonsets.json",
        "cinder-csi-driver.current.log",
    ] {
        ensure!(
            contains(part),
            "no {part} among {:?}",
            files.iter().map(|(name, _)| name).collect::<Vec<_>>()
        );
    }
    let logs = files.iter().filter(|(name, _)| name.ends_with("operator.current.log"));
    ensure!(logs.count() == 2, "not the logs of both replicas of the operator");
    let access = world.cluster.simulator()?.access();
    for (name, content) in &files {
        ensure!(
            !content.contains(access.application_credential_secret.as_str()),
            "{name} holds the secret of the application credential"
        );
    }
    // A second bundle does not overwrite the first one.
    let again = plugin
        .kubectl(world, &["support-bundle", "--directory", &place_text])?
        .output()
        .await;
    ensure!(again.is_err(), "a bundle was written into another one");
    Ok(())
}

fn collect(directory: &Path, files: &mut Vec<(String, String)>) -> Result<()> {
    for entry in std::fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            let content = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            files.push((
                path.display().to_string(),
                String::from_utf8_lossy(&content).into_owned(),
            ));
        }
    }
    Ok(())
}
