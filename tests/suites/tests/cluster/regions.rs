// SPDX-License-Identifier: Apache-2.0
//! Two clouds with servers among the nodes, and one StorageClass for both.

use anyhow::{Context as _, Result, bail, ensure};
use harness::{Simulator, SimulatorConfig, wait_for, workspace_root};
use reqwest::Method;
use serde_json::{Value, json};
use suites::cluster::NAMESPACE;

use crate::world::{CLASS, DRIVER, Login, PATIENCE, SECRET, USERS, World};

/// Label that distinguishes the nodes of the clouds.
const REGION: &str = "topology.kubernetes.io/region";
/// The second cloud, which is also its region, and the Secret with its credentials, as in
/// config/samples/several-clouds.yaml.
const WEST: &str = "west";
const SECRET_OF_THE_WEST: &str = "openstack-west";
/// A class for volumes in the second cloud, and the Secret that selects it.
const CLASS_OF_THE_WEST: &str = "cinder-west";

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
    let state = east.state().await?;
    let mut servers = state["servers"].as_array().into_iter().flatten();
    let server = servers.find(|server| server["id"] == second.server_id());
    let server = server.context("the cloud has no server of the second node")?.clone();
    east.admin(Method::DELETE, &path, None).await?;
    west.admin(Method::PUT, &path, Some(server.clone())).await?;
    let outcome = with_two_clouds(world, east, &west, [first.name(), second.name()]).await;
    // Also after a failure, because the other scenarios expect one cloud. A driver with regions must not lose its
    // label.
    let restored = world.healthy().await;
    for node in [first.name(), second.name()] {
        world
            .cluster
            .kubectl(&["label", "node", node, &format!("{REGION}-")])
            .await?;
    }
    east.admin(Method::PUT, &path, Some(server)).await?;
    outcome.and(restored)?;
    world.cluster.end_simulator(WEST)
}

async fn with_two_clouds(world: &World, east: &Simulator, west: &Simulator, nodes: [&str; 2]) -> Result<()> {
    for (node, region) in nodes.into_iter().zip(["east", WEST]) {
        let label = format!("{REGION}={region}");
        world
            .cluster
            .kubectl(&["label", "--overwrite", "node", node, &label])
            .await?;
    }
    let access = west.access();
    let login = Login {
        auth_url: access.auth_url.clone(),
        region: access.region.clone(),
        id: access.application_credential_id.clone(),
        secret: access.application_credential_secret.clone(),
    };
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET_OF_THE_WEST, "namespace": NAMESPACE},
        "stringData": {"clouds.yaml": login.clouds_yaml()},
    });
    world.cluster.apply(&secret.to_string()).await?;
    let before = json!({
        "clouds": [{"name": "default", "credentialsSecretRef": {"name": SECRET}}],
        "storageClasses": {"items": [{"name": CLASS}]},
        "snapshots": null,
    });
    let sample = workspace_root().join("config/samples/several-clouds.yaml");
    let sample = std::fs::read_to_string(&sample).with_context(|| format!("cannot read {}", sample.display()))?;
    world.cluster.apply(&sample).await?;
    let outcome = volumes_are_made_where_they_are_wanted(world, east, west, nodes).await;
    if outcome.is_err() {
        world.delete_what_users_made().await?;
    }
    world.patch_spec(&before).await?;
    for name in [SECRET_OF_THE_WEST, CLASS_OF_THE_WEST] {
        world
            .cluster
            .kubectl(&["delete", "secret", "-n", NAMESPACE, name])
            .await?;
    }
    outcome
}

async fn volumes_are_made_where_they_are_wanted(
    world: &World,
    east: &Simulator,
    west: &Simulator,
    nodes: [&str; 2],
) -> Result<()> {
    world.healthy().await?;
    for node in nodes {
        wait_for(&format!("the region of {node}"), PATIENCE, async || {
            let object = world.cluster.get(&["csinode", node]).await?;
            let drivers = object["spec"]["drivers"].as_array();
            let ours = drivers.into_iter().flatten().find(|driver| driver["name"] == DRIVER);
            let mut keys = ours
                .and_then(|driver| driver["topologyKeys"].as_array())
                .into_iter()
                .flatten();
            ensure!(keys.any(|key| key == REGION), "{object}");
            Ok(())
        })
        .await?;
    }
    world.start_pod_on("of-the-east", nodes[0], CLASS).await?;
    world.start_pod_on("of-the-west", nodes[1], CLASS).await?;
    // The claim is bound before its pod has a node.
    world.start_pod_of_class("by-secret", CLASS_OF_THE_WEST).await?;
    let pods = [
        ("of-the-east", east, "east"),
        ("of-the-west", west, WEST),
        ("by-secret", west, WEST),
    ];
    for (pod, cloud, region) in pods {
        world.ready(pod).await?;
        let claim = world.cluster.get(&["pvc", pod, "-n", USERS]).await?;
        let name = claim["spec"]["volumeName"].as_str().context("an unbound claim")?;
        let volume = world.cluster.get(&["pv", name]).await?;
        let handle = &volume["spec"]["csi"]["volumeHandle"];
        let state = cloud.state().await?;
        let mut volumes = state["volumes"].as_array().into_iter().flatten();
        ensure!(
            volumes.any(|volume| volume["id"] == *handle),
            "{pod} has {handle}, and its cloud {}",
            state["volumes"]
        );
        // A pod with this volume is not scheduled to a node of the other cloud, although its zone has the same name.
        let mut segments = segments(&volume);
        ensure!(
            segments.any(|(key, value)| key == REGION && value == region),
            "{volume}"
        );
    }
    for (pod, ..) in pods {
        world.delete_pod(pod).await?;
        world.delete_claim(pod).await?;
    }
    world.nothing_left().await?;
    let remaining = west.state().await?["volumes"].clone();
    ensure!(
        remaining.as_array().is_some_and(Vec::is_empty),
        "the second cloud has {remaining}"
    );
    Ok(())
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
