// SPDX-License-Identifier: Apache-2.0
//! Scenarios of pods with volumes.

use anyhow::{Context as _, Result, ensure};

use super::World;

pub async fn pod_gets_volume_and_cleans_up(world: &World) -> Result<()> {
    world.start_pod("plain", None).await?;
    world.ready("plain").await?;
    let mounts = world.sh("plain", "grep ' /data ' /proc/mounts").await?;
    ensure!(
        mounts.contains(" ext4 ") && mounts.starts_with("/dev/loop"),
        "/data is {mounts}"
    );
    world.sh("plain", "test -s /data/log").await?;
    ensure!(
        world.cloud_volumes().await?.len() == 1,
        "the cloud has {:?}",
        world.cloud_volumes().await?
    );
    world.delete_pod_and_volume("plain").await
}

pub async fn pod_moves_to_other_node_with_data(world: &World) -> Result<()> {
    let [first, second] = world.cluster.nodes() else {
        anyhow::bail!("this scenario needs two nodes");
    };
    let (first, second) = (first.name(), second.name());
    world.start_pod("moves", Some(first)).await?;
    world.ready("moves").await?;
    world
        .sh("moves", "echo 'made on the first node' > /data/witness && sync")
        .await?;
    world.delete_pod("moves").await?;

    world.start_pod("moves", Some(second)).await?;
    world.ready("moves").await?;
    let witness = world.sh("moves", "cat /data/witness").await?;
    ensure!(witness.trim() == "made on the first node", "the file holds {witness:?}");
    let pod = world.cluster.get(&["pod", "moves", "-n", super::USERS]).await?;
    ensure!(
        pod["spec"]["nodeName"] == second,
        "the pod runs on {}",
        pod["spec"]["nodeName"]
    );
    ensure!(
        world.cloud_volumes().await?.len() == 1,
        "the cloud has {:?}",
        world.cloud_volumes().await?
    );
    world.delete_pod_and_volume("moves").await
}

pub async fn pod_gets_raw_block_volume(world: &World) -> Result<()> {
    world.start_block_pod("block").await?;
    world.ready("block").await?;
    let size = world.sh("block", "blockdev --getsize64 /dev/volume").await?;
    let size: u64 = size.trim().parse().context("blockdev printed no number")?;
    ensure!(size == 1 << 30, "the device has {size} bytes");
    world
        .sh("block", "echo raw | dd of=/dev/volume conv=fsync 2>/dev/null")
        .await?;
    let read = world.sh("block", "dd if=/dev/volume bs=3 count=1 2>/dev/null").await?;
    ensure!(read == "raw", "the device gives {read:?} back");
    world.delete_pod_and_volume("block").await
}
