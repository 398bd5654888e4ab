// SPDX-License-Identifier: Apache-2.0
//! Snapshots, clones, and the APIs for them that come and go.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use harness::{Cluster, wait_for, workspace_root};
use serde_json::json;

use super::{NAMESPACE, PATIENCE, USERS, WITHIN, World};

/// The snapshot class that the operator makes when nobody names one.
const CLASS: &str = "cinder";
const NOT_UTF8: &str = "a path that is not UTF-8";

pub async fn snapshots_can_be_taken_from_when_their_kinds_are_installed(world: &World) -> Result<()> {
    ensure!(
        !has_snapshotter(world).await?,
        "csi-snapshotter runs without the kinds that it works on"
    );

    let crds = world.cluster.tools().path("snapshot-crds")?.to_owned();
    let crds = crds.to_str().context(NOT_UTF8)?;
    world.cluster.kubectl(&["apply", "-f", crds]).await?;
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

pub async fn a_snapshot_becomes_a_volume_with_the_data_of_its_moment(world: &World) -> Result<()> {
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
        let left = world.cloud_things("snapshots").await?;
        ensure!(left.is_empty(), "the cloud has {left:?}");
        Ok(())
    })
    .await?;
    world.delete_pod_and_volume("origin").await
}

pub async fn a_clone_has_the_data_of_its_source(world: &World) -> Result<()> {
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

pub async fn snapshots_are_given_up_when_their_kinds_are_removed(world: &World) -> Result<()> {
    let component = controller_component();
    let component = component.to_str().context(NOT_UTF8)?;
    let words = ["delete", "-k", component, "--cascade=foreground", WITHIN];
    world.cluster.kubectl_within(PATIENCE, &words).await?;
    let crds = world.cluster.tools().path("snapshot-crds")?.to_owned();
    let crds = crds.to_str().context(NOT_UTF8)?;
    world
        .cluster
        .kubectl_within(PATIENCE, &["delete", "-f", crds, WITHIN])
        .await?;
    wait_for("a controller without csi-snapshotter", PATIENCE, async || {
        ensure!(
            !has_snapshotter(world).await?,
            "csi-snapshotter runs without the kinds that it works on"
        );
        Ok(())
    })
    .await?;
    world.healthy().await
}

/// Whether the controller is to have csi-snapshotter beside the driver.
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

/// Takes a snapshot of a claim's volume and waits until it can be used.
pub async fn take(world: &World, name: &str, claim: &str) -> Result<()> {
    let snapshot = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": name, "namespace": USERS},
        "spec": {"volumeSnapshotClassName": CLASS, "source": {"persistentVolumeClaimName": claim}},
    });
    world.cluster.apply(&snapshot.to_string()).await?;
    wait_for("the snapshot", PATIENCE, async || {
        let found = world.cluster.get(&["volumesnapshot", name, "-n", USERS]).await?;
        ensure!(found["status"]["readyToUse"] == true, "{}", found["status"]);
        Ok(())
    })
    .await
}
