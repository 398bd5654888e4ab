// SPDX-License-Identifier: Apache-2.0
//! Kills processes at points that latencies of the cloud make deterministic.

use anyhow::{Result, ensure};
use harness::wait_for;
use serde_json::json;

use crate::world::{DRIVER, DRIVER_CONTAINER, NAMESPACE, PATIENCE, USERS, World};

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
    let requests = simulator.log().await?;
    let accepted = requests
        .iter()
        .filter(|entry| entry["operation"] == operation && (200..300).contains(&entry["status"].as_u64().unwrap_or(0)));
    ensure!(accepted.count() == 1, "{operation} was accepted more than once");
    let state = simulator.state().await?;
    for (what, count) in [("volumes", 1), ("attachments", 1), ("mappings", 1), ("loop_devices", 1)] {
        ensure!(
            state[what].as_array().map(Vec::len) == Some(count),
            "the cloud has {what}: {}",
            state[what]
        );
    }
    world.delete_pod_and_volume(pod).await
}

pub(crate) async fn killed_node_plugin_stays_registered(world: &World) -> Result<()> {
    world.start_pod("survives", None).await?;
    world.ready("survives").await?;
    let pod = world.cluster.get(&["pod", "survives", "-n", USERS]).await?;
    let node = world
        .cluster
        .node(pod["spec"]["nodeName"].as_str().unwrap_or_default())?;
    // Every change of the entry updates the object, so an equal version means that the entry was present all the time.
    let before = world.versions(&["csinodes"]).await?;
    ensure!(
        world
            .cluster
            .get(&["csinode", node.name()])
            .await?
            .to_string()
            .contains(DRIVER),
        "the driver is not registered"
    );
    let containers = node.containers(NAMESPACE, DRIVER_CONTAINER).await?;
    let plugin = containers.iter().find(|container| container.pod.contains("node"));
    let Some(plugin) = plugin else {
        anyhow::bail!("no node plugin runs on {}", node.name())
    };
    node.signal(plugin, "SIGKILL").await?;
    wait_for("the node plugin's new process", PATIENCE, async || {
        let containers = node.containers(NAMESPACE, DRIVER_CONTAINER).await?;
        ensure!(
            containers
                .iter()
                .any(|new| new.pod == plugin.pod && new.pid != plugin.pid),
            "it has not started again"
        );
        Ok(())
    })
    .await?;
    world
        .sh("survives", "echo alive > /data/alive && sync && cat /data/alive")
        .await?;
    // The new process serves mounts of the old one.
    world.delete_pod("survives").await?;
    world.start_pod("survives", Some(node.name())).await?;
    world.ready("survives").await?;
    let alive = world.sh("survives", "cat /data/alive").await?;
    ensure!(alive.trim() == "alive", "the file holds {alive:?}");
    let after = world.versions(&["csinodes"]).await?;
    ensure!(before == after, "the CSINode entry changed: {before:?}, then {after:?}");
    world.delete_pod_and_volume("survives").await
}
