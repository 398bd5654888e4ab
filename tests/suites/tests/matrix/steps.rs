// SPDX-License-Identifier: Apache-2.0
//! The steps, from the installation of the operator to its removal.

use anyhow::{Context as _, Result};
use harness::{Product, Progress, wait_for};
use serde_json::{Value, json};
use suites::cluster::writers::Writers;
use suites::cluster::{CLASS, DRIVER, PATIENCE, USERS, World, growth, snapshots};
use suites::expect::{expect_field, expect_parts};
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
    let path = format!("/apis/{group}");
    let answer = world.kubectl(&["get", "--raw", &path]).await?;
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
    let claim = ["pvc", POD, "-n", USERS];
    world.wait_for_field(&claim, "/status/phase", "Bound").await?;
    world.expect_cloud_volumes(1).await
}

async fn attach(world: &World) -> Result<()> {
    wait_for("the attachment of the volume", PATIENCE, async || {
        let attachments = world.list(&["volumeattachments"]).await?;
        let is_ours = |item: &&Value| item["spec"]["attacher"] == DRIVER;
        let attachment = attachments.iter().find(is_ours);
        let attachment = attachment.context("there is no VolumeAttachment")?;
        expect_field(attachment, "/status/attached", true)
    })
    .await
}

async fn format(world: &World) -> Result<()> {
    world.ready(POD).await?;
    let mounts = world.sh(POD, "grep ' /data ' /proc/mounts").await?;
    expect_parts(&mounts, &[" ext4 "])?;
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
    world
        .change_spec(&json!({ "volumeAttributesClasses": classes }))
        .await?;
    world.run_pod("changes", None).await?;
    world.change_attributes("changes", "archive").await?;
    expect_field(&world.cloud_volume().await?, "/metadata/tier", "archive")?;
    world.delete_pod_and_volume("changes").await?;
    world.change_spec(&json!({"volumeAttributesClasses": null})).await
}

/// Deletes the driver and the operator, and checks that nothing of them remains.
async fn removal(world: &World) -> Result<()> {
    world.nothing_left().await?;
    world.delete_driver().await?;
    world.no_operands().await?;
    let driver = ["csidriver", DRIVER, "--ignore-not-found"];
    world.expect_no_object(&driver).await?;
    world.cluster.remove_manifests().await
}

/// Updates from an earlier commit to the current one while pods write.
async fn upgrade(world: &World) -> Result<()> {
    let previous = Product::previous(&Progress::loud()).await?;
    let present = world.product()?;
    world.install_version(&previous).await?;
    let writers = Writers::start(world, CLASS).await?;

    world.cluster.install_manifests_of(&present.source).await?;
    world.reach_version(present).await?;
    let written = writers.check(world).await?;
    println!("    no write lost of {written}");
    world.delete_all().await?;
    removal(world).await
}
