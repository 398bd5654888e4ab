//! Snapshots, clones, and the APIs for them that come and go.

use anyhow::{Context as _, Result, ensure};
use harness::wait_for;
use serde_json::{Value, json};

use crate::upkeep::no_operands;
use crate::world::{NAMESPACE, PATIENCE, USERS, WITHIN, World, claim};

/// The Deployment of the snapshot-controller that the operator runs.
const SNAPSHOT_CONTROLLER: &str = "cinder-csi-snapshot-controller";
/// The snapshot class that the operator makes when nobody names one.
const CLASS: &str = "cinder";

pub(crate) async fn snapshots_can_be_taken_from_when_their_kinds_are_installed(world: &World) -> Result<()> {
    world
        .condition("SnapshotsReady", "True", |found| found["reason"] == "NotInstalled")
        .await?;
    ensure!(
        !has_snapshotter(world).await?,
        "csi-snapshotter runs without the kinds that it works on"
    );

    let crds = world.cluster.tools().path("snapshot-crds")?.to_owned();
    let crds = crds.to_str().context("the path of the CRDs is not UTF-8")?;
    world.cluster.kubectl(&["apply", "-f", crds]).await?;
    world
        .condition("SnapshotsReady", "False", |found| {
            found["reason"] == "ControllerMissing"
        })
        .await?;
    world
        .patch_spec(&json!({"snapshots": {"controller": "Deploy"}}))
        .await?;
    world
        .condition("SnapshotsReady", "True", |found| found["reason"] == "AsExpected")
        .await?;
    world.healthy().await?;
    ensure!(has_snapshotter(world).await?, "csi-snapshotter does not run");
    for kind in ["volumesnapshotclass", "volumegroupsnapshotclass"] {
        let class = world.cluster.get(&[kind, CLASS]).await?;
        ensure!(
            class["driver"] == crate::world::DRIVER && class["deletionPolicy"] == "Delete",
            "{kind} {CLASS} is {class}"
        );
    }
    Ok(())
}

pub(crate) async fn a_snapshot_becomes_a_volume_with_the_data_of_its_moment(world: &World) -> Result<()> {
    world.start_pod("origin", None).await?;
    world.ready("origin").await?;
    world.sh("origin", "echo then > /data/witness && sync").await?;
    take(world, "moment", "origin").await?;
    world.sh("origin", "echo now > /data/witness && sync").await?;

    start_pod_from(
        world,
        "restored",
        &json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "moment"}),
    )
    .await?;
    let witness = world.sh("restored", "cat /data/witness").await?;
    ensure!(witness.trim() == "then", "the restored file holds {witness:?}");
    let witness = world.sh("origin", "cat /data/witness").await?;
    ensure!(witness.trim() == "now", "the original holds {witness:?}");

    world.delete_pod("restored").await?;
    world.delete_claim("restored").await?;
    let words = ["delete", "volumesnapshot", "moment", "-n", USERS, WITHIN];
    world.cluster.kubectl_within(PATIENCE, &words).await?;
    wait_for("the end of the snapshot in the cloud", PATIENCE, async || {
        let state = world.cluster.simulator()?.state().await?;
        ensure!(
            state["snapshots"].as_array().is_some_and(Vec::is_empty),
            "the cloud has {}",
            state["snapshots"]
        );
        Ok(())
    })
    .await?;
    world.delete_pod_and_volume("origin").await
}

pub(crate) async fn a_clone_has_the_data_of_its_source(world: &World) -> Result<()> {
    world.start_pod("source", None).await?;
    world.ready("source").await?;
    world.sh("source", "echo cloned > /data/witness && sync").await?;

    start_pod_from(
        world,
        "clone",
        &json!({"kind": "PersistentVolumeClaim", "name": "source"}),
    )
    .await?;
    let witness = world.sh("clone", "cat /data/witness").await?;
    ensure!(witness.trim() == "cloned", "the clone's file holds {witness:?}");
    world.sh("clone", "echo changed > /data/witness && sync").await?;
    let witness = world.sh("source", "cat /data/witness").await?;
    ensure!(witness.trim() == "cloned", "the source holds {witness:?}");

    world.delete_pod("clone").await?;
    world.delete_claim("clone").await?;
    world.delete_pod_and_volume("source").await
}

pub(crate) async fn a_removal_waits_for_a_snapshot_and_says_which(world: &World) -> Result<()> {
    world.healthy().await?;
    world.start_pod("pictured", None).await?;
    world.ready("pictured").await?;
    take(world, "picture", "pictured").await?;
    let snapshot = world.cluster.get(&["volumesnapshot", "picture", "-n", USERS]).await?;
    let content = snapshot["status"]["boundVolumeSnapshotContentName"]
        .as_str()
        .context("the snapshot is not bound")?
        .to_owned();
    // The volume cannot go before its snapshot; retained, it holds nothing up.
    let claim = world.cluster.get(&["pvc", "pictured", "-n", USERS]).await?;
    let volume = claim["spec"]["volumeName"]
        .as_str()
        .context("the claim is not bound")?
        .to_owned();
    reclaim(world, &volume, "Retain").await?;
    world.delete_pod("pictured").await?;
    world.delete_claim("pictured").await?;

    let removed = json!({"managementState": "Removed", "deletion": {"ignoreRetained": true}});
    world.patch_spec(&removed).await?;
    let blocked = world
        .condition("DeletionBlocked", "True", |condition| {
            condition["reason"] == "SnapshotsExist"
        })
        .await?;
    println!("    DeletionBlocked: {}", blocked["message"]);
    ensure!(
        blocked["message"].as_str().is_some_and(|text| text.contains(&content)),
        "{blocked}"
    );
    let blockers = world.driver().await?["status"]["deletion"]["blockers"].clone();
    ensure!(
        blockers == json!([{"kind": "VolumeSnapshotContent", "count": 1, "names": [content]}]),
        "{blockers}"
    );

    // The driver is there for it to go.
    let words = ["delete", "volumesnapshot", "picture", "-n", USERS, WITHIN];
    world.cluster.kubectl_within(PATIENCE, &words).await?;
    no_operands(world).await?;
    let left = world.cloud_volumes().await?;
    ensure!(left.len() == 1, "the cloud has {left:?}");

    world.patch_spec(&json!({"deletion": null})).await?;
    world.ask_for_driver().await?;
    reclaim(world, &volume, "Delete").await?;
    world.nothing_left().await
}

pub(crate) async fn snapshots_are_given_up_when_their_kinds_are_removed(world: &World) -> Result<()> {
    world
        .patch_spec(&json!({"snapshots": {"controller": "Detect"}}))
        .await?;
    wait_for("the end of the snapshot-controller", PATIENCE, async || {
        let words = ["get", "deployments", "-n", NAMESPACE, "-o", "name"];
        let left = world.cluster.kubectl(&words).await?;
        ensure!(!left.contains(SNAPSHOT_CONTROLLER), "left: {left}");
        Ok(())
    })
    .await?;
    let crds = world.cluster.tools().path("snapshot-crds")?.to_owned();
    let crds = crds.to_str().context("the path of the CRDs is not UTF-8")?;
    world
        .cluster
        .kubectl_within(PATIENCE, &["delete", "-f", crds, WITHIN])
        .await?;
    world
        .condition("SnapshotsReady", "True", |found| found["reason"] == "NotInstalled")
        .await?;
    world.healthy().await?;
    ensure!(!has_snapshotter(world).await?, "csi-snapshotter still runs");
    Ok(())
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

/// Says what becomes of a volume that no claim has.
async fn reclaim(world: &World, volume: &str, policy: &str) -> Result<()> {
    let patch = json!({"spec": {"persistentVolumeReclaimPolicy": policy}}).to_string();
    let words = ["patch", "pv", volume, "--type=merge", "-p", &patch];
    world.cluster.kubectl(&words).await.map(drop)
}

/// Takes a snapshot of a claim's volume and waits until it can be used.
pub(crate) async fn take(world: &World, name: &str, claim: &str) -> Result<()> {
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

/// A claim with the data of something else, and a pod with it that is Ready.
async fn start_pod_from(world: &World, name: &str, source: &Value) -> Result<()> {
    let mut claim = claim(name, "Filesystem");
    claim["spec"]["dataSource"] = source.clone();
    world.start_pod_of(name, None, &claim).await?;
    world.ready(name).await
}
