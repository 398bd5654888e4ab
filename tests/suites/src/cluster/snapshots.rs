// SPDX-License-Identifier: Apache-2.0
//! Scenarios of snapshots, clones, and the installation and removal of their APIs.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use harness::{Cluster, wait_for, workspace_root};
use serde_json::{Value, json};

use super::{NAMESPACE, PATIENCE, USERS, WITHIN, World};

/// Default snapshot class of the operator.
const CLASS: &str = "cinder";
const NOT_UTF8: &str = "a path that is not UTF-8";

pub async fn snapshots_work_after_kinds_are_installed(world: &World) -> Result<()> {
    ensure!(
        !has_snapshotter(world).await?,
        "csi-snapshotter runs without the kinds that it works on"
    );

    let crds = world.cluster.tools().path("snapshot-crds")?.to_owned();
    let crds = crds.to_str().context(NOT_UTF8)?;
    world.cluster.kubectl(&["apply", "-f", crds]).await?;
    // In mode Auto, new kinds are considered only after an hour.
    world.patch_spec(&json!({"snapshots": {"mode": "Enabled"}})).await?;
    wait_for("the event about the snapshot-controller", PATIENCE, async || {
        let words = [
            "get",
            "events",
            "-A",
            "--field-selector",
            "reason=SnapshotControllerUnavailable",
            "-o",
            "name",
        ];
        let events = world.cluster.kubectl(&words).await?;
        ensure!(!events.trim().is_empty(), "there is none");
        Ok(())
    })
    .await?;
    install_controller(&world.cluster).await?;
    world.healthy().await?;
    ensure!(has_snapshotter(world).await?, "csi-snapshotter does not run");
    for kind in ["volumesnapshotclass", "volumegroupsnapshotclass"] {
        let class = world.cluster.get(&[kind, CLASS]).await?;
        ensure!(
            class["driver"] == super::DRIVER && class["deletionPolicy"] == "Delete",
            "{kind} {CLASS} is {class}"
        );
    }
    Ok(())
}

/// Installs the snapshot-controller, as an administrator does.
pub async fn install_controller(cluster: &Cluster) -> Result<()> {
    let component = controller_component();
    cluster
        .kubectl(&["apply", "-k", component.to_str().context(NOT_UTF8)?])
        .await
        .map(drop)
}

fn controller_component() -> PathBuf {
    workspace_root().join("config/snapshot-controller")
}

pub async fn restored_volume_has_data_of_snapshot(world: &World) -> Result<()> {
    world.start_pod("origin", None).await?;
    world.ready("origin").await?;
    world.sh("origin", "echo then > /data/witness && sync").await?;
    take(world, "moment", "origin").await?;
    world.sh("origin", "echo now > /data/witness && sync").await?;

    let source = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "moment"});
    world.start_pod_from("restored", &source).await?;
    let witness = world.sh("restored", "cat /data/witness").await?;
    ensure!(witness.trim() == "then", "the restored file holds {witness:?}");
    let witness = world.sh("origin", "cat /data/witness").await?;
    ensure!(witness.trim() == "now", "the original holds {witness:?}");

    world.delete_pod("restored").await?;
    world.delete_claim("restored").await?;
    let words = ["delete", "volumesnapshot", "moment", "-n", USERS, WITHIN];
    world.cluster.kubectl_within(PATIENCE, &words).await?;
    wait_for("the end of the snapshot in the cloud", PATIENCE, async || {
        let remaining = world.cloud_things("snapshots").await?;
        ensure!(remaining.is_empty(), "the cloud has {remaining:?}");
        Ok(())
    })
    .await?;
    world.delete_pod_and_volume("origin").await
}

pub async fn clone_has_data_of_source(world: &World) -> Result<()> {
    world.start_pod("source", None).await?;
    world.ready("source").await?;
    world.sh("source", "echo cloned > /data/witness && sync").await?;

    let source = json!({"kind": "PersistentVolumeClaim", "name": "source"});
    world.start_pod_from("clone", &source).await?;
    let witness = world.sh("clone", "cat /data/witness").await?;
    ensure!(witness.trim() == "cloned", "the clone's file holds {witness:?}");
    world.sh("clone", "echo changed > /data/witness && sync").await?;
    let witness = world.sh("source", "cat /data/witness").await?;
    ensure!(witness.trim() == "cloned", "the source holds {witness:?}");

    world.delete_pod("clone").await?;
    world.delete_claim("clone").await?;
    world.delete_pod_and_volume("source").await
}

/// Deletes the kinds twice: by force with a snapshot, and without one.
pub async fn forced_deletion_of_snapshot_kinds_is_reported(world: &World) -> Result<()> {
    let crds = world.cluster.tools().path("snapshot-crds")?.to_owned();
    let crds = crds.to_str().context(NOT_UTF8)?;
    let disabled = json!({"snapshots": {"mode": "Disabled"}});
    let enabled = json!({"snapshots": {"mode": "Enabled"}});
    world.start_pod("origin", None).await?;
    world.ready("origin").await?;
    take(world, "lost", "origin").await?;
    world.patch_spec(&disabled).await?;
    reported(world, "SnapshotsInUse").await?;
    ensure!(
        has_snapshotter(world).await?,
        "csi-snapshotter was removed before its contents"
    );
    world.patch_spec(&enabled).await?;
    world.healthy().await?;

    remove_controller(world).await?;
    force_deletion(world, crds).await?;
    reported(world, "SnapshotCRDsMissing").await?;
    without_snapshotter(world).await?;
    world.condition("Available", "True", |_| true).await?;
    world.start_pod("other", None).await?;
    world.ready("other").await?;
    world.delete_pod("other").await?;
    world.delete_claim("other").await?;

    // The API server still stores the VolumeSnapshotContent.
    world.cluster.kubectl(&["apply", "-f", crds]).await?;
    install_controller(&world.cluster).await?;
    wait_for("the end of the snapshot in the cloud", PATIENCE, async || {
        let words = [
            "delete",
            "volumesnapshot",
            "lost",
            "-n",
            USERS,
            "--ignore-not-found",
            "--wait=false",
        ];
        world.cluster.kubectl(&words).await?;
        let remaining = world.cloud_things("snapshots").await?;
        ensure!(remaining.is_empty(), "the cloud has {remaining:?}");
        Ok(())
    })
    .await?;
    world.healthy().await?;
    world.delete_pod_and_volume("origin").await?;

    world.patch_spec(&disabled).await?;
    without_snapshotter(world).await?;
    remove_controller(world).await?;
    let words = ["delete", "-f", crds, WITHIN];
    world.cluster.kubectl_within(PATIENCE, &words).await?;
    world.patch_spec(&json!({"snapshots": null})).await?;
    world.healthy().await?;
    ensure!(!has_snapshotter(world).await?, "csi-snapshotter runs without its kinds");
    Ok(())
}

/// Deletes the kinds of snapshots without waiting for their objects.
async fn force_deletion(world: &World, crds: &str) -> Result<()> {
    world.cluster.kubectl(&["delete", "-f", crds, "--wait=false"]).await?;
    let names = world.cluster.kubectl(&["get", "crd", "-o", "name"]).await?;
    for name in names.lines().filter(|name| name.contains("snapshot.storage")) {
        let patch = r#"{"metadata":{"finalizers":null}}"#;
        // A definition without objects may already be deleted.
        drop(
            world
                .cluster
                .kubectl(&["patch", name, "--type=merge", "-p", patch])
                .await,
        );
    }
    Ok(())
}

async fn reported(world: &World, reason: &str) -> Result<()> {
    let is_reported = |condition: &Value| condition["reason"] == reason;
    let report = world.condition("Degraded", "True", is_reported).await?;
    println!("    Degraded: {}", report["message"]);
    Ok(())
}

async fn remove_controller(world: &World) -> Result<()> {
    let component = controller_component();
    let component = component.to_str().context(NOT_UTF8)?;
    let words = ["delete", "-k", component, "--cascade=foreground", WITHIN];
    world.cluster.kubectl_within(PATIENCE, &words).await.map(drop)
}

async fn without_snapshotter(world: &World) -> Result<()> {
    wait_for("a controller without csi-snapshotter", PATIENCE, async || {
        ensure!(
            !has_snapshotter(world).await?,
            "csi-snapshotter runs without the kinds that it works on"
        );
        Ok(())
    })
    .await
}

/// Whether the controller Deployment has csi-snapshotter.
async fn has_snapshotter(world: &World) -> Result<bool> {
    let words = ["deployment", "cinder-csi-controller", "-n", NAMESPACE];
    let controller = world.cluster.get(&words).await?;
    let containers = controller["spec"]["template"]["spec"]["containers"]
        .as_array()
        .context("a controller without containers")?;
    Ok(containers
        .iter()
        .any(|container| container["name"] == "csi-snapshotter"))
}

/// Takes a snapshot of a claim's volume and waits until it is ready to use.
pub async fn take(world: &World, name: &str, claim: &str) -> Result<()> {
    let snapshot = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": name, "namespace": USERS},
        "spec": {"volumeSnapshotClassName": CLASS, "source": {"persistentVolumeClaimName": claim}},
    });
    world.cluster.apply(&snapshot.to_string()).await?;
    wait_for("the snapshot", PATIENCE, async || {
        let snapshot_object = world.cluster.get(&["volumesnapshot", name, "-n", USERS]).await?;
        ensure!(
            snapshot_object["status"]["readyToUse"] == true,
            "{}",
            snapshot_object["status"]
        );
        Ok(())
    })
    .await
}
