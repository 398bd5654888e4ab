// SPDX-License-Identifier: Apache-2.0
//! The steps, from the installation of the operator to its removal.

use anyhow::{Context as _, Result, ensure};
use harness::{Product, Progress, wait_for};
use serde_json::{Value, json};
use suites::cluster::writers::Writers;
use suites::cluster::{CLASS, DRIVER, NAMESPACE, PATIENCE, USERS, WITHIN, World, growth, snapshots};
use suites::scenarios::Scenario;

/// The first step, which starts the cluster and the product.
pub(crate) const INSTALL: &str = "install";
/// Name of the first volume's claim and pod.
const POD: &str = "first";
/// A group and version, and a resource of it.
type Api = (&'static str, &'static str);

/// A step and its prerequisites.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [&'static str],
    /// The API that a version of Kubernetes may lack.
    pub(crate) api: Option<Api>,
    scenario: fn() -> Scenario<World>,
}

impl Step {
    pub(crate) fn scenario(&self) -> Scenario<World> {
        (self.scenario)()
    }
}

macro_rules! step {
    ($name:expr, $needs:expr, $api:expr, $function:path) => {
        Step {
            name: $name,
            needs: $needs,
            api: $api,
            scenario: || Scenario {
                name: $name,
                run: |world| Box::pin($function(world)),
            },
        }
    };
}

/// All steps in order. The first one has ended before the others start.
pub(crate) static STEPS: [Step; 9] = [
    step!(INSTALL, &[], None, install),
    step!("provision", &[INSTALL], None, provision),
    step!("attach", &["provision"], None, attach),
    step!("format", &["attach"], None, format),
    step!("expand", &[INSTALL], None, growth::claim_expands_while_pod_runs),
    step!("snapshot", &[INSTALL], None, snapshot),
    step!(
        "attributes",
        &[INSTALL],
        Some(("storage.k8s.io/v1", "volumeattributesclasses")),
        change_attributes
    ),
    step!("removal", &[INSTALL], None, removal),
    step!("upgrade", &["removal"], None, upgrade),
];

/// Whether the API server serves a resource.
pub(crate) async fn serves(world: &World, (group, resource): Api) -> Result<bool> {
    let answer = world
        .cluster
        .kubectl(&["get", "--raw", &format!("/apis/{group}")])
        .await?;
    let list: Value = serde_json::from_str(&answer).context("a list of resources is not JSON")?;
    let resources = list["resources"].as_array().context("a group without resources")?;
    Ok(resources.iter().any(|found| found["name"] == resource))
}

/// The installation happens at the start of the world.
async fn install(world: &World) -> Result<()> {
    world.healthy().await
}

async fn provision(world: &World) -> Result<()> {
    world.start_pod(POD, None).await?;
    wait_for("the claim to be bound", PATIENCE, async || {
        let claim = world.cluster.get(&["pvc", POD, "-n", USERS]).await?;
        ensure!(claim["status"]["phase"] == "Bound", "{}", claim["status"]);
        Ok(())
    })
    .await?;
    let volumes = world.cloud_volumes().await?;
    ensure!(volumes.len() == 1, "the cloud has {volumes:?}");
    Ok(())
}

async fn attach(world: &World) -> Result<()> {
    wait_for("the attachment of the volume", PATIENCE, async || {
        let list = world.cluster.get(&["volumeattachments"]).await?;
        let items = list["items"].as_array().context("a list without items")?;
        let is_ours = |item: &&Value| item["spec"]["attacher"] == DRIVER;
        let attachment = items.iter().find(is_ours).context("there is no VolumeAttachment")?;
        ensure!(attachment["status"]["attached"] == true, "{}", attachment["status"]);
        Ok(())
    })
    .await
}

async fn format(world: &World) -> Result<()> {
    world.ready(POD).await?;
    let mounts = world.sh(POD, "grep ' /data ' /proc/mounts").await?;
    ensure!(mounts.contains(" ext4 "), "/data is {mounts}");
    wait_for("data on the volume", PATIENCE, async || {
        world.sh(POD, "test -s /data/log").await
    })
    .await?;
    world.delete_pod_and_volume(POD).await
}

async fn snapshot(world: &World) -> Result<()> {
    snapshots::snapshots_work_after_kinds_are_installed(world).await?;
    snapshots::restored_volume_has_data_of_snapshot(world).await
}

async fn change_attributes(world: &World) -> Result<()> {
    let classes = json!({"items": [{"name": "archive", "parameters": {"metadata.tier": "archive"}}]});
    world.patch_spec(&json!({ "volumeAttributesClasses": classes })).await?;
    world.healthy().await?;
    world.start_pod("changes", None).await?;
    world.ready("changes").await?;
    world.change_attributes("changes", "archive").await?;
    let volumes = world.cloud_things("volumes").await?;
    let volume = volumes.first().context("there is no volume")?;
    ensure!(
        volume["metadata"]["tier"] == "archive",
        "the volume has {}",
        volume["metadata"]
    );
    world.delete_pod_and_volume("changes").await?;
    world.patch_spec(&json!({"volumeAttributesClasses": null})).await?;
    world.healthy().await
}

/// Deletes the driver and the operator, and checks that nothing of them remains.
async fn removal(world: &World) -> Result<()> {
    world.nothing_left().await?;
    let cluster = &world.cluster;
    cluster
        .kubectl_within(PATIENCE, &["delete", "cindercsidriver", DRIVER, WITHIN])
        .await?;
    let label = format!("csi.openstack.org/instance={DRIVER}");
    wait_for("the end of what the operator created", PATIENCE, async || {
        let kinds = "deployments,daemonsets,pods,serviceaccounts,secrets,clusterroles,clusterrolebindings";
        let remaining = cluster
            .kubectl(&["get", kinds, "-n", NAMESPACE, "-l", &label, "-o", "name"])
            .await?;
        ensure!(remaining.trim().is_empty(), "remaining: {remaining}");
        let nodes = cluster.get(&["csinodes"]).await?;
        ensure!(!nodes.to_string().contains(DRIVER), "a CSINode still has the driver");
        let drivers = cluster.kubectl(&["get", "csidrivers", "-o", "name"]).await?;
        ensure!(!drivers.contains(DRIVER), "remaining: {drivers}");
        Ok(())
    })
    .await?;
    cluster.remove_manifests().await
}

/// Updates from an earlier commit to the current one while pods write.
async fn upgrade(world: &World) -> Result<()> {
    let cluster = &world.cluster;
    let previous = Product::previous(&Progress::loud()).await?;
    let present = world.product()?;
    cluster.load_images(&previous).await?;
    cluster.install_manifests_of(&previous.source).await?;
    world.good_secret().await?;
    world.apply_driver().await?;
    cluster.load_sidecars_of_controller(NAMESPACE).await?;
    is_at(world, &previous).await?;
    let writers = Writers::start(cluster, CLASS).await?;

    cluster.install_manifests_of(&present.source).await?;
    is_at(world, present).await?;
    let written = writers.check(cluster).await?;
    println!("    no write lost of {written}");
    world.delete_all().await?;
    removal(world).await
}

/// Waits until the driver has a version and is healthy.
async fn is_at(world: &World, product: &Product) -> Result<()> {
    wait_for(&format!("version {}", product.version), PATIENCE, async || {
        let driver = world.driver().await?;
        let version = &driver["status"]["version"];
        ensure!(*version == product.version.as_str(), "the version is {version}");
        Ok(())
    })
    .await?;
    world.healthy().await
}
