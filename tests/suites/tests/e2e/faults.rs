// SPDX-License-Identifier: Apache-2.0
//! Scenarios that kill the driver's processes in the middle of an operation.

use anyhow::{Result, ensure};
use harness::wait_for;
use suites::cluster::{CLASS, PATIENCE, World};

use crate::volumes::start_pods;

const MANY: usize = 5;

pub(crate) async fn killed_controller_creates_each_volume_once(world: &World) -> Result<()> {
    let names = start_pods(world, "many", MANY).await?;
    wait_for("the first volume in Cinder", PATIENCE, async || {
        ensure!(!world.cloud_volumes().await?.is_empty(), "there is none");
        Ok(())
    })
    .await?;
    world.kill_controllers().await?;
    for name in &names {
        world.ready(name).await?;
    }
    let all = world.cloud_volumes().await?;
    let mut volumes = all.clone();
    volumes.sort();
    volumes.dedup();
    ensure!(volumes.len() == MANY && all.len() == MANY, "the cloud has {all:?}");
    world.delete_all().await
}

pub(crate) async fn killed_node_plugin_finishes_pod_start(world: &World) -> Result<()> {
    let node = world.cluster.first_node()?;
    world.start_pod_on("survives", node.name(), CLASS).await?;
    wait_for("the attachment", PATIENCE, async || {
        let volumes = world.cloud_things("volumes").await?;
        let in_use = volumes.iter().any(|volume| volume["status"] == "in-use");
        ensure!(in_use, "no volume is in use: {volumes:?}");
        Ok(())
    })
    .await?;
    world.kill_plugin(node).await?;
    world.ready("survives").await?;
    world.kill_plugin(node).await?;
    world.write_witness("survives", "alive").await?;
    world.delete_pod("survives").await?;
    world.run_pod("survives", Some(node.name())).await?;
    world.expect_witness("survives", "alive").await?;
    world.delete_pod_and_volume("survives").await
}
