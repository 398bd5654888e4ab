// SPDX-License-Identifier: Apache-2.0
//! Scenarios of many volumes, and of changes to volumes.

use anyhow::{Context as _, Result};
use serde_json::json;
use suites::cluster::World;
use suites::expect::expect_field;

const CROWD: usize = 10;

pub(crate) async fn ten_concurrent_claims_get_ten_volumes(world: &World) -> Result<()> {
    for name in start_pods(world, "crowd", CROWD).await? {
        world.ready(&name).await?;
    }
    world.expect_cloud_volumes(CROWD).await?;
    world.delete_all().await
}

/// Starts this number of pods with a volume each, and returns their names.
pub(crate) async fn start_pods(world: &World, prefix: &str, count: usize) -> Result<Vec<String>> {
    let names: Vec<_> = (0..count).map(|number| format!("{prefix}-{number}")).collect();
    for name in &names {
        world.start_pod(name, None).await?;
    }
    Ok(names)
}

pub(crate) async fn volume_gets_attributes_of_class(world: &World) -> Result<()> {
    // Cinder refuses a retype of a volume in use to a type with another front-end QoS.
    let kind = world.openstack()?.volume_type("archive");
    let kind = kind.context("the cloud names no type for an archive")?;
    let parameters = json!({"type": kind, "metadata.tier": "archive"});
    let classes = json!({"items": [{"name": "archive", "parameters": parameters}]});
    world.change_spec(&json!({"volumeAttributesClasses": classes})).await?;
    world.run_pod("changes", None).await?;
    expect_field(&world.cloud_volume().await?, "/volume_type", "fast")?;
    world.change_attributes("changes", "archive").await?;
    let volume = world.cloud_volume().await?;
    expect_field(&volume, "/volume_type", kind)?;
    expect_field(&volume, "/metadata/tier", "archive")?;
    world.sh("changes", "echo still there >> /data/log && sync").await?;
    world.delete_pod_and_volume("changes").await?;
    world.change_spec(&json!({"volumeAttributesClasses": null})).await
}
