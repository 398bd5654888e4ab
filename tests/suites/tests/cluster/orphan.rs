// SPDX-License-Identifier: Apache-2.0
//! A driver that continues without its object.

use anyhow::{Context as _, Result};
use harness::wait_for;
use serde_json::json;
use suites::expect::{expect_equal, expect_none};

use crate::world::{NAMESPACE, PATIENCE, World};

pub(crate) async fn orphan_runs_until_adoption(world: &World) -> Result<()> {
    world.healthy().await?;
    world.run_pod("keeps", None).await?;
    let before = world.operand_pods("").await?;
    let parts = world.operands().await?;
    world.patch_spec(&json!({"deletion": {"policy": "Orphan"}})).await?;
    world.delete_driver().await?;
    expect_none("labelled objects", &world.operands().await?)?;
    let mut words = vec!["-n", NAMESPACE];
    words.extend(parts.iter().map(String::as_str));
    world.names(&words).await.context("something went")?;

    // The driver works without a CinderCSIDriver object.
    world.run_pod("alone", None).await?;
    world.delete_pod_and_claim("alone").await?;
    wait_for("the end of the volume", PATIENCE, async || {
        world.expect_cloud_volumes(1).await
    })
    .await?;

    // Another object does not adopt foreign operands without permission.
    world.apply_driver().await?;
    let label = ["csi.openstack.org/instance"];
    world.reason("Degraded", "True", "OwnershipConflict", &label).await?;
    expect_equal("pods", &world.operand_pods("").await?, &before)?;
    // As documented in docs/updates.md.
    world.change_spec(&json!({"adoption": {"mode": "Adopt"}})).await?;
    expect_equal("operands", &world.operands().await?, &parts)?;
    expect_equal("pods", &world.operand_pods("").await?, &before)?;
    world.change_spec(&json!({"adoption": null})).await?;
    world.write_witness("keeps", "still").await?;
    world.delete_pod_and_volume("keeps").await
}
