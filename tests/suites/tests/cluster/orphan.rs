// SPDX-License-Identifier: Apache-2.0
//! A driver that continues without its object.

use anyhow::{Context as _, Result, ensure};
use harness::wait_for;
use serde_json::{Value, json};

use crate::world::{DRIVER, NAMESPACE, PATIENCE, WITHIN, World};

/// Kinds of the operands of a driver with a minimal spec.
const PARTS: &str = "csidrivers,storageclasses,clusterroles,clusterrolebindings,deployments,daemonsets,serviceaccounts,secrets,\
                     roles,rolebindings,services,configmaps,poddisruptionbudgets,networkpolicies";
/// Label of a driver's operands.
const MARK: &str = "csi.openstack.org/instance";

pub(crate) async fn orphan_runs_until_adoption(world: &World) -> Result<()> {
    world.healthy().await?;
    world.start_pod("keeps", None).await?;
    world.ready("keeps").await?;
    let before = pods(world).await?;
    let parts = list_labelled(world).await?;
    world.patch_spec(&json!({"deletion": {"policy": "Orphan"}})).await?;
    let words = ["delete", "cindercsidriver", DRIVER, WITHIN];
    world.cluster.kubectl_within(PATIENCE, &words).await?;
    let still_marked = list_labelled(world).await?;
    ensure!(
        still_marked.is_empty(),
        "still the operator's: {}",
        still_marked.join(", ")
    );
    let mut words = vec!["get", "-n", NAMESPACE, "-o", "name"];
    words.extend(parts.iter().map(String::as_str));
    world.cluster.kubectl(&words).await.context("something went")?;

    // The driver works without a CinderCSIDriver object.
    world.start_pod("alone", None).await?;
    world.ready("alone").await?;
    world.delete_pod("alone").await?;
    world.delete_claim("alone").await?;
    wait_for("the end of the volume", PATIENCE, async || {
        let remaining = world.cloud_volumes().await?;
        ensure!(remaining.len() == 1, "the cloud has {remaining:?}");
        Ok(())
    })
    .await?;

    // Another object does not adopt foreign operands without permission.
    world.apply_driver().await?;
    let foreign = world
        .condition("Degraded", "True", |found| found["reason"] == "OwnershipConflict")
        .await?;
    ensure!(
        foreign["message"].as_str().is_some_and(|text| text.contains(MARK)),
        "the mark is not named: {foreign}"
    );
    let now = pods(world).await?;
    ensure!(now == before, "there were {before:?}, there are {now:?}");
    // As documented in docs/updates.md.
    world.patch_spec(&json!({"adoption": {"mode": "Adopt"}})).await?;
    world.healthy().await?;
    let again = list_labelled(world).await?;
    ensure!(again == parts, "it had {parts:?}, it has {again:?}");
    let now = pods(world).await?;
    ensure!(now == before, "there were {before:?}, there are {now:?}");
    world.patch_spec(&json!({"adoption": null})).await?;
    world.healthy().await?;
    world.sh("keeps", "echo still > /data/still && sync").await?;
    world.delete_pod_and_volume("keeps").await
}

/// Returns the objects with the operator's label, as `kind/name`.
async fn list_labelled(world: &World) -> Result<Vec<String>> {
    let mark = format!("{MARK}={DRIVER}");
    let words = ["get", PARTS, "-n", NAMESPACE, "-l", &mark, "-o", "name"];
    let names = world.cluster.kubectl(&words).await?;
    Ok(names.split_whitespace().map(str::to_owned).collect())
}

/// Returns the driver's pods with the restarts of their containers.
async fn pods(world: &World) -> Result<Vec<(Value, Vec<Value>)>> {
    let mark = format!("{MARK}={DRIVER}");
    let list = world.cluster.get(&["pods", "-n", NAMESPACE, "-l", &mark]).await?;
    let pods = list["items"].as_array().context("a list without items")?;
    Ok(pods
        .iter()
        .map(|pod| {
            let containers = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
            let restarts = containers.map(|one| one["restartCount"].clone()).collect();
            (pod["metadata"]["uid"].clone(), restarts)
        })
        .collect())
}
