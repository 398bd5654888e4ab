// SPDX-License-Identifier: Apache-2.0
//! Tests updates from an earlier commit to the current one, on two nodes with a pod each that writes continuously to
//! its volume.
//!
//! Checks that no write is lost and no pod restarts. The controller must be updated before the first node pod, and node
//! pods one after the other. The version in the status must change only at the end. Measures how long a node is missing
//! in its CSINode while its pod is replaced.

mod watch;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use harness::{Cluster, ClusterConfig, Product, Profile, Progress, wait_for};
use serde_json::{Value, json};
use suites::cluster::writers::Writers;
use suites::scenarios;
use suites::scenarios::Scenarios;

use watch::Watch;

/// Name of the driver.
const DRIVER: &str = "cinder.csi.openstack.org";
const NAMESPACE: &str = "cinder-csi";
const SECRET: &str = "openstack-credentials";
/// Limit of every wait.
const PATIENCE: Duration = Duration::from_mins(5);
/// Maximum time for which the driver may be missing in a CSINode while a pod is replaced: never.
const LONGEST_GAP: Duration = Duration::ZERO;

/// The products of the update.
struct World {
    previous: Product,
    present: Product,
    progress: Progress,
}

fn main() -> ExitCode {
    let all = scenarios![update_loses_no_write_and_is_ordered];
    scenarios::main(all, run)
}

async fn run(scenarios: &mut Scenarios<World>) -> Result<()> {
    let progress = Progress::loud();
    let previous = Product::previous(&progress).await?;
    let present = Product::build(Profile::from_environment()?, &progress).await?;
    ensure!(
        previous.version != present.version,
        "both versions are {}",
        present.version
    );
    let world = World {
        previous,
        present,
        progress,
    };
    scenarios.run(&world, async |_| Ok(())).await
}

/// Starts a cluster for one scenario. Two versions with the same number would otherwise share their images.
async fn in_cluster(world: &World, scenario: impl AsyncFnOnce(&Cluster) -> Result<()>) -> Result<()> {
    let config = ClusterConfig {
        progress: world.progress.clone(),
        ..ClusterConfig::with_nodes(2)
    };
    let cluster = Cluster::start(config).await?;
    let result = scenario(&cluster).await;
    if result.is_err() {
        let place = cluster.collect_logs().await?;
        println!("    logs: {}", place.display());
        if let Ok(object) = cluster.get(&["cindercsidriver", DRIVER]).await {
            println!("    {}", object["status"]);
        }
    }
    let stopped = cluster.stop().await.context("something of the cluster is left");
    result.and(stopped)
}

async fn update_loses_no_write_and_is_ordered(world: &World) -> Result<()> {
    in_cluster(world, async |cluster| update(world, cluster).await).await
}

async fn update(world: &World, cluster: &Cluster) -> Result<()> {
    let World { previous, present, .. } = world;
    install(cluster, previous).await?;
    let writers = Writers::start(cluster, "cinder").await?;
    let watch = Watch::start(cluster).await?;

    cluster.progress().say(format!("updating to {}", present.version));
    let begun = Instant::now();
    cluster.load_images(present).await?;
    cluster.install_manifests_of(&present.source).await?;
    is_at(cluster, present).await?;
    println!("    updated in {:.0} s", begun.elapsed().as_secs_f64());

    let seen = watch.stop()?;
    seen.controller_first(previous, present)?;
    seen.one_node_after_the_other()?;
    seen.version_last(previous, present)?;
    let gap = seen.longest_gap()?;
    println!(
        "    longest gap in a node's CSINode: {gap:?} ({} changes of CSINodes seen)",
        seen.registrations.len()
    );
    ensure!(gap <= LONGEST_GAP, "a node was missing from its CSINode for {gap:?}");
    let written = writers.check(cluster).await?;
    println!("    no write lost of {written}");
    // The new version detaches and deletes volumes of the old one.
    writers.remove(cluster).await
}

/// Installs a version and waits until its driver works.
async fn install(cluster: &Cluster, product: &Product) -> Result<()> {
    cluster.load_images(product).await?;
    cluster.install_manifests_of(&product.source).await?;
    let access = cluster.simulator()?.access();
    let clouds = json!({"clouds": {"openstack": {
        "auth_type": "v3applicationcredential", "region_name": access.region,
        "auth": {
            "auth_url": access.auth_url,
            "application_credential_id": access.application_credential_id,
            "application_credential_secret": access.application_credential_secret,
        },
    }}});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": NAMESPACE},
        "stringData": {"clouds.yaml": clouds.to_string()}});
    cluster.apply(&secret.to_string()).await?;
    let object = json!({"apiVersion": "csi.openstack.org/v1beta1", "kind": "CinderCSIDriver", "metadata": {"name": DRIVER},
        "spec": {"clouds": [{"credentialsSecretRef": {"name": SECRET}}]}});
    cluster.apply(&object.to_string()).await?;
    cluster.load_sidecars_of_controller(NAMESPACE).await?;
    is_at(cluster, product).await
}

/// Waits until the driver has a version and is healthy.
async fn is_at(cluster: &Cluster, product: &Product) -> Result<()> {
    wait_for(&format!("version {}", product.version), PATIENCE, async || {
        let object = cluster.get(&["cindercsidriver", DRIVER]).await?;
        ensure!(
            object["status"]["version"] == product.version.as_str(),
            "the version is {}; {}",
            object["status"]["version"],
            condition(&object, "Progressing")["message"]
        );
        is_healthy(&object)
    })
    .await
}

fn is_healthy(object: &Value) -> Result<()> {
    for (kind, status) in [("Available", "True"), ("Progressing", "False"), ("Degraded", "False")] {
        let condition = condition(object, kind);
        ensure!(condition["status"] == status, "{condition}");
    }
    Ok(())
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .and_then(|conditions| conditions.iter().find(|condition| condition["type"] == kind))
        .unwrap_or(&Value::Null)
}
