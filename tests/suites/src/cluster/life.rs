// SPDX-License-Identifier: Apache-2.0
//! Scenarios of pods with volumes.

use anyhow::{Context as _, Result, ensure};

use super::World;
use crate::expect::expect_equal;

pub async fn pod_gets_volume_and_cleans_up(world: &World) -> Result<()> {
    world.run_pod("plain", None).await?;
    let mounts = world.sh("plain", "grep ' /data ' /proc/mounts").await?;
    let is_mounted = mounts.contains(" ext4 ") && mounts.starts_with("/dev/loop");
    ensure!(is_mounted, "/data is {mounts}");
    world.sh("plain", "test -s /data/log").await?;
    world.expect_cloud_volumes(1).await?;
    world.delete_pod_and_volume("plain").await
}

pub async fn pod_moves_to_other_node_with_data(world: &World) -> Result<()> {
    let [first, second] = world.cluster.nodes() else {
        anyhow::bail!("this scenario needs two nodes");
    };
    world.run_pod("moves", Some(first.name())).await?;
    world.write_witness("moves", "made on the first node").await?;
    world.delete_pod("moves").await?;

    world.run_pod("moves", Some(second.name())).await?;
    world.expect_witness("moves", "made on the first node").await?;
    expect_equal("node of the pod", world.node_of("moves").await?.name(), second.name())?;
    world.expect_cloud_volumes(1).await?;
    world.delete_pod_and_volume("moves").await
}

pub async fn pod_gets_raw_block_volume(world: &World) -> Result<()> {
    world.run_block_pod("block").await?;
    let size = world.sh("block", "blockdev --getsize64 /dev/volume").await?;
    let size: u64 = size.trim().parse().context("blockdev printed no number")?;
    expect_equal("size of the device", &size, &(1 << 30))?;
    let write = "echo raw | dd of=/dev/volume conv=fsync 2>/dev/null";
    world.sh("block", write).await?;
    let read = world.sh("block", "dd if=/dev/volume bs=3 count=1 2>/dev/null").await?;
    expect_equal("start of the device", read.as_str(), "raw")?;
    world.delete_pod_and_volume("block").await
}
