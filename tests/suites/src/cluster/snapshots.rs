// SPDX-License-Identifier: Apache-2.0
//! Scenarios of snapshots, clones, and the installation and removal of their APIs.

use anyhow::{Context as _, Result, ensure};
use harness::{Cluster, wait_for, workspace_root};
use serde_json::{Value, json};

use super::{CLASS, DRIVER, NAMESPACE, PATIENCE, USERS, World, from_snapshot};
use crate::expect::{expect_field, expect_none};

const NOT_UTF8: &str = "a path that is not UTF-8";

pub async fn snapshots_work_after_kinds_are_installed(world: &World) -> Result<()> {
    expect_snapshotter(world, false).await?;
    world.kubectl(&["apply", "-f", &kinds(world)?]).await?;
    // In mode Auto, new kinds are considered only after an hour.
    world.patch_spec(&json!({"snapshots": {"mode": "Enabled"}})).await?;
    let reported = [
        "events",
        "-A",
        "--field-selector",
        "reason=SnapshotControllerUnavailable",
    ];
    wait_for("the event about the snapshot-controller", PATIENCE, async || {
        ensure!(!world.names(&reported).await?.is_empty(), "there is none");
        Ok(())
    })
    .await?;
    install_controller(&world.cluster).await?;
    world.healthy().await?;
    expect_snapshotter(world, true).await?;
    for kind in ["volumesnapshotclass", "volumegroupsnapshotclass"] {
        let class = world.get(&[kind, CLASS]).await?;
        expect_field(&class, "/driver", DRIVER)?;
        expect_field(&class, "/deletionPolicy", "Delete")?;
    }
    Ok(())
}

/// Returns the directory of the snapshot kinds.
fn kinds(world: &World) -> Result<String> {
    let kinds = world.cluster.tools().path("snapshot-crds")?;
    Ok(kinds.to_str().context(NOT_UTF8)?.to_owned())
}

/// Installs the snapshot-controller, as an administrator does.
pub async fn install_controller(cluster: &Cluster) -> Result<()> {
    let words = ["apply", "-k", &controller_component()?];
    cluster.kubectl(&words).await.map(drop)
}

fn controller_component() -> Result<String> {
    let path = workspace_root().join("config/snapshot-controller");
    Ok(path.to_str().context(NOT_UTF8)?.to_owned())
}

pub async fn restored_volume_has_data_of_snapshot(world: &World) -> Result<()> {
    world.run_pod("origin", None).await?;
    world.write_witness("origin", "then").await?;
    take(world, "moment", "origin", CLASS).await?;
    world.write_witness("origin", "now").await?;

    world.start_pod_from("restored", &from_snapshot("moment")).await?;
    world.expect_witness("restored", "then").await?;
    world.expect_witness("origin", "now").await?;

    world.delete_pod_and_claim("restored").await?;
    world.delete("volumesnapshot", "moment").await?;
    world.end_in_cloud(&["snapshots"]).await?;
    world.delete_pod_and_volume("origin").await
}

pub async fn clone_has_data_of_source(world: &World) -> Result<()> {
    world.run_pod("source", None).await?;
    world.write_witness("source", "cloned").await?;

    let source = json!({"kind": "PersistentVolumeClaim", "name": "source"});
    world.start_pod_from("clone", &source).await?;
    world.expect_witness("clone", "cloned").await?;
    world.write_witness("clone", "changed").await?;
    world.expect_witness("source", "cloned").await?;

    world.delete_pod_and_claim("clone").await?;
    world.delete_pod_and_volume("source").await
}

/// Deletes the kinds twice: by force with a snapshot, and without one.
pub async fn forced_deletion_of_snapshot_kinds_is_reported(world: &World) -> Result<()> {
    let kinds = kinds(world)?;
    let disabled = json!({"snapshots": {"mode": "Disabled"}});
    let enabled = json!({"snapshots": {"mode": "Enabled"}});
    world.run_pod("origin", None).await?;
    take(world, "lost", "origin", CLASS).await?;
    world.patch_spec(&disabled).await?;
    reported(world, "SnapshotsInUse").await?;
    expect_snapshotter(world, true).await?;
    world.change_spec(&enabled).await?;

    remove_controller(world).await?;
    force_deletion(world, &kinds).await?;
    reported(world, "SnapshotCRDsMissing").await?;
    without_snapshotter(world).await?;
    world.condition("Available", "True").await?;
    world.run_pod("other", None).await?;
    world.delete_pod_and_claim("other").await?;

    // The API server still stores the VolumeSnapshotContent.
    world.kubectl(&["apply", "-f", &kinds]).await?;
    install_controller(&world.cluster).await?;
    let delete = ["delete", "volumesnapshot", "lost", "-n", USERS, "--wait=false"];
    wait_for("the end of the snapshot in the cloud", PATIENCE, async || {
        world.kubectl(&[&delete[..], &["--ignore-not-found"]].concat()).await?;
        expect_none("snapshots", &world.cloud_things("snapshots").await?)
    })
    .await?;
    world.healthy().await?;
    world.delete_pod_and_volume("origin").await?;

    world.patch_spec(&disabled).await?;
    without_snapshotter(world).await?;
    remove_controller(world).await?;
    world.remove(&["-f", &kinds]).await?;
    world.change_spec(&json!({"snapshots": null})).await?;
    expect_snapshotter(world, false).await
}

/// Deletes the kinds of snapshots without waiting for their objects.
async fn force_deletion(world: &World, kinds: &str) -> Result<()> {
    world.kubectl(&["delete", "-f", kinds, "--wait=false"]).await?;
    for name in world.names(&["crd"]).await? {
        if name.contains("snapshot.storage") {
            // A definition without objects may already be deleted.
            drop(world.patch(&[&name], &json!({"metadata": {"finalizers": null}})).await);
        }
    }
    Ok(())
}

async fn reported(world: &World, reason: &str) -> Result<()> {
    let report = world.reason("Degraded", "True", reason, &[]).await?;
    println!("    Degraded: {}", report["message"]);
    Ok(())
}

async fn remove_controller(world: &World) -> Result<()> {
    let component = controller_component()?;
    world.remove(&["-k", &component, "--cascade=foreground"]).await
}

async fn without_snapshotter(world: &World) -> Result<()> {
    wait_for("a controller without csi-snapshotter", PATIENCE, async || {
        expect_snapshotter(world, false).await
    })
    .await
}

/// Fails unless the controller Deployment has csi-snapshotter, or has it not.
async fn expect_snapshotter(world: &World, expected: bool) -> Result<()> {
    let words = ["deployment", "cinder-csi-controller", "-n", NAMESPACE];
    let controller = world.get(&words).await?;
    let containers = controller["spec"]["template"]["spec"]["containers"].as_array();
    let mut containers = containers.context("a controller without containers")?.iter();
    let has_snapshotter = containers.any(|container| container["name"] == "csi-snapshotter");
    ensure!(
        has_snapshotter == expected,
        "csi-snapshotter in the controller: {has_snapshotter}"
    );
    Ok(())
}

/// Takes a snapshot of a claim's volume and waits until it is ready to use.
pub async fn take(world: &World, name: &str, claim: &str, class: &str) -> Result<()> {
    let source = json!({"persistentVolumeClaimName": claim});
    let spec = json!({"volumeSnapshotClassName": class, "source": source});
    take_of_kind(world, "snapshot.storage.k8s.io/v1", "VolumeSnapshot", name, &spec).await
}

/// Creates a VolumeSnapshot or VolumeGroupSnapshot, and waits until it is ready to use.
pub async fn take_of_kind(world: &World, api: &str, kind: &str, name: &str, spec: &Value) -> Result<()> {
    let metadata = json!({"name": name, "namespace": USERS});
    let snapshot = json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec});
    world.apply(&snapshot).await?;
    let object = [kind, name, "-n", USERS];
    world
        .wait_for_field(&object, "/status/readyToUse", true)
        .await
        .map(drop)
}
