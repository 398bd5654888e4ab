//! From the version before this one, built from the commit that it was, to this one: on two nodes, with a pod on each that
//! writes to its volume all the time.
//!
//! What is looked at: no write is lost and no pod restarts; the controller is done before the first node pod is replaced, and
//! node pods are replaced one after the other; the version in the status changes only at the end; how long a node is missing
//! from its CSINode while its pod is replaced.

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

/// The name of the driver.
const DRIVER: &str = "cinder.csi.openstack.org";
const NAMESPACE: &str = "cinder-csi";
const SECRET: &str = "openstack-credentials";
/// How long anything may take that the cluster has to do.
const PATIENCE: Duration = Duration::from_mins(5);
/// How long the entry of a node in its CSINode may be missing over a restart of its pod. It is not to go at all.
const LONGEST_GAP: Duration = Duration::ZERO;

/// A cluster, and what it is to go through.
struct World {
    cluster: Cluster,
    previous: Product,
    present: Product,
}

fn main() -> ExitCode {
    scenarios::main(scenarios![an_update_loses_no_write_and_keeps_its_order], run)
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
    let config = ClusterConfig {
        progress,
        ..ClusterConfig::with_nodes(2)
    };
    let world = World {
        cluster: Cluster::start(config).await?,
        previous,
        present,
    };
    scenarios
        .run(&world, async |ended| {
            if !ended.passed {
                let place = world.cluster.collect_logs().await?;
                println!("    logs: {}", place.display());
                if let Ok(object) = world.cluster.get(&["cindercsidriver", DRIVER]).await {
                    println!("    {}", object["status"]);
                }
            }
            Ok(())
        })
        .await?;
    world.cluster.stop().await.context("something of the cluster is left")
}

async fn an_update_loses_no_write_and_keeps_its_order(world: &World) -> Result<()> {
    let World {
        cluster,
        previous,
        present,
    } = world;
    install(cluster, previous).await?;
    let writers = Writers::start(cluster, "cinder").await?;
    let watch = Watch::start(cluster).await?;

    cluster.progress().say(format!("updating to {}", present.version));
    let begun = Instant::now();
    cluster.load_images(present).await?;
    cluster.install_manifests_of(&present.source).await?;
    wait_for("the update", PATIENCE, async || {
        let object = cluster.get(&["cindercsidriver", DRIVER]).await?;
        ensure!(
            object["status"]["version"] == present.version.as_str(),
            "the version is {}; {}",
            object["status"]["version"],
            condition(&object, "Progressing")["message"]
        );
        is_healthy(&object)
    })
    .await?;
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
    // What the old version attached, the new one detaches and removes.
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
    let object = json!({"apiVersion": "csi.openstack.org/v1alpha1", "kind": "CinderCSIDriver", "metadata": {"name": DRIVER},
        "spec": {"clouds": [{"credentialsSecretRef": {"name": SECRET}}]}});
    cluster.apply(&secret.to_string()).await?;
    cluster.apply(&object.to_string()).await?;
    wait_for(&format!("version {}", product.version), PATIENCE, async || {
        let object = cluster.get(&["cindercsidriver", DRIVER]).await?;
        ensure!(
            object["status"]["version"] == product.version.as_str(),
            "the version is {}",
            object["status"]["version"]
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
