// SPDX-License-Identifier: Apache-2.0
//! `kubectl cinder-csi diagnose`: findings of the operator and events of a claim.

use anyhow::{Context as _, Result, ensure};
use harness::wait_for;
use serde_json::{Value, json};

use crate::plugin::Plugin;
use crate::world::{DRIVER, PATIENCE, USERS, World, claim};

/// Returns the text report of a claim in the users' namespace.
async fn text(world: &World, plugin: &Plugin, claim: &str) -> Result<String> {
    plugin.kubectl(world, &["diagnose", claim, "-n", USERS])?.output().await
}

/// Returns the JSON report of a claim.
pub(crate) async fn report(world: &World, plugin: &Plugin, claim: &str) -> Result<Value> {
    let words = ["diagnose", claim, "-n", USERS, "-o", "json"];
    let output = plugin.kubectl(world, &words)?.output().await?;
    serde_json::from_str(&output).with_context(|| format!("is no JSON: {output}"))
}

/// Waits until the report of a claim has this cause, and prints the text report.
pub(crate) async fn cause(world: &World, plugin: &Plugin, claim: &str, reason: &str) -> Result<Value> {
    let report = wait_for(&format!("{reason} of claim {claim}"), PATIENCE, async || {
        let report = report(world, plugin, claim).await?;
        ensure!(report["stuck"][0]["reason"] == reason, "{report}");
        Ok(report)
    })
    .await?;
    println!("{}", text(world, plugin, claim).await?);
    Ok(report)
}

async fn start_claim(world: &World, name: &str, class: &str) -> Result<()> {
    let mut claim = claim(name, "Filesystem");
    claim["spec"]["storageClassName"] = json!(class);
    world.cluster.apply(&claim.to_string()).await.map(drop)
}

pub(crate) async fn diagnose_prints_events_and_overdue_operations(world: &World) -> Result<()> {
    world.healthy().await?;
    let plugin = Plugin::install(world)?;

    world.start_pod("well", None).await?;
    world.ready("well").await?;
    let output = text(world, &plugin, "well").await?;
    println!("{output}");
    for part in ["Claim users/well: Bound", "no overdue operation"] {
        ensure!(output.contains(part), "no {part} in\n{output}");
    }
    let output = report(world, &plugin, "well").await?;
    ensure!(
        output["volumes"][0]["phase"] == "Bound" && output["stuck"] == json!([]),
        "{output}"
    );

    let pod = text(world, &plugin, "pod/well").await?;
    for part in ["Pod users/well", "  Claim users/well: Bound", "Operator: running"] {
        ensure!(pod.contains(part), "no {part} in\n{pod}");
    }

    // The driver refuses the parameters of the class.
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "odd"},
        "provisioner": DRIVER, "parameters": {"type": "no-such-type"},
    });
    world.cluster.apply(&class.to_string()).await?;
    start_claim(world, "refused", "odd").await?;
    wait_for("the event of the refusal", PATIENCE, async || {
        let output = text(world, &plugin, "refused").await?;
        ensure!(
            output.contains("Warning ProvisioningFailed, PersistentVolumeClaim refused")
                && output.contains("no-such-type"),
            "{output}"
        );
        Ok(())
    })
    .await?;

    let missing = plugin
        .kubectl(world, &["diagnose", "missing", "-n", USERS])?
        .answer()
        .await?;
    println!("{}", missing.stderr);
    ensure!(
        missing.status.code() == Some(1)
            && missing
                .stderr
                .contains("there is no PersistentVolumeClaim users/missing"),
        "{missing:?}"
    );

    world.delete_pod("well").await?;
    world.cluster.kubectl(&["delete", "pvc", "--all", "-n", USERS]).await?;
    world.cluster.kubectl(&["delete", "storageclass", "odd"]).await?;
    world.nothing_left().await
}
