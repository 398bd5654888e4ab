// SPDX-License-Identifier: Apache-2.0
//! Registration with the kubelet by the upstream sidecars instead of the driver itself.

use anyhow::{Context as _, Result, ensure};
use harness::{Node, wait_for};
use serde_json::json;

use crate::world::{DRIVER, DRIVER_CONTAINER, NAMESPACE, PATIENCE, World};

/// Releases in the operator's table for this version of Kubernetes.
const IMAGES: [&str; 2] = [
    "registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.17.0",
    "registry.k8s.io/sig-storage/livenessprobe:v2.19.0",
];
const REGISTRAR: &str = "node-driver-registrar";
const REGISTRY: &str = "/var/lib/kubelet/plugins_registry";
const POD: &str = "sidecars";

pub(crate) async fn sidecars_register_and_release_driver(world: &World) -> Result<()> {
    world.cluster.load_node_sidecars(&IMAGES).await?;
    let registration = |by: &str| json!({"node": {"registration": by}});
    world.patch_spec(&registration("Sidecar")).await?;
    by_sidecars(world).await?;

    // The lifecycle of a volume with these sidecars.
    world.run_pod(POD, None).await?;
    let node = world.node_of(POD).await?;

    // The livenessprobe container responds for the driver.
    let before = restarts(world, node, DRIVER_CONTAINER).await?;
    node.kill_container(NAMESPACE, REGISTRAR).await?;
    wait_for("the registrar's new process", PATIENCE, async || {
        ensure!(restarts(world, node, REGISTRAR).await? > 0, "it has not started again");
        Ok(())
    })
    .await?;
    by_sidecars(world).await?;
    ensure!(
        restarts(world, node, DRIVER_CONTAINER).await? == before,
        "the driver restarted though only its registrar was killed"
    );

    let written = world.written_lines(POD).await?;
    world.patch_spec(&registration("Integrated")).await?;
    by_itself(world).await?;
    wait_for("the pod to go on writing", PATIENCE, async || {
        let now = world.written_lines(POD).await?;
        ensure!(now > written, "it has written {now} lines");
        Ok(())
    })
    .await?;
    world.expect_no_restart(POD).await?;
    world.delete_pod_and_volume(POD).await
}

/// Waits until a registrar has registered the driver on every node, and nothing of the driver's own registration
/// remains.
async fn by_sidecars(world: &World) -> Result<()> {
    world.healthy().await?;
    wait_for("the registration by sidecars", PATIENCE, async || {
        for node in world.cluster.nodes() {
            let sockets = registered(world, node).await?;
            let is_other = sockets.len() == 1 && sockets[0] != own_link();
            ensure!(is_other, "{} has {sockets:?}", node.name());
        }
        Ok(())
    })
    .await
}

/// Waits until the driver has registered itself on every node, and no registrar runs.
async fn by_itself(world: &World) -> Result<()> {
    world.healthy().await?;
    wait_for("the driver's own registration", PATIENCE, async || {
        for node in world.cluster.nodes() {
            let sockets = registered(world, node).await?;
            ensure!(sockets == [own_link()], "{} has {sockets:?}", node.name());
            let registrars = node.containers(NAMESPACE, REGISTRAR).await?;
            ensure!(registrars.is_empty(), "{} still has a registrar", node.name());
        }
        Ok(())
    })
    .await
}

fn own_link() -> String {
    format!("{DRIVER}@reg.sock")
}

/// Returns the driver's sockets in the kubelet's registry. Fails if the node's CSINode does not list the driver.
async fn registered(world: &World, node: &Node) -> Result<Vec<String>> {
    let is_registered = world.is_registered(node).await?;
    ensure!(is_registered, "the CSINode of {} lacks the driver", node.name());
    let names = node.exec(&["ls", REGISTRY]).await?;
    let own = names.lines().filter(|name| name.starts_with(DRIVER));
    Ok(own.map(str::to_owned).collect())
}

/// Returns the restarts of a container of the node's plugin pod.
async fn restarts(world: &World, node: &Node, container: &str) -> Result<u64> {
    let on_node = format!("--field-selector=spec.nodeName={}", node.name());
    let label = "app.kubernetes.io/component=node";
    let pods = world.list(&["pods", "-n", NAMESPACE, "-l", label, &on_node]).await?;
    let pod = pods.first().context("there is no pod")?;
    let mut statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    let status = statuses.find(|status| status["name"] == container);
    let status = status.with_context(|| format!("no container {container} on {}", node.name()))?;
    status["restartCount"].as_u64().context("a container without a count")
}
