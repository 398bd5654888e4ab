// SPDX-License-Identifier: Apache-2.0
//! Two zones: each pod's volume is created in the zone of its node, and remains there.

use anyhow::{Context as _, Result, ensure};
use harness::{Node, wait_for};
use serde_json::{Value, json};
use suites::cluster::{PATIENCE, World, storage_class};
use suites::expect::{expect_field, expect_parts};

/// A StorageClass whose volume type exists in every zone.
const CLASS: &str = "anywhere";

/// The second node becomes the server of the other zone, and at the end its original server again.
pub(crate) async fn volumes_are_created_in_zones_of_pods(world: &World) -> Result<()> {
    let [near, far] = world.cluster.nodes() else {
        anyhow::bail!("this scenario needs two nodes");
    };
    let openstack = world.openstack()?;
    let kind = openstack.volume_type("anywhere");
    let kind = kind.context("the cloud names no type for every zone")?;
    let mut class = storage_class(CLASS, &json!({"type": kind}));
    class["volumeBindingMode"] = json!("WaitForFirstConsumer");
    world.apply(&class).await?;
    let server = world.move_far(far).await?;
    let zone = openstack.zone_of(&server.server_id).await?;
    ensure!(zone == server.zone.as_str(), "Nova has the server in {zone}");
    let outcome = in_two_zones(world, [(near, near.zone()), (far, &server.zone)]).await;
    let cleared = world.delete_all().await;
    world.move_home(far).await?;
    world.remove(&["storageclass", CLASS]).await?;
    outcome.and(cleared)
}

async fn in_two_zones(world: &World, places: [(&Node, &str); 2]) -> Result<()> {
    for (node, zone) in places {
        let name = format!("in-{zone}");
        world.start_pod_on(&name, node.name(), CLASS).await?;
        world.ready(&name).await?;
        let bound = world.volume(&name).await?;
        let volumes = world.cloud_things("volumes").await?;
        let volume = volumes
            .iter()
            .find(|volume| volume["name"] == bound["metadata"]["name"]);
        let volume = volume.context("the cloud has no volume of that name")?;
        expect_field(volume, "/availability_zone", zone)?;
        let affinity = bound["spec"]["nodeAffinity"].to_string();
        expect_parts(&affinity, &[&format!("\"{zone}\"")])?;
    }
    let [(near, _), (_, zone)] = places;
    // A pod in the other zone cannot be scheduled, because its volume does not move.
    let name = format!("in-{zone}");
    world.delete_pod(&name).await?;
    world.start_pod_on(&name, near.name(), CLASS).await?;
    wait_for("the scheduler's refusal", PATIENCE, async || {
        let pod = world.get_of_users("pod", &name).await?;
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let is_refused = |condition: &Value| {
            condition["reason"] == "Unschedulable" && condition["message"].to_string().contains("PersistentVolume")
        };
        ensure!(conditions.any(is_refused), "{}", pod["status"]);
        Ok(())
    })
    .await
}
