// SPDX-License-Identifier: Apache-2.0
//! Scenarios of backups and group snapshots.

use anyhow::{Context as _, Result};
use serde_json::json;
use suites::cluster::snapshots::{take, take_of_kind};
use suites::cluster::{CLASS, USERS, World, claim, from_snapshot};
use suites::expect::expect_equal;

const BACKUPS: &str = "backups";
const GROUP: &str = "VolumeGroupSnapshot";
const TOGETHER: &str = "together";

pub(crate) async fn backup_outlives_volume_and_is_restored(world: &World) -> Result<()> {
    let classes = json!({"snapshots": {"classes": [{"name": CLASS}, {"name": BACKUPS, "type": "backup"}]}});
    world.change_spec(&classes).await?;
    world.run_pod("original", None).await?;
    world.write_witness("original", "kept").await?;
    take(world, "backup", "original", BACKUPS).await?;
    let backups = world.cloud_things("backups").await?;
    expect_equal("number of backups", &backups.len(), &1)?;
    world.delete_pod_and_claim("original").await?;
    world.end_in_cloud(&["volumes", "snapshots"]).await?;

    world.start_pod_from("restored", &from_snapshot("backup")).await?;
    world.expect_witness("restored", "kept").await?;
    world.delete_pod_and_claim("restored").await?;
    world.delete("volumesnapshot", "backup").await?;
    world.nothing_left().await?;
    world.change_spec(&json!({"snapshots": {"classes": null}})).await
}

pub(crate) async fn group_snapshot_is_consistent(world: &World) -> Result<()> {
    // Only administrators can list which group types have consistent snapshots.
    let class = json!({"name": TOGETHER, "groupType": world.openstack()?.group_type()});
    let classes = json!({"snapshots": {"groupClasses": [class]}});
    world.change_spec(&classes).await?;
    let names = ["left", "right"];
    for name in names {
        let mut claim = claim(name, "Filesystem");
        claim["metadata"]["labels"] = json!({"group": "pair"});
        world.start_pod_of(name, None, &claim).await?;
    }
    for name in names {
        world.ready(name).await?;
        world.write_witness(name, name).await?;
    }
    let source = json!({"selector": {"matchLabels": {"group": "pair"}}});
    let spec = json!({"volumeGroupSnapshotClassName": TOGETHER, "source": source});
    take_of_kind(world, "groupsnapshot.storage.k8s.io/v1", GROUP, "pair", &spec).await?;
    let groups = world.cloud_things("group_snapshots").await?;
    expect_equal("number of group snapshots", &groups.len(), &1)?;
    let members = world.list(&["volumesnapshots", "-n", USERS]).await?;
    expect_equal("number of members", &members.len(), &names.len())?;
    let mut witnesses = Vec::new();
    for (number, member) in members.iter().enumerate() {
        let name = format!("copy-{number}");
        let snapshot = member["metadata"]["name"].as_str();
        let snapshot = snapshot.context("a snapshot without a name")?;
        world.start_pod_from(&name, &from_snapshot(snapshot)).await?;
        witnesses.push(world.sh(&name, "cat /data/witness").await?.trim().to_owned());
        world.delete_pod_and_claim(&name).await?;
    }
    witnesses.sort();
    expect_equal("data of the copies", &witnesses[..], &names[..])?;
    world.delete(GROUP, "pair").await?;
    world.end_in_cloud(&["group_snapshots", "snapshots"]).await?;
    world.delete_all().await?;
    world.change_spec(&json!({"snapshots": {"groupClasses": null}})).await
}
