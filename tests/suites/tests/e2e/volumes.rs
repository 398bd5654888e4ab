// SPDX-License-Identifier: Apache-2.0
//! Scenarios of many volumes, and of changes to volumes.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use suites::cluster::World;

const CROWD: usize = 10;

pub(crate) async fn ten_concurrent_claims_get_ten_volumes(world: &World) -> Result<()> {
    let names: Vec<_> = (0..CROWD).map(|number| format!("crowd-{number}")).collect();
    for name in &names {
        world.start_pod(name, None).await?;
    }
    for name in &names {
        world.ready(name).await?;
    }
    let volumes = world.cloud_volumes().await?;
    ensure!(volumes.len() == CROWD, "the cloud has {volumes:?}");
    world.delete_all().await
}

pub(crate) async fn volume_gets_attributes_of_class(world: &World) -> Result<()> {
    // Cinder refuses a retype of a volume in use to a type with another front-end QoS.
    let kind = world
        .openstack()?
        .volume_type("archive")
        .context("the cloud names no type for an archive")?;
    let parameters = json!({"type": kind, "metadata.tier": "archive"});
    world
        .patch_spec(&json!({"volumeAttributesClasses": {"items": [{"name": "archive", "parameters": parameters}]}}))
        .await?;
    world.healthy().await?;
    world.start_pod("changes", None).await?;
    world.ready("changes").await?;
    ensure!(
        kind_and_tier(world).await?.0 == "fast",
        "the volume does not begin as fast"
    );
    world.change_attributes("changes", "archive").await?;
    let observed = kind_and_tier(world).await?;
    ensure!(
        observed == (kind.to_owned(), "archive".to_owned()),
        "Cinder has {observed:?}"
    );
    world.sh("changes", "echo still there >> /data/log && sync").await?;
    world.delete_pod_and_volume("changes").await?;
    world.patch_spec(&json!({"volumeAttributesClasses": null})).await?;
    world.healthy().await
}

/// Returns type and metadata `tier` of the only volume in the cloud.
async fn kind_and_tier(world: &World) -> Result<(String, String)> {
    let volumes = world.cloud_things("volumes").await?;
    let volume = volumes.first().context("there is no volume")?;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    Ok((text(&volume["volume_type"]), text(&volume["metadata"]["tier"])))
}
