// SPDX-License-Identifier: Apache-2.0
//! A node whose server is deleted in Nova, and the status of stuck operations.

use anyhow::{Context as _, Result, bail, ensure};
use harness::{Node, Simulator, wait_for};
use reqwest::Method;
use serde_json::{Value, json};
use suites::expect::{expect_field, expect_parts};

use crate::world::{DRIVER, PATIENCE, World};

pub(crate) async fn volumes_detach_from_deleted_server(world: &World) -> Result<()> {
    let [first, second] = world.cluster.nodes() else {
        bail!("this scenario needs two nodes");
    };
    world.healthy().await?;
    let health = json!({"health": {"stuck": {"attach": "5s"}}});
    world.patch_spec(&health).await?;
    world.run_pod("stranded", Some(second.name())).await?;
    world.write_witness("stranded", "made on the second node").await?;

    let simulator = world.cluster.simulator()?;
    let server = server_of(simulator, second).await?;
    // Nova deletes the server and its records; Cinder's attachments remain, and only the driver can delete them.
    let path = format!("servers/{}", second.server_id());
    let by_force = format!("{path}?leave_attachments=true");
    simulator.admin(Method::DELETE, &by_force, None).await?;
    let outcome = without_server(world, first, second).await;
    // Also after a failure, because the other scenarios need the node.
    simulator.admin(Method::PUT, &path, Some(server)).await?;
    outcome?;

    move_to(world, "stranded", second).await?;
    world.delete_all().await?;
    world.change_spec(&json!({"health": null})).await
}

/// Returns the server of a node as the simulator describes it.
pub(crate) async fn server_of(simulator: &Simulator, node: &Node) -> Result<Value> {
    let state = simulator.state().await?;
    let mut servers = state["servers"].as_array().into_iter().flatten();
    let server = servers.find(|server| server["id"] == node.server_id());
    server
        .cloned()
        .with_context(|| format!("the cloud has no server of {}", node.name()))
}

/// Waits until the status reports a stuck operation with this reason.
pub(crate) async fn wait_for_stuck(world: &World, reason: &str) -> Result<()> {
    wait_for("the cause in the status", PATIENCE, async || {
        let stuck = world.driver().await?["status"]["volumes"]["stuck"].take();
        expect_parts(&stuck.to_string(), &[reason])
    })
    .await
}

/// Checks the first stuck operation in the status.
pub(crate) async fn expect_stuck(world: &World, reason: &str, operation: &str, hint: &str) -> Result<()> {
    let stuck = world.driver().await?["status"]["volumes"]["stuck"][0].take();
    expect_field(&stuck, "/reason", reason)?;
    expect_field(&stuck, "/operation", operation)?;
    expect_parts(stuck["hint"].as_str().unwrap_or_default(), &[hint])
}

/// Waits until the status reports no stuck operation.
pub(crate) async fn nothing_stuck(world: &World) -> Result<()> {
    let driver = ["cindercsidriver", DRIVER];
    let stuck = "/status/volumes";
    world.wait_for_field(&driver, stuck, Value::Null).await.map(drop)
}

/// Checks the node without a server, and that the other node can use its volumes.
async fn without_server(world: &World, first: &Node, second: &Node) -> Result<()> {
    let (node, server) = (second.name(), second.server_id());
    world.start_pod("newcomer", Some(node)).await?;
    wait_for_stuck(world, "ErrorReported").await?;
    expect_stuck(world, "ErrorReported", "Attach", server).await?;
    expect_field(&world.driver().await?, "/status/volumes/stuck/0/node", node)?;
    let claim = "PersistentVolumeClaim/newcomer";
    let words = ["ErrorReported", server];
    world.event("VolumeStuck", claim, &words).await?;
    world.event("FailedAttachVolume", "Pod/newcomer", &[server]).await?;

    for pod in ["stranded", "newcomer"] {
        move_to(world, pod, first).await?;
    }
    world.expect_witness("stranded", "made on the second node").await?;
    wait_for("the end of what Cinder had at the server", PATIENCE, async || {
        for kind in ["attachments", "mappings"] {
            let all = world.cloud_things(kind).await?;
            let are_here = all.iter().all(|one| one["server_id"] == first.server_id());
            ensure!(all.len() == 2 && are_here, "the cloud has {kind}: {all:?}");
        }
        Ok(())
    })
    .await?;
    nothing_stuck(world).await
}

/// Restarts a pod on a node, with its volume.
async fn move_to(world: &World, pod: &str, node: &Node) -> Result<()> {
    world.delete_pod(pod).await?;
    world.run_pod(pod, Some(node.name())).await
}
