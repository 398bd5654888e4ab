// SPDX-License-Identifier: Apache-2.0
//! `kubectl cinder-csi diagnose`: findings of the operator and events of a claim.

use anyhow::{Context as _, Result};
use harness::wait_for;
use serde_json::{Value, json};
use suites::cluster::{Plugin, claim_of_class, storage_class};
use suites::expect::{expect_equal, expect_field, expect_parts};

use crate::world::{PATIENCE, USERS, World};

/// Returns the text report of a claim in the users' namespace.
async fn text(world: &World, plugin: &Plugin, claim: &str) -> Result<String> {
    plugin.command(world, &["diagnose", claim, "-n", USERS])?.output().await
}

/// Returns the JSON report of a claim.
async fn report(world: &World, plugin: &Plugin, claim: &str) -> Result<Value> {
    let words = ["diagnose", claim, "-n", USERS, "-o", "json"];
    let output = plugin.command(world, &words)?.output().await?;
    serde_json::from_str(&output).with_context(|| format!("is no JSON: {output}"))
}

/// Waits until the report of a claim has this cause, and prints the text report.
pub(crate) async fn cause(world: &World, plugin: &Plugin, claim: &str, reason: &str) -> Result<Value> {
    let report = wait_for(&format!("{reason} of claim {claim}"), PATIENCE, async || {
        let report = report(world, plugin, claim).await?;
        expect_field(&report, "/stuck/0/reason", reason)?;
        Ok(report)
    })
    .await?;
    println!("{}", text(world, plugin, claim).await?);
    Ok(report)
}

pub(crate) async fn diagnose_prints_events_and_overdue_operations(world: &World) -> Result<()> {
    world.healthy().await?;
    let plugin = Plugin::install(world)?;

    world.run_pod("well", None).await?;
    let output = text(world, &plugin, "well").await?;
    println!("{output}");
    expect_parts(&output, &["Claim users/well: Bound", "no overdue operation"])?;
    let output = report(world, &plugin, "well").await?;
    expect_field(&output, "/volumes/0/phase", "Bound")?;
    expect_field(&output, "/stuck", json!([]))?;

    let pod = text(world, &plugin, "pod/well").await?;
    let parts = ["Pod users/well", "  Claim users/well: Bound", "Operator: running"];
    expect_parts(&pod, &parts)?;

    // The driver refuses the parameters of the class.
    let class = storage_class("odd", &json!({"type": "no-such-type"}));
    world.apply(&class).await?;
    world.apply(&claim_of_class("refused", "odd")).await?;
    wait_for("the event of the refusal", PATIENCE, async || {
        let event = "Warning ProvisioningFailed, PersistentVolumeClaim refused";
        expect_parts(&text(world, &plugin, "refused").await?, &[event, "no-such-type"])
    })
    .await?;

    let missing = plugin.command(world, &["diagnose", "missing", "-n", USERS])?;
    let missing = missing.answer().await?;
    println!("{}", missing.stderr);
    expect_equal("exit status", &missing.status.code(), &Some(1))?;
    let cause = "there is no PersistentVolumeClaim users/missing";
    expect_parts(&missing.stderr, &[cause])?;

    world.delete_all().await?;
    world.remove(&["storageclass", "odd"]).await
}
