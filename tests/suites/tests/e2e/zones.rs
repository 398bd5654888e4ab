//! Two zones: each pod's volume is made in the zone of its node, and stays there.

use anyhow::{Context as _, Result, ensure};
use harness::{Node, wait_for};
use serde_json::{Value, json};
use suites::cluster::{DRIVER, DRIVER_CONTAINER, NAMESPACE, PATIENCE, USERS, World};

const ZONE_LABEL: &str = "topology.cinder.csi.openstack.org/zone";
const FAR: &str = "zone-far";
/// A class of a type that is of no backend in particular, and so of every zone.
const CLASS: &str = "anywhere";

pub(crate) async fn volumes_are_made_in_the_zones_of_their_pods(world: &World) -> Result<()> {
    let [near, far] = world.cluster.nodes() else {
        anyhow::bail!("this scenario needs two nodes");
    };
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
        "provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer", "parameters": {"type": "any"},
    });
    world.cluster.apply(&class.to_string()).await?;
    move_node(world, far.name(), FAR).await?;
    let outcome = in_two_zones(world, near, far).await;
    move_node(world, far.name(), far.zone()).await?;
    world.cluster.kubectl(&["delete", "storageclass", CLASS]).await?;
    outcome
}

async fn in_two_zones(world: &World, near: &Node, far: &Node) -> Result<()> {
    for (name, node, zone) in [("at-near", near, near.zone()), ("at-far", far, FAR)] {
        world.start_pod_on(name, node.name(), CLASS).await?;
        world.ready(name).await?;
        let claim = world.cluster.get(&["pvc", name, "-n", USERS]).await?;
        let volume = claim["spec"]["volumeName"]
            .as_str()
            .context("an unbound claim")?
            .to_owned();
        let found = world.cloud_things("volumes").await?;
        let found = found.iter().find(|found| found["name"] == volume.as_str());
        let found = &found.context("the cloud has no volume of that name")?["availability_zone"];
        ensure!(found == zone, "the volume of {name} is in {found}");
        let bound = world.cluster.get(&["pv", &volume]).await?;
        let affinity = bound["spec"]["nodeAffinity"].to_string();
        ensure!(
            affinity.contains(zone),
            "the volume of {name} may be used at {affinity}"
        );
    }
    // A pod on the other side finds no node: its volume stays where it is.
    world.delete_pod("at-far").await?;
    world.start_pod_on("at-far", near.name(), CLASS).await?;
    wait_for("the scheduler's refusal", PATIENCE, async || {
        let pod = world.cluster.get(&["pod", "at-far", "-n", USERS]).await?;
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let refused = |condition: &Value| {
            condition["reason"] == "Unschedulable" && condition["message"].to_string().contains("volume")
        };
        ensure!(conditions.iter().any(refused), "{conditions:?}");
        Ok(())
    })
    .await?;
    world.delete_all().await
}

/// Makes a node's server one of another zone, as a server that is made anew would be, and waits until Kubernetes knows.
async fn move_node(world: &World, name: &str, zone: &str) -> Result<()> {
    let node = world.cluster.node(name)?;
    world.cluster.tell_zone(name, zone).await?;
    // The kubelet takes no other value than that which is there.
    let without = format!("{ZONE_LABEL}-");
    world.cluster.kubectl(&["label", "node", name, &without]).await?;
    let containers = node.containers(NAMESPACE, DRIVER_CONTAINER).await?;
    let plugin = containers.iter().find(|container| container.pod.contains("node"));
    node.signal(plugin.context("no node plugin runs")?, "SIGKILL").await?;
    wait_for("the node's new zone", PATIENCE, async || {
        let labels = world.cluster.get(&["node", name]).await?["metadata"]["labels"].clone();
        ensure!(labels[ZONE_LABEL] == zone, "its labels are {labels}");
        Ok(())
    })
    .await?;
    world.healthy().await
}
