// SPDX-License-Identifier: Apache-2.0
//! Scenarios of backups and group snapshots.

use anyhow::{Context as _, Result, ensure};
use harness::wait_for;
use serde_json::json;
use suites::cluster::{CLASS, PATIENCE, USERS, World, claim};

const BACKUPS: &str = "backups";
const GROUP: &str = "volumegroupsnapshot";
const TOGETHER: &str = "together";

pub(crate) async fn backup_outlives_volume_and_is_restored(world: &World) -> Result<()> {
    let classes = json!({"snapshots": {"classes": [{"name": CLASS}, {"name": BACKUPS, "type": "backup"}]}});
    world.patch_spec(&classes).await?;
    world.healthy().await?;
    world.start_pod("original", None).await?;
    world.ready("original").await?;
    world.sh("original", "echo kept > /data/witness && sync").await?;
    let backup = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": "backup", "namespace": USERS},
        "spec": {"volumeSnapshotClassName": BACKUPS, "source": {"persistentVolumeClaimName": "original"}},
    });
    world.cluster.apply(&backup.to_string()).await?;
    wait_for("the backup", PATIENCE, async || {
        let snapshot = world.cluster.get(&["volumesnapshot", "backup", "-n", USERS]).await?;
        ensure!(snapshot["status"]["readyToUse"] == true, "{}", snapshot["status"]);
        Ok(())
    })
    .await?;
    ensure!(world.cloud_things("backups").await?.len() == 1, "Cinder has no backup");
    world.delete_pod("original").await?;
    world.delete("pvc", "original").await?;
    wait_for("the end of the volume and of its snapshot", PATIENCE, async || {
        let volumes = world.cloud_volumes().await?;
        let snapshots = world.cloud_things("snapshots").await?;
        ensure!(
            volumes.is_empty() && snapshots.is_empty(),
            "left: {volumes:?}, {snapshots:?}"
        );
        Ok(())
    })
    .await?;

    let source = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "backup"});
    world.start_pod_from("restored", &source).await?;
    let witness = world.sh("restored", "cat /data/witness").await?;
    ensure!(witness.trim() == "kept", "the restored file holds {witness:?}");
    world.delete_pod("restored").await?;
    world.delete("pvc", "restored").await?;
    world.delete("volumesnapshot", "backup").await?;
    world.nothing_left().await?;
    world.patch_spec(&json!({"snapshots": {"classes": null}})).await?;
    world.healthy().await
}

pub(crate) async fn group_snapshot_is_consistent(world: &World) -> Result<()> {
    // Only administrators can list which group types have consistent snapshots.
    let class = json!({"name": TOGETHER, "groupType": world.openstack()?.group_type()});
    world
        .patch_spec(&json!({"snapshots": {"groupClasses": [class]}}))
        .await?;
    world.healthy().await?;
    let names = ["left", "right"];
    for name in names {
        let mut claim = claim(name, "Filesystem");
        claim["metadata"]["labels"] = json!({"group": "pair"});
        world.start_pod_of(name, None, &claim).await?;
    }
    for name in names {
        world.ready(name).await?;
        world.sh(name, &format!("echo {name} > /data/witness && sync")).await?;
    }
    let group = json!({
        "apiVersion": "groupsnapshot.storage.k8s.io/v1", "kind": "VolumeGroupSnapshot",
        "metadata": {"name": "pair", "namespace": USERS},
        "spec": {"volumeGroupSnapshotClassName": TOGETHER, "source": {"selector": {"matchLabels": {"group": "pair"}}}},
    });
    world.cluster.apply(&group.to_string()).await?;
    wait_for("the group snapshot", PATIENCE, async || {
        let group_snapshot = world.cluster.get(&[GROUP, "pair", "-n", USERS]).await?;
        ensure!(
            group_snapshot["status"]["readyToUse"] == true,
            "{}",
            group_snapshot["status"]
        );
        Ok(())
    })
    .await?;
    let groups = world.cloud_things("group_snapshots").await?;
    ensure!(groups.len() == 1, "Cinder has {groups:?}");
    let members = world.cluster.get(&["volumesnapshots", "-n", USERS]).await?;
    let members = members["items"].as_array().context("a list without items")?.clone();
    ensure!(members.len() == names.len(), "the members are {members:?}");
    let mut witnesses = Vec::new();
    for (number, member) in members.iter().enumerate() {
        let name = format!("copy-{number}");
        let snapshot = member["metadata"]["name"]
            .as_str()
            .context("a snapshot without a name")?;
        let source = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot});
        world.start_pod_from(&name, &source).await?;
        witnesses.push(world.sh(&name, "cat /data/witness").await?.trim().to_owned());
        world.delete_pod(&name).await?;
        world.delete("pvc", &name).await?;
    }
    witnesses.sort();
    ensure!(witnesses == names, "the copies hold {witnesses:?}");
    world.delete(GROUP, "pair").await?;
    wait_for("the end of the group snapshot in Cinder", PATIENCE, async || {
        for kind in ["group_snapshots", "snapshots"] {
            let remaining = world.cloud_things(kind).await?;
            ensure!(remaining.is_empty(), "left: {remaining:?}");
        }
        Ok(())
    })
    .await?;
    world.delete_all().await?;
    world.patch_spec(&json!({"snapshots": {"groupClasses": null}})).await?;
    world.healthy().await
}
