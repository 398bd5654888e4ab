// SPDX-License-Identifier: Apache-2.0
//! Tests the migration from the Go driver to this one and back, in a cluster of two nodes. The Go driver comes from its
//! own manifests and its own chart. Pods write continuously to volumes that it created.
//!
//! The scenarios share one cluster, and each one continues from the previous one: the first failure ends the run. The
//! steps are those of `docs/migrate-from-cinder-csi-plugin.md`.

mod chart;
mod check;
mod lost_server;
mod site;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use harness::{Progress, workspace_root};
use serde_json::{Value, json};
use suites::cluster::{DRIVER, NAMESPACE, SECRET, USERS, World, claim_of_class, from_snapshot};
use suites::expect::{expect_equal, expect_field, expect_parts};
use suites::go_manifests as go;
use suites::registry::{self, Registry};
use suites::scenarios;
use suites::scenarios::Scenarios;

use chart::Release;
use site::Site;

fn main() -> ExitCode {
    let all = scenarios![
        go_driver_creates_volumes_and_snapshot,
        deleted_server_has_stale_cinder_attachment,
        check_reports_changes_before_installation,
        operator_does_nothing_next_to_go_driver,
        operator_replaces_go_driver_under_writing_pods,
        go_driver_volumes_expand_copy_and_delete,
        volume_with_secret_moves_expands_and_deletes,
        volume_of_a_deleted_server_is_attached,
        rollback_restores_go_driver,
        our_image_runs_in_go_driver_manifests,
        our_image_runs_in_go_driver_chart,
        nothing_remains,
    ];
    scenarios::main(all, run)
}

async fn run(scenarios: &mut Scenarios<Site>) -> Result<()> {
    let world = World::start_nodes(2, Progress::loud()).await?;
    let logs = world.cluster.logs()?.to_owned();
    let site = Site::begin(world)
        .await
        .with_context(|| format!("the Go driver is not installed; logs: {}", logs.display()))?;
    scenarios
        .run(&site, async |ended| {
            if !ended.passed {
                println!("{}", site.world.describe().await);
                let place = site.cluster().collect_logs().await?;
                bail!("those after it begin where it was to end; logs: {}", place.display());
            }
            Ok(())
        })
        .await?;
    site.world.stop().await
}

async fn go_driver_creates_volumes_and_snapshot(site: &Site) -> Result<()> {
    site.snapshot("of-go", &site.writers.names()[0]).await?;
    site.undisturbed().await
}

async fn check_reports_changes_before_installation(site: &Site) -> Result<()> {
    check::make_what_changes(site).await?;
    let answer = check::adopt(site, &object("another")).await?;
    println!("{}", answer.stdout);
    expect_equal(&answer.stderr, &answer.status.code(), &Some(1))?;
    expect_parts(&answer.stdout, &check::EXPECTED)?;
    let of_cluster = ["Flag: --cluster\n", "spec.clusterID to \"kubernetes\""];
    expect_parts(&answer.stdout, &of_cluster)?;
    // A value that equals that of the file is not a finding.
    let answer = check::adopt(site, &object(go::CLUSTER_ID)).await?;
    ensure!(!answer.stdout.contains("--cluster"), "{}", answer.stdout);
    let answer = check::run(site, &["adopt", "other.example.org", "--check"]).await?;
    expect_equal("exit status", &answer.status.code(), &Some(2))
}

/// Returns the administrator's object.
fn object(cluster_id: &str) -> Value {
    json!({
        "apiVersion": "csi.openstack.org/v1beta1", "kind": "CinderCSIDriver", "metadata": {"name": DRIVER},
        "spec": {"clusterID": cluster_id, "clouds": [{"credentialsSecretRef": {"name": SECRET, "key": "cloud.conf"}}]},
    })
}

async fn operator_does_nothing_next_to_go_driver(site: &Site) -> Result<()> {
    site.cluster().install_manifests().await?;
    // Copies the Go driver's own configuration, as documented.
    let template = "go-template={{index .data \"cloud.conf\" | base64decode}}";
    let words = ["get", "secret", go::SECRET, "-n", go::NAMESPACE, "-o", template];
    let world = &site.world;
    let conf = world.kubectl(&words).await?;
    world.secret("cloud.conf", &conf).await?;
    world.apply(&object(go::CLUSTER_ID)).await?;
    let words = ["spec.adoption.mode"];
    world.reason("Degraded", "True", "OwnershipConflict", &words).await?;
    let label = "csi.openstack.org/instance";
    let ours = ["deployments,daemonsets", "-n", NAMESPACE, "-l", label];
    world.expect_no_object(&ours).await?;
    go::serves(site.cluster()).await
}

async fn operator_replaces_go_driver_under_writing_pods(site: &Site) -> Result<()> {
    let world = &site.world;
    world.patch_spec(&json!({"adoption": {"mode": "Migrate"}})).await?;
    // The role for the migration must be installed separately.
    world.reason("Degraded", "True", "AdoptionForbidden", &[]).await?;
    let role = workspace_root().join("config/rbac/adoption");
    let role = role.to_str().context("the path of the workspace is not UTF-8")?;
    let started = Instant::now();
    world.kubectl(&["apply", "-k", role]).await?;
    check::resolve_findings(site).await?;
    let watch = site::Watches::start(world).await?;
    let driver = ["cindercsidriver", DRIVER];
    let step = "/status/adoption/step";
    world.wait_for_field(&driver, step, "Done").await?;
    world.healthy().await?;
    println!("    taken over in {:.0} s", started.elapsed().as_secs_f64());
    watch.stop()?;
    site.undisturbed().await?;

    let object = world.driver().await?;
    let leftovers = object["status"]["adoption"]["leftovers"].as_array();
    let leftovers: Vec<&str> = leftovers.into_iter().flatten().filter_map(Value::as_str).collect();
    let (role, secret) = ("ClusterRole csi-attacher-role", "Secret kube-system/cloud-config");
    for expected in ["Deployment", role, secret] {
        let is_listed = leftovers.iter().any(|name| name.starts_with(expected));
        ensure!(is_listed, "{expected} is not among {leftovers:?}");
    }
    println!("    left of the Go driver: {}", leftovers.join(", "));
    let driver = world.get(&["csidriver", DRIVER]).await?;
    expect_field(&driver, "/spec/volumeLifecycleModes", json!(["Persistent"]))?;
    let pods = world.names(&["pods", "-n", go::NAMESPACE]).await?.join(" ");
    ensure!(!pods.contains("cinder"), "pods of the Go driver are left: {pods}");
    Ok(())
}

async fn go_driver_volumes_expand_copy_and_delete(site: &Site) -> Result<()> {
    let (world, first) = (&site.world, &site.writers.names()[0]);
    site.grow(first, 2).await?;
    site.snapshot("of-ours", first).await?;
    // A snapshot of the Go driver can be restored.
    let mut claim = claim_of_class("restored", site::CLASS);
    claim["spec"]["dataSource"] = from_snapshot("of-go");
    world.start_pod_of("restored", None, &claim).await?;
    world.ready("restored").await?;
    let restored = world.sh("restored", "head -n 1 /data/log").await?;
    expect_equal("first line of the restored file", restored.trim(), "1")?;
    world.delete_pod_and_claim("restored").await?;
    world.delete("volumesnapshot", "of-go").await?;
    site.a_life("new").await?;
    site.undisturbed().await
}

async fn volume_with_secret_moves_expands_and_deletes(site: &Site) -> Result<()> {
    check::use_volume_with_secret(site).await?;
    site.undisturbed().await
}

async fn deleted_server_has_stale_cinder_attachment(site: &Site) -> Result<()> {
    lost_server::leave_record(site).await?;
    site.undisturbed().await
}

async fn volume_of_a_deleted_server_is_attached(site: &Site) -> Result<()> {
    lost_server::use_volume(site).await?;
    site.undisturbed().await
}

async fn rollback_restores_go_driver(site: &Site) -> Result<()> {
    let cluster = site.cluster();
    // Deletes the driver while volumes are in use; pods retain their mounts.
    site.world.patch_spec(&json!({"deletion": {"policy": "Force"}})).await?;
    site.acknowledge("force-delete").await?;
    site.world.delete_driver().await?;
    site.writers.check(&site.world).await?;
    go::apply(&site.manifests.without_credentials(), cluster).await?;
    go::serves(cluster).await?;
    site.undisturbed().await?;
    // This snapshot was taken by our driver.
    site.world.delete("volumesnapshot", "of-ours").await?;
    site.grow(&site.writers.names()[1], 2).await?;
    site.a_life("after").await?;
    site.undisturbed().await
}

async fn our_image_runs_in_go_driver_manifests(site: &Site) -> Result<()> {
    let image = format!("ghcr.io/cinder-csi/cinder-csi-driver:v{}", site.version()?);
    let image = format!("cinder-csi-plugin={image}");
    let deployment = format!("deployment/{}", go::CONTROLLER);
    let daemon_set = format!("daemonset/{}", go::NODE);
    for workload in [&deployment, &daemon_set] {
        let words = ["set", "image", "-n", go::NAMESPACE, workload, &image];
        site.world.kubectl(&words).await?;
    }
    go::serves(site.cluster()).await?;
    site.undisturbed().await?;
    let names = site.writers.names();
    site.grow(&names[0], 3).await?;
    site.snapshot("small-way", &names[1]).await?;
    site.world.delete("volumesnapshot", "small-way").await?;
    site.a_life("small-way").await?;
    site.undisturbed().await
}

/// The only changed value is the image of the driver, which is pulled as by an administrator.
async fn our_image_runs_in_go_driver_chart(site: &Site) -> Result<()> {
    let cluster = site.cluster();
    // Manifests and chart have roles and accounts with the same names.
    go::delete(&site.manifests, cluster).await?;
    let release = Release::install(&site.world).await?;
    release.serves().await?;
    site.a_life("of-the-chart").await?;
    site.undisturbed().await?;

    let registry = Registry::start(cluster).await?;
    let archives = site.world.product()?.pack_images().await?;
    let driver = archives.first().context("the product has no images")?;
    let (repository, tag) = ("cinder-csi-driver", format!("v{}", site.version()?));
    registry.push(cluster, driver, &format!("{repository}:{tag}")).await?;
    let repository = format!("{}/{repository}", registry::ADDRESS);
    release.take_image(&repository, &tag).await?;
    release.serves().await?;
    site.undisturbed().await?;
    let names = site.writers.names();
    site.grow(&names[1], 3).await?;
    site.snapshot("in-the-chart", &names[0]).await?;
    site.a_life("in-the-chart").await?;
    site.undisturbed().await?;

    release.roll_back().await?;
    release.serves().await?;
    site.world.delete("volumesnapshot", "in-the-chart").await?;
    site.grow(&names[0], 4).await?;
    site.a_life("rolled-back").await?;
    site.undisturbed().await?;
    registry.stop().await
}

async fn nothing_remains(site: &Site) -> Result<()> {
    site.world.delete_all().await?;
    Release::prepare(site.cluster()).await?.uninstall().await?;
    site.world.expect_no_object(&["pods", "-n", USERS]).await?;
    site.world.nothing_left().await
}
