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
use harness::{Cluster, ClusterConfig, Progress, wait_for, workspace_root};
use serde_json::{Value, json};
use suites::cluster::{DRIVER, NAMESPACE, PATIENCE, SECRET, USERS, World};
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
    let config = ClusterConfig {
        progress: Progress::loud(),
        ..ClusterConfig::with_nodes(2)
    };
    let world = World::bare(Cluster::start(config).await?);
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
    let code = answer.status.code();
    ensure!(code == Some(1), "{code:?}: {}", answer.stderr);
    for part in check::EXPECTED
        .iter()
        .chain(&["Flag: --cluster\n", "spec.clusterID to \"kubernetes\""])
    {
        ensure!(answer.stdout.contains(part), "no {part:?} in\n{}", answer.stdout);
    }
    // A value that equals that of the file is not a finding.
    let answer = check::adopt(site, &object(go::CLUSTER_ID)).await?;
    ensure!(!answer.stdout.contains("--cluster"), "{}", answer.stdout);
    let answer = check::run(site, &["adopt", "other.example.org", "--check"]).await?;
    ensure!(answer.status.code() == Some(2), "{answer:?}");
    Ok(())
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
    let conf = site.cluster().kubectl(&words).await?;
    site.world.secret("cloud.conf", &conf).await?;
    site.cluster().apply(&object(go::CLUSTER_ID).to_string()).await?;
    let says = |found: &Value| {
        let message = found["message"].as_str().unwrap_or_default();
        found["reason"] == "OwnershipConflict" && message.contains("spec.adoption.mode")
    };
    site.world.condition("Degraded", "True", says).await?;
    let ours = site
        .cluster()
        .kubectl(&[
            "get",
            "deployments,daemonsets",
            "-n",
            NAMESPACE,
            "-l",
            "csi.openstack.org/instance",
            "-o",
            "name",
        ])
        .await?;
    ensure!(ours.is_empty(), "the operator made {ours}");
    go::serves(site.cluster()).await
}

async fn operator_replaces_go_driver_under_writing_pods(site: &Site) -> Result<()> {
    site.world.patch_spec(&json!({"adoption": {"mode": "Migrate"}})).await?;
    // The role for the migration must be installed separately.
    site.world
        .condition("Degraded", "True", |found| found["reason"] == "AdoptionForbidden")
        .await?;
    let role = workspace_root().join("config/rbac/adoption");
    let role = role.to_str().context("the path of the workspace is not UTF-8")?;
    let started = Instant::now();
    site.cluster().kubectl(&["apply", "-k", role]).await?;
    check::resolve_findings(site).await?;
    let watch = site.watch_pods().await?;
    wait_for("the end of the take-over", PATIENCE, async || {
        let object = site.object().await?;
        ensure!(
            object["status"]["adoption"]["step"] == "Done",
            "{} {}",
            object["status"]["adoption"],
            object["status"]["conditions"]
        );
        Ok(())
    })
    .await?;
    site.world.healthy().await?;
    println!("    taken over in {:.0} s", started.elapsed().as_secs_f64());
    watch.stop()?;
    site.undisturbed().await?;

    let object = site.object().await?;
    let leftovers: Vec<&str> = object["status"]["adoption"]["leftovers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for expected in [
        "Deployment",
        "ClusterRole csi-attacher-role",
        "Secret kube-system/cloud-config",
    ] {
        ensure!(
            leftovers.iter().any(|name| name.starts_with(expected)),
            "{expected} is not among {leftovers:?}"
        );
    }
    println!("    left of the Go driver: {}", leftovers.join(", "));
    let driver = site.cluster().get(&["csidriver", DRIVER]).await?;
    ensure!(
        driver["spec"]["volumeLifecycleModes"] == json!(["Persistent"]),
        "the CSIDriver is {driver}"
    );
    let words = ["get", "pods", "-n", go::NAMESPACE, "-o", "name"];
    let pods = site.cluster().kubectl(&words).await?;
    ensure!(!pods.contains("cinder"), "pods of the Go driver are left: {pods}");
    Ok(())
}

async fn go_driver_volumes_expand_copy_and_delete(site: &Site) -> Result<()> {
    let first = &site.writers.names()[0];
    site.grow(first, 2).await?;
    site.snapshot("of-ours", first).await?;
    // A snapshot of the Go driver can be restored.
    let mut claim = suites::cluster::claim("restored", "Filesystem");
    claim["spec"]["storageClassName"] = json!(site::CLASS);
    claim["spec"]["dataSource"] =
        json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "of-go"});
    site.world.start_pod_of("restored", None, &claim).await?;
    site.world.ready("restored").await?;
    let restored = site.world.sh("restored", "head -n 1 /data/log").await?;
    ensure!(restored.trim() == "1", "the restored file begins with {restored:?}");
    site.world.delete("pod", "restored").await?;
    site.world.delete("pvc", "restored").await?;
    site.world.delete("volumesnapshot", "of-go").await?;
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
    let object = site.object().await?;
    let uid = object["metadata"]["uid"].as_str().context("an object without a uid")?;
    // Deletes the driver while volumes are in use; pods retain their mounts.
    site.world.patch_spec(&json!({"deletion": {"policy": "Force"}})).await?;
    let acknowledged = format!("csi.openstack.org/force-delete={uid}");
    cluster
        .kubectl(&["annotate", "cindercsidriver", DRIVER, &acknowledged])
        .await?;
    cluster
        .kubectl_within(PATIENCE, &["delete", "cindercsidriver", DRIVER, "--timeout=240s"])
        .await?;
    site.writers.check(cluster).await?;
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
    let image = format!(
        "cinder-csi-plugin=ghcr.io/cinder-csi/cinder-csi-driver:v{}",
        site.product.version
    );
    for workload in [
        format!("deployment/{}", go::CONTROLLER),
        format!("daemonset/{}", go::NODE),
    ] {
        let words = ["set", "image", "-n", go::NAMESPACE, &workload, &image];
        site.cluster().kubectl(&words).await?;
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
    let archives = site.product.pack_images().await?;
    let driver = archives.first().context("the product has no images")?;
    let (repository, tag) = ("cinder-csi-driver", format!("v{}", site.product.version));
    registry.push(cluster, driver, &format!("{repository}:{tag}")).await?;
    release
        .take_image(&format!("{}/{repository}", registry::ADDRESS), &tag)
        .await?;
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
    site.writers.remove(site.cluster()).await?;
    Release::prepare(site.cluster()).await?.uninstall().await?;
    let words = ["get", "pods", "-n", USERS, "-o", "name"];
    let pods = site.cluster().kubectl(&words).await?;
    ensure!(pods.is_empty(), "left: {pods}");
    site.world.nothing_left().await
}
