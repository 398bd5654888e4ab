// SPDX-License-Identifier: Apache-2.0
//! Two zones: each pod's volume is created in the zone of its node, and remains there.

use anyhow::{Context as _, Result, ensure};
use harness::{Node, wait_for};
use serde_json::{Value, json};
use suites::cluster::{DRIVER, PATIENCE, USERS, World};

/// A StorageClass whose volume type exists in every zone.
const CLASS: &str = "anywhere";

/// The second node becomes the server of the other zone, and at the end its original server again.
pub(crate) async fn volumes_are_created_in_zones_of_pods(world: &World) -> Result<()> {
    let [near, far] = world.cluster.nodes() else {
        anyhow::bail!("this scenario needs two nodes");
    };
    let openstack = world.openstack()?;
    let kind = openstack
        .volume_type("anywhere")
        .context("the cloud names no type for every zone")?;
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
        "provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer", "parameters": {"type": kind},
    });
    world.cluster.apply(&class.to_string()).await?;
    let server = world.move_far(far).await?;
    let zone = openstack.zone_of(&server.server_id).await?;
    ensure!(zone == server.zone.as_str(), "Nova has the server in {zone}");
    let outcome = in_two_zones(world, [(near, near.zone()), (far, &server.zone)]).await;
    let cleared = world.delete_all().await;
    world.move_home(far).await?;
    world.cluster.kubectl(&["delete", "storageclass", CLASS]).await?;
    outcome.and(cleared)
}

async fn in_two_zones(world: &World, places: [(&Node, &str); 2]) -> Result<()> {
    for (node, zone) in places {
        let name = format!("in-{zone}");
        world.start_pod_on(&name, node.name(), CLASS).await?;
        world.ready(&name).await?;
        let claim = world.cluster.get(&["pvc", &name, "-n", USERS]).await?;
        let volume = claim["spec"]["volumeName"]
            .as_str()
            .context("an unbound claim")?
            .to_owned();
        let found = world.cloud_things("volumes").await?;
        let found = found.iter().find(|found| found["name"] == volume.as_str());
        let found = &found.context("the cloud has no volume of that name")?["availability_zone"];
        ensure!(*found == zone, "the volume of {name} is in {found}");
        let bound = world.cluster.get(&["pv", &volume]).await?;
        let affinity = bound["spec"]["nodeAffinity"].to_string();
        ensure!(
            affinity.contains(&format!("\"{zone}\"")),
            "the volume of {name} may be used at {affinity}"
        );
    }
    let [(near, _), (_, zone)] = places;
    // A pod in the other zone cannot be scheduled, because its volume does not move.
    let name = format!("in-{zone}");
    world.delete_pod(&name).await?;
    world.start_pod_on(&name, near.name(), CLASS).await?;
    wait_for("the scheduler's refusal", PATIENCE, async || {
        let pod = world.cluster.get(&["pod", &name, "-n", USERS]).await?;
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let refused = |condition: &Value| {
            condition["reason"] == "Unschedulable" && condition["message"].to_string().contains("PersistentVolume")
        };
        ensure!(conditions.iter().any(refused), "{conditions:?}");
        Ok(())
    })
    .await
}
