// SPDX-License-Identifier: Apache-2.0
//! Scenarios of volume expansion.

use anyhow::{Result, ensure};
use harness::wait_for;
use serde_json::json;

use super::{PATIENCE, World, storage_class};
use crate::expect::expect_field;

/// A separate StorageClass, so that the operator's classes do not matter.
const CLASS: &str = "growing-xfs";

pub async fn claim_expands_while_pod_runs(world: &World) -> Result<()> {
    let mut class = storage_class(CLASS, &json!({"csi.storage.k8s.io/fstype": "xfs"}));
    class["allowVolumeExpansion"] = json!(true);
    class["volumeBindingMode"] = json!("WaitForFirstConsumer");
    world.apply(&class).await?;
    world.run_pod_of_class("grows", CLASS).await?;
    let before = world.file_system_size("grows").await?;
    ensure!(before < 1 << 20, "the file system of 1 GiB has {before} KiB");
    world.write_witness("grows", "before").await?;

    world.expand_claim("grows", 2).await?;

    wait_for("the growth of the file system", PATIENCE, async || {
        let claim = world.get_of_users("pvc", "grows").await?;
        expect_field(&claim, "/status/capacity/storage", "2Gi")?;
        let size = world.file_system_size("grows").await?;
        ensure!(size > 19 << 16, "the file system has {size} KiB");
        Ok(())
    })
    .await?;
    world.expect_no_restart("grows").await?;
    world.expect_witness("grows", "before").await?;
    world.write_witness("grows", "after").await?;

    world.delete_pod_and_volume("grows").await?;
    world.remove(&["storageclass", CLASS]).await
}
