// SPDX-License-Identifier: Apache-2.0
//! Scenarios of volume expansion.

use anyhow::{Context as _, Result, ensure};
use harness::wait_for;
use serde_json::json;

use super::{DRIVER, PATIENCE, USERS, World};

/// A separate StorageClass, so that the operator's classes do not matter.
const CLASS: &str = "growing-xfs";

pub async fn claim_expands_while_pod_runs(world: &World) -> Result<()> {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
        "provisioner": DRIVER, "allowVolumeExpansion": true,
        "volumeBindingMode": "WaitForFirstConsumer", "parameters": {"csi.storage.k8s.io/fstype": "xfs"},
    });
    world.cluster.apply(&class.to_string()).await?;
    world.start_pod_of_class("grows", CLASS).await?;
    world.ready("grows").await?;
    let before = size_of(world).await?;
    ensure!(before < 1 << 20, "the file system of 1 GiB has {before} KiB");
    world.sh("grows", "echo before > /data/witness && sync").await?;

    let patch = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}).to_string();
    let words = ["patch", "pvc", "grows", "-n", USERS, "--type=merge", "-p", &patch];
    world.cluster.kubectl(&words).await?;

    wait_for("the growth of the file system", PATIENCE, async || {
        let claim = world.cluster.get(&["pvc", "grows", "-n", USERS]).await?;
        let capacity = claim["status"]["capacity"]["storage"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        ensure!(
            capacity == "2Gi",
            "the claim has {capacity}; {}",
            claim["status"]["conditions"]
        );
        let size = size_of(world).await?;
        ensure!(size > 19 << 16, "the file system has {size} KiB");
        Ok(())
    })
    .await?;
    let pod = world.cluster.get(&["pod", "grows", "-n", USERS]).await?;
    ensure!(
        pod["status"]["containerStatuses"][0]["restartCount"] == 0,
        "the pod was started again"
    );
    let witness = world
        .sh("grows", "cat /data/witness && echo after >> /data/witness")
        .await?;
    ensure!(witness.trim() == "before", "the file holds {witness:?}");

    world.delete_pod_and_volume("grows").await?;
    world
        .cluster
        .kubectl(&["delete", "storageclass", CLASS])
        .await
        .map(drop)
}

/// Returns the size of the file system in KiB in the pod.
async fn size_of(world: &World) -> Result<u64> {
    let size = world.sh("grows", "df -k /data | tail -n 1").await?;
    let size = size.split_whitespace().nth(1).context("df printed no size")?;
    size.parse().with_context(|| format!("df printed {size}"))
}
