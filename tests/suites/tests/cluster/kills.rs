// SPDX-License-Identifier: Apache-2.0
//! Kills processes at points that latencies of the cloud make deterministic.

use anyhow::{Result, ensure};
use serde_json::json;
use suites::expect::expect_equal;

use crate::world::World;

/// Longer than the time to detect a request and kill its sender.
const SLOW: &str = "6s";

pub(crate) async fn controller_killed_during_create_leaks_no_volume(world: &World) -> Result<()> {
    killed_during(world, "create-killed", "create", "create_volume").await
}

pub(crate) async fn controller_killed_during_attach_finishes_it(world: &World) -> Result<()> {
    killed_during(world, "attach-killed", "attach", "attach_volume").await
}

async fn killed_during(world: &World, pod: &str, latency: &str, operation: &str) -> Result<()> {
    let simulator = world.cluster.simulator()?;
    simulator.clear_log().await?;
    world.latencies(json!({latency: SLOW})).await?;
    world.start_pod(pod, None).await?;
    world.asked_for(operation).await?;
    world.kill_controllers().await?;
    world.latencies(json!({latency: "0s"})).await?;
    world.ready(pod).await?;
    let mut requests = simulator.log().await?;
    requests.retain(|entry| entry["operation"] == operation);
    let statuses = requests.iter().filter_map(|entry| entry["status"].as_u64());
    let accepted = statuses.filter(|status| (200..300).contains(status)).count();
    expect_equal(&format!("accepted requests {operation}"), &accepted, &1)?;
    for kind in ["volumes", "attachments", "mappings", "loop_devices"] {
        let things = world.cloud_things(kind).await?;
        ensure!(things.len() == 1, "the cloud has {kind}: {things:?}");
    }
    world.delete_pod_and_volume(pod).await
}

pub(crate) async fn killed_node_plugin_stays_registered(world: &World) -> Result<()> {
    world.run_pod("survives", None).await?;
    let node = world.node_of("survives").await?;
    // Every change of the entry updates the object, so an equal version means that the entry was present all the time.
    let before = world.versions(&["csinodes"]).await?;
    ensure!(world.is_registered(node).await?, "the driver is not registered");
    world.kill_plugin(node).await?;
    world.write_witness("survives", "alive").await?;
    // The new process serves mounts of the old one.
    world.delete_pod("survives").await?;
    world.run_pod("survives", Some(node.name())).await?;
    world.expect_witness("survives", "alive").await?;
    expect_equal("CSINodes", &world.versions(&["csinodes"]).await?, &before)?;
    world.delete_pod_and_volume("survives").await
}
