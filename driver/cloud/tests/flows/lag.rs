// SPDX-License-Identifier: Apache-2.0
//! API nodes with a lagging database: a state from before a request proves nothing about the request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cinder_cloud::{
    AttachOptions, Changes, CloudError, CloudOptions, GiB, NewBackup, NewGroupSnapshot, ServerId, VolumeStatus,
};
use openstack_sim::{Effect, Fault, GroupType, SimConfig, VolumeType};
use rstest::rstest;
use sim_network::SimNetwork;

use crate::support::{ONE, Stage, latencies, stage_with};

const LAG: Duration = Duration::from_secs(3);

/// A cloud in which all reads are [`LAG`] behind.
async fn lagging_stage() -> Stage {
    let stage = stage_with(SimConfig {
        longest_lag: 2 * LAG,
        volume_types: vec![VolumeType::new("fast"), VolumeType::new("slow")],
        group_types: vec![GroupType::consistent("together")],
        ..SimConfig::default()
    })
    .await;
    let options = CloudOptions {
        connector: Arc::new(SimNetwork::behind(&stage.sim, LAG)),
        ..stage.options()
    };
    Stage::new(stage.sim, options)
}

/// Waits until the lagging node has caught up.
async fn catch_up() {
    tokio::time::sleep(2 * LAG).await;
}

#[tokio::test(start_paused = true)]
async fn attach_and_detach_survive_lag() {
    let stage = lagging_stage().await;
    let volume = stage.create("pvc-1").await;
    let server = ONE.into();
    let options = AttachOptions::default();
    stage
        .cloud
        .attach(&volume.id, &server, options)
        .await
        .expect("attached");
    catch_up().await;
    stage.cloud.detach(&volume.id, Some(&server)).await.expect("detached");
    assert_eq!(stage.sim.state().volumes[0].status.as_str(), "available");
}

/// After the attachment every API node shows the state from before it.
#[rstest]
#[case::accepted(false, Some(ONE))]
#[case::not_found(true, Some(ONE))]
#[case::any_server(false, None)]
#[tokio::test(start_paused = true)]
async fn detach_after_attach_survives_lag(#[case] is_not_found: bool, #[case] server: Option<&str>) {
    let stage = stage_with(SimConfig {
        longest_lag: 2 * LAG,
        latencies: latencies(|latencies| latencies.detach = 2 * LAG),
        ..SimConfig::default()
    })
    .await;
    let network = SimNetwork::of(&stage.sim);
    let options = CloudOptions {
        connector: Arc::new(network.clone()),
        ..stage.options()
    };
    let stage = Stage::new(stage.sim, options);
    let volume = stage.create("pvc-1").await;
    catch_up().await;
    stage
        .cloud
        .attach(&volume.id, &ONE.into(), AttachOptions::default())
        .await
        .expect("attached");
    network.set_lag(&stage.sim, LAG);
    if is_not_found {
        let unknown = Fault::on("detach_volume").times(1).effect(Effect::status(404));
        stage.sim.fault(unknown).expect("a rule");
    }
    let server = server.map(ServerId::new);
    stage.cloud.detach(&volume.id, server.as_ref()).await.expect("detached");
    assert_eq!(stage.sim.state().volumes[0].status.as_str(), "available");
}

#[tokio::test(start_paused = true)]
async fn expand_survives_lag() {
    let stage = lagging_stage().await;
    let volume = stage.create("pvc-1").await;
    catch_up().await;
    let size = GiB::new(2).expect("a size");
    let grown = stage.cloud.expand_volume(&volume.id, size).await.expect("grown");
    assert_eq!(grown.size, size);
}

#[tokio::test(start_paused = true)]
async fn retype_survives_lag() {
    let stage = lagging_stage().await;
    let volume = stage.create("pvc-1").await;
    catch_up().await;
    let changes = Changes {
        volume_type: Some("slow".to_owned()),
        ..Changes::default()
    };
    let modified = stage.cloud.modify_volume(&volume.id, &changes).await.expect("modified");
    assert_eq!(modified.volume_type.as_deref(), Some("slow"));
}

#[tokio::test(start_paused = true)]
async fn failed_retype_is_reported_despite_lag() {
    let stage = lagging_stage().await;
    let volume = stage.create("pvc-1").await;
    catch_up().await;
    let fails = Fault::on("retype_volume").times(1).effect(Effect::work_fails());
    stage.sim.fault(fails).expect("a rule");
    let changes = Changes {
        volume_type: Some("slow".to_owned()),
        ..Changes::default()
    };
    let error = stage.cloud.modify_volume(&volume.id, &changes).await;
    let error = error.expect_err("the work fails");
    assert!(matches!(error, CloudError::RetypeFailed { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn deletion_of_failed_volume_survives_lag() {
    let stage = lagging_stage().await;
    let volume = stage.create("pvc-1").await;
    let is_set = stage
        .sim
        .set_volume_status(volume.id.as_str(), openstack_sim::VolumeStatus::Error);
    assert!(is_set);
    catch_up().await;
    stage.cloud.delete_volume(&volume.id).await.expect("deleted");
    assert!(stage.sim.state().volumes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn backup_deletion_survives_lag() {
    let stage = lagging_stage().await;
    let volume = stage.create("pvc-1").await;
    let new = NewBackup {
        name: "b-1".to_owned(),
        volume_id: volume.id.clone(),
        incremental: false,
        availability_zone: None,
        description: String::new(),
        metadata: BTreeMap::new(),
    };
    let backup = stage.cloud.create_backup(new).await.expect("a backup");
    catch_up().await;
    stage
        .cloud
        .delete_point_in_time(backup.id.as_str())
        .await
        .expect("deleted");
    assert!(stage.sim.state().backups.is_empty());
}

#[tokio::test(start_paused = true)]
async fn group_snapshot_deletion_survives_lag() {
    let stage = lagging_stage().await;
    let volume = stage.create("pvc-1").await;
    catch_up().await;
    let new = NewGroupSnapshot {
        name: "groupsnapshot-1".to_owned(),
        volumes: BTreeSet::from([volume.id.clone()]),
        group_type: Some("together".to_owned()),
        cluster: "test".to_owned(),
    };
    let taken = stage.cloud.create_group_snapshot(new).await.expect("taken");
    catch_up().await;
    stage
        .cloud
        .delete_group_snapshot(&taken.id, &BTreeSet::new())
        .await
        .expect("deleted");
    let state = stage.sim.state();
    assert_eq!((state.groups.len(), state.snapshots.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn failed_attachment_is_reported_despite_lag() {
    let stage = lagging_stage().await;
    let volume = stage.create("pvc-1").await;
    let fails = Fault::on("attach_volume").times(1).effect(Effect::work_fails());
    stage.sim.fault(fails).expect("a rule");
    let error = stage
        .cloud
        .attach(&volume.id, &ONE.into(), AttachOptions::default())
        .await;
    let error = error.expect_err("Nova gives it up");
    assert!(matches!(error, CloudError::AttachFailed { .. }), "{error}");
    let failed = stage.cloud.volume(&volume.id).await.expect("a look").expect("a volume");
    assert_eq!(failed.status, VolumeStatus::Available);
}

/// An API node that does not know a new volume answers 404 to its deletion.
#[tokio::test(start_paused = true)]
async fn new_volume_is_deleted_despite_lag() {
    let stage = stage_with(SimConfig::default()).await;
    catch_up().await;
    let volume = stage.create("pvc-1").await;
    let denied = Fault::on("delete_volume").times(1).effect(Effect::status(404));
    stage.sim.fault(denied).expect("a rule");
    stage.cloud.delete_volume(&volume.id).await.expect("deleted");
    assert!(stage.sim.state().volumes.is_empty());
    assert_eq!(stage.sim.count("delete_volume"), 2);
}

#[tokio::test(start_paused = true)]
async fn old_missing_volume_needs_one_request() {
    let stage = stage_with(SimConfig::default()).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let id = stage.sim.sources().uuid().to_string().as_str().into();
    stage.cloud.delete_volume(&id).await.expect("missing");
    assert_eq!(stage.sim.count("delete_volume"), 1);
}
