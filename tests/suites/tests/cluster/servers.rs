// SPDX-License-Identifier: Apache-2.0
//! A node whose server is deleted in Nova.

use anyhow::{Context as _, Result, bail, ensure};
use harness::{Node, wait_for};
use reqwest::Method;
use serde_json::json;

use crate::world::{PATIENCE, World};

pub(crate) async fn volumes_detach_from_deleted_server(world: &World) -> Result<()> {
    let [first, second] = world.cluster.nodes() else {
        bail!("this scenario needs two nodes");
    };
    world.healthy().await?;
    world
        .patch_spec(&json!({"health": {"stuck": {"attach": "5s"}}}))
        .await?;
    world.start_pod("stranded", Some(second.name())).await?;
    world.ready("stranded").await?;
    world
        .sh("stranded", "echo 'made on the second node' > /data/witness && sync")
        .await?;

    let simulator = world.cluster.simulator()?;
    let state = simulator.state().await?;
    let mut servers = state["servers"].as_array().into_iter().flatten();
    let server = servers.find(|server| server["id"] == second.server_id());
    let server = server.context("the cloud has no server of the second node")?.clone();
    // Nova deletes the server and its records; Cinder's attachments remain, and only the driver can delete them.
    let path = format!("servers/{}", second.server_id());
    let by_force = format!("{path}?leave_attachments=true");
    simulator.admin(Method::DELETE, &by_force, None).await?;
    let outcome = without_server(world, first, second).await;
    // Also after a failure, because the other scenarios need the node.
    simulator.admin(Method::PUT, &path, Some(server)).await?;
    outcome?;

    move_to(world, "stranded", second).await?;
    for pod in ["stranded", "newcomer"] {
        world.delete_pod(pod).await?;
        world.delete_claim(pod).await?;
    }
    world.nothing_left().await?;
    world.patch_spec(&json!({"health": null})).await?;
    world.healthy().await
}

/// Checks the node without a server, and that the other node can use its volumes.
async fn without_server(world: &World, first: &Node, second: &Node) -> Result<()> {
    let (node, server) = (second.name(), second.server_id());
    world.start_pod("newcomer", Some(node)).await?;
    wait_for("the cause in the status", PATIENCE, async || {
        let stuck = world.driver().await?["status"]["volumes"]["stuck"].clone();
        ensure!(stuck.to_string().contains("ErrorReported"), "{stuck}");
        Ok(())
    })
    .await?;
    let stuck = world.driver().await?["status"]["volumes"]["stuck"][0].clone();
    ensure!(
        stuck["reason"] == "ErrorReported" && stuck["operation"] == "Attach" && stuck["node"] == node,
        "{stuck}"
    );
    ensure!(
        stuck["hint"].as_str().is_some_and(|hint| hint.contains(server)),
        "{stuck}"
    );
    world
        .event(
            "VolumeStuck",
            "PersistentVolumeClaim/newcomer",
            &["ErrorReported", server],
        )
        .await?;
    world.event("FailedAttachVolume", "Pod/newcomer", &[server]).await?;

    for pod in ["stranded", "newcomer"] {
        move_to(world, pod, first).await?;
    }
    let witness = world.sh("stranded", "cat /data/witness").await?;
    ensure!(
        witness.trim() == "made on the second node",
        "the file holds {witness:?}"
    );
    wait_for("the end of what Cinder had at the server", PATIENCE, async || {
        let state = world.cluster.simulator()?.state().await?;
        for what in ["attachments", "mappings"] {
            let all = state[what].as_array().context("a state without attachments")?;
            let here = all.iter().filter(|one| one["server_id"] == first.server_id());
            ensure!(
                all.len() == 2 && here.count() == 2,
                "the cloud has {what}: {}",
                state[what]
            );
        }
        Ok(())
    })
    .await?;
    wait_for("the end of stuck operations", PATIENCE, async || {
        let volumes = world.driver().await?["status"]["volumes"].clone();
        ensure!(volumes.is_null(), "{volumes}");
        Ok(())
    })
    .await
}

/// Restarts a pod on a node, with its volume.
async fn move_to(world: &World, pod: &str, node: &Node) -> Result<()> {
    world.delete_pod(pod).await?;
    world.start_pod(pod, Some(node.name())).await?;
    world.ready(pod).await
}
