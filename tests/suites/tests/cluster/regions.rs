// SPDX-License-Identifier: Apache-2.0
//! Two clouds with servers among the nodes, and one StorageClass for both.

use anyhow::{Context as _, Result, bail, ensure};
use harness::{Simulator, SimulatorConfig, wait_for, workspace_root};
use reqwest::Method;
use serde_json::{Value, json};
use suites::expect::expect_none;

use crate::servers::server_of;
use crate::world::{CLASS, DRIVER, Login, NAMESPACE, PATIENCE, SECRET, World};

/// Label that distinguishes the nodes of the clouds.
const REGION: &str = "topology.kubernetes.io/region";
/// The second cloud, which is also its region, and the Secret with its credentials, as in
/// config/samples/several-clouds-patch.yaml.
const WEST: &str = "west";
const SECRET_OF_THE_WEST: &str = "openstack-west";
/// A class for volumes in the second cloud, and the Secret that selects it.
const CLASS_OF_THE_WEST: &str = "cinder-west";
/// Lists the StorageClasses with their uids.
const LIST_CLASSES: [&str; 4] = [
    "get",
    "storageclasses",
    "-o",
    "custom-columns=N:.metadata.name,U:.metadata.uid",
];

pub(crate) async fn storage_classes_select_cloud_by_node_or_secret(world: &World) -> Result<()> {
    let [first, second] = world.cluster.nodes() else {
        bail!("this scenario needs two nodes");
    };
    world.healthy().await?;
    let east = world.cluster.simulator()?;
    let config = SimulatorConfig {
        args: vec!["--volume-type=fast".to_owned()],
    };
    let west = world.cluster.start_simulator(WEST, 1, &config).await?;
    // The server of the second node moves to the other cloud.
    let path = format!("servers/{}", second.server_id());
    let server = server_of(east, second).await?;
    east.admin(Method::DELETE, &path, None).await?;
    west.admin(Method::PUT, &path, Some(server.clone())).await?;
    let outcome = with_two_clouds(world, east, &west, [first.name(), second.name()]).await;
    // Also after a failure, because the other scenarios expect one cloud. A driver with regions must not lose its
    // label.
    let restored = world.healthy().await;
    for node in [first.name(), second.name()] {
        let arguments = ["label", "node", node, &format!("{REGION}-")];
        world.kubectl(&arguments).await?;
    }
    east.admin(Method::PUT, &path, Some(server)).await?;
    outcome.and(restored)?;
    world.cluster.end_simulator(WEST)
}

async fn with_two_clouds(world: &World, east: &Simulator, west: &Simulator, nodes: [&str; 2]) -> Result<()> {
    for (node, region) in nodes.into_iter().zip(["east", WEST]) {
        let label = format!("{REGION}={region}");
        world.kubectl(&["label", "--overwrite", "node", node, &label]).await?;
    }
    let login = Login::of_simulator(west).clouds_yaml();
    world.write_secret(SECRET_OF_THE_WEST, "clouds.yaml", &login).await?;
    let before = json!({
        "clouds": [{"name": "default", "credentialsSecretRef": {"name": SECRET}}],
        "storageClasses": {"items": [{"name": CLASS}]},
        "snapshots": null,
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": CLASS_OF_THE_WEST, "namespace": NAMESPACE},
        "stringData": {"cloud": WEST},
    });
    world.cluster.apply(&secret.to_string()).await?;
    let samples = workspace_root().join("config/samples");
    let sample = |name: &str| samples.join(name).display().to_string();
    let driver = sample("cindercsidriver.yaml");
    world.cluster.kubectl(&["apply", "-f", &driver]).await?;
    world.healthy().await?;
    let classes = world.cluster.kubectl(&LIST_CLASSES).await?;
    let patch_file = format!("--patch-file={}", sample("several-clouds-patch.yaml"));
    let arguments = ["patch", "cindercsidriver", DRIVER, "--type=json", &patch_file];
    world.cluster.kubectl(&arguments).await?;
    let outcome = volumes_are_made_where_they_are_wanted(world, east, west, nodes, &classes).await;
    if outcome.is_err() {
        world.delete_what_users_made().await?;
    }
    world.patch_spec(&before).await?;
    let secrets = ["secret", "-n", NAMESPACE, SECRET_OF_THE_WEST, CLASS_OF_THE_WEST];
    world.remove(&secrets).await?;
    outcome
}

async fn volumes_are_made_where_they_are_wanted(
    world: &World,
    east: &Simulator,
    west: &Simulator,
    nodes: [&str; 2],
    classes: &str,
) -> Result<()> {
    world.healthy().await?;
    let present = world.cluster.kubectl(&LIST_CLASSES).await?;
    let lost = classes.lines().find(|class| !present.contains(class));
    ensure!(lost.is_none(), "the patch deleted or recreated {lost:?}");
    for node in world.cluster.nodes() {
        wait_for(&format!("the region of {}", node.name()), PATIENCE, async || {
            let entry = world.registration(node).await?;
            let mut keys = entry["topologyKeys"].as_array().into_iter().flatten();
            ensure!(keys.any(|key| key == REGION), "{entry}");
            Ok(())
        })
        .await?;
    }
    world.start_pod_on("of-the-east", nodes[0], CLASS).await?;
    world.start_pod_on("of-the-west", nodes[1], CLASS).await?;
    // The claim is bound before its pod has a node.
    world.start_pod_of_class("by-secret", CLASS_OF_THE_WEST).await?;
    for (pod, cloud, region) in [
        ("of-the-east", east, "east"),
        ("of-the-west", west, WEST),
        ("by-secret", west, WEST),
    ] {
        world.ready(pod).await?;
        let volume = world.volume(pod).await?;
        let handle = &volume["spec"]["csi"]["volumeHandle"];
        let volumes = cloud.state().await?["volumes"].take();
        let mut known = volumes.as_array().into_iter().flatten();
        let is_known = known.any(|volume| volume["id"] == *handle);
        ensure!(is_known, "{pod} has {handle}, and its cloud {volumes}");
        // A pod with this volume is not scheduled to a node of the other cloud, although its zone has the same name.
        let mut segments = segments(&volume);
        ensure!(segments.any(|segment| segment == (REGION, region)), "{volume}");
    }
    world.delete_all().await?;
    let remaining = west.state().await?["volumes"].take();
    let remaining = remaining.as_array().context("a state without volumes")?;
    expect_none("volumes in the second cloud", remaining)
}

/// Returns the node labels that a volume requires, with a valid value of each.
fn segments(volume: &Value) -> impl Iterator<Item = (&str, &str)> {
    let terms = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"].as_array();
    let expressions = terms
        .into_iter()
        .flatten()
        .filter_map(|term| term["matchExpressions"].as_array());
    expressions.flatten().filter_map(|expression| {
        let value = expression["values"].as_array()?.first()?;
        Some((expression["key"].as_str()?, value.as_str()?))
    })
}
