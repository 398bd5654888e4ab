// SPDX-License-Identifier: Apache-2.0
//! Creation, adoption and deletion of snapshots.

use std::collections::BTreeMap;
use std::time::Duration;

use cinder_cloud::{
    AttachOptions, CallerLiveness, CloudError, NewSnapshot, PointInTime, ServerId, SnapshotStatus, Source, Volume,
    VolumeId,
};
use openstack_sim::{Effect, Fault, Quota, SimConfig, When};

use crate::support::{NOTHING, ONE, Stage, latencies, new, stage, stage_with, tick};

fn snapshot(name: &str, volume: &Volume) -> NewSnapshot {
    NewSnapshot {
        name: name.to_owned(),
        volume_id: volume.id.clone(),
        force: true,
        description: "made by a test".to_owned(),
        metadata: BTreeMap::from([("cinder.csi.openstack.org/cluster".to_owned(), "test".to_owned())]),
    }
}

fn names(stage: &Stage) -> Vec<String> {
    let mut names: Vec<String> = stage
        .sim
        .state()
        .snapshots
        .into_iter()
        .map(|snapshot| snapshot.name.unwrap_or_default())
        .collect();
    names.sort();
    names
}

#[tokio::test(start_paused = true)]
async fn snapshot_is_created_once_and_adopted() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let first = stage
        .cloud
        .create_snapshot(snapshot("snap-1", &volume))
        .await
        .expect("made");
    assert_eq!(first.status, SnapshotStatus::Available);
    stage.sim.clear_log();
    let second = stage
        .cloud
        .create_snapshot(snapshot("snap-1", &volume))
        .await
        .expect("found");
    assert_eq!(second.id, first.id);
    assert_eq!(stage.operations(), ["list_snapshots_detail"]);
}

#[tokio::test(start_paused = true)]
async fn snapshot_names_are_compared_exactly() {
    let stage = stage().await;
    let (one, two) = (stage.create("pvc-1").await, stage.create("pvc-2").await);
    let longer = stage.cloud.create_snapshot(snapshot("snap-10", &one)).await;
    let shorter = stage.cloud.create_snapshot(snapshot("snap-1", &one)).await;
    assert_ne!(longer.expect("made").id, shorter.expect("made").id);
    let error = stage
        .cloud
        .create_snapshot(snapshot("snap-1", &two))
        .await
        .expect_err("taken");
    assert!(matches!(error, CloudError::SnapshotExists { .. }), "{error:?}");
    assert!(error.to_string().contains(one.id.as_str()), "{error}");
}

#[tokio::test(start_paused = true)]
async fn snapshot_in_use_requires_force_issue_1812() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    stage
        .cloud
        .attach(&volume.id, &ServerId::new(ONE), AttachOptions::default())
        .await
        .expect("attached");
    let careful = NewSnapshot {
        force: false,
        ..snapshot("snap-1", &volume)
    };
    let error = stage.cloud.create_snapshot(careful).await.expect_err("in use");
    assert!(matches!(error, CloudError::SnapshotRefused { .. }), "{error:?}");
    assert!(error.to_string().contains("force-create"), "{error}");
    stage
        .cloud
        .create_snapshot(snapshot("snap-1", &volume))
        .await
        .expect("cut");
}

#[tokio::test(start_paused = true)]
async fn failed_snapshot_is_removed_and_reported() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let fails = Effect::work_fails().message("the backend has no room for it");
    stage
        .sim
        .fault(Fault::on("create_snapshot").times(1).effect(fails))
        .expect("rule");
    let error = stage
        .cloud
        .create_snapshot(snapshot("snap-1", &volume))
        .await
        .expect_err("failed");
    assert!(
        matches!(&error, CloudError::SnapshotFailed { removed: true, status, .. } if status == "error"),
        "{error:?}"
    );
    assert!(names(&stage).is_empty());
    stage
        .cloud
        .create_snapshot(snapshot("snap-1", &volume))
        .await
        .expect("made");
}

#[tokio::test(start_paused = true)]
async fn only_own_failed_snapshot_is_recreated() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.snapshot = Duration::from_millis(700)),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    for (metadata, remade) in [("test", true), ("another cluster", false)] {
        let name = format!("snap-{metadata}");
        stage
            .sim
            .fault(Fault::on("create_snapshot").times(1).effect(Effect::work_fails()))
            .expect("rule");
        let mut first = snapshot(&name, &volume);
        first
            .metadata
            .insert("cinder.csi.openstack.org/cluster".to_owned(), metadata.to_owned());
        // The process is killed right after its request.
        let killed = tokio::time::timeout(Duration::from_millis(100), stage.cloud.create_snapshot(first)).await;
        assert!(killed.is_err(), "{killed:?}");
        let failed_id = stage.sim.state().snapshots.last().map(|snapshot| snapshot.id.clone());
        assert!(stage.sim.settled(Duration::from_secs(5)).await);
        stage.sim.clear_faults();
        let again = stage.cloud.create_snapshot(snapshot(&name, &volume)).await;
        match again {
            Ok(created) => assert!(remade && failed_id.is_some_and(|id| id != created.id.as_str())),
            Err(error) => assert!(
                !remade && matches!(error, CloudError::SnapshotExists { .. }),
                "{error:?}"
            ),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lost_answer_creates_no_second_snapshot() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    stage
        .sim
        .fault(Fault::on("create_snapshot").times(1).effect(Effect::cut(When::After)))
        .expect("rule");
    stage
        .cloud
        .create_snapshot(snapshot("snap-1", &volume))
        .await
        .expect("found by name");
    assert_eq!((names(&stage).len(), stage.sim.count("create_snapshot")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn exhausted_snapshot_quota_is_reported() {
    let stage = stage_with(SimConfig {
        quota: Quota {
            snapshots: 0,
            ..Quota::default()
        },
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    let error = stage
        .cloud
        .create_snapshot(snapshot("snap-1", &volume))
        .await
        .expect_err("no quota");
    assert!(matches!(error, CloudError::Quota(_)), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn snapshot_requires_existing_volume() {
    let stage = stage().await;
    let mut nothing = stage.create("pvc-1").await;
    for id in [NOTHING, "no-uuid"] {
        nothing.id = VolumeId::new(id);
        let error = stage
            .cloud
            .create_snapshot(snapshot("snap-1", &nothing))
            .await
            .expect_err("no volume");
        assert!(matches!(error, CloudError::NotFound { .. }), "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn delayed_snapshot_requires_waiting_caller() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.delete = Duration::from_millis(300)),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    for (is_awaited, creations) in [(false, 1), (true, 2)] {
        let create = || stage.cloud.create_snapshot(snapshot("snap-1", &volume));
        let earlier = create().await.expect("made").id;
        let (deleted, created) = tokio::join!(
            stage.cloud.delete_point_in_time(earlier.as_str()),
            // Waits until the deletion is in progress.
            async {
                while stage.sim.count("delete_snapshot") == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                CallerLiveness::new(move || is_awaited).during(create()).await
            }
        );
        deleted.expect("deleted");
        assert_eq!(stage.sim.count("create_snapshot"), creations, "{created:?}");
        match created {
            Ok(created) => assert!(is_awaited && created.id != earlier, "{created:?}"),
            Err(error) => assert!(!is_awaited && matches!(error, CloudError::Unawaited(_)), "{error:?}"),
        }
        stage.sim.clear_log();
    }
}

#[tokio::test(start_paused = true)]
async fn snapshot_deletion_is_awaited_issue_2294() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.delete = Duration::from_millis(300)),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    let created = stage
        .cloud
        .create_snapshot(snapshot("snap-1", &volume))
        .await
        .expect("made");
    stage
        .cloud
        .delete_point_in_time(created.id.as_str())
        .await
        .expect("deleted");
    assert!(names(&stage).is_empty());
    for id in [created.id.as_str(), NOTHING, "no-uuid"] {
        stage.cloud.delete_point_in_time(id).await.expect("gone already");
        assert_eq!(stage.cloud.point_in_time(id).await.expect("a look"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn failed_snapshot_deletion_is_reported() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let created = stage
        .cloud
        .create_snapshot(snapshot("snap-1", &volume))
        .await
        .expect("made");
    stage
        .sim
        .fault(Fault::on("delete_snapshot").times(1).effect(Effect::work_fails()))
        .expect("rule");
    for _ in 0..2 {
        let error = stage
            .cloud
            .delete_point_in_time(created.id.as_str())
            .await
            .expect_err("error_deleting");
        assert!(
            matches!(&error, CloudError::SnapshotFailed { status, .. } if status == "error_deleting"),
            "{error:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn dependents_prevent_deletion_and_are_named() {
    let stage = stage_with(SimConfig {
        clones_hold_sources: true,
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    let created = stage
        .cloud
        .create_snapshot(snapshot("snap-1", &volume))
        .await
        .expect("made");
    let copy = |name: &str, source| cinder_cloud::NewVolume {
        source: Some(source),
        ..new(name)
    };
    let restored = copy("restored", Source::PointInTime(created.id.to_string()));
    let restored = stage.cloud.create_volume(restored).await.expect("a copy").volume;
    let error = stage
        .cloud
        .delete_point_in_time(created.id.as_str())
        .await
        .expect_err("needed");
    assert!(matches!(error, CloudError::StillNeeded { .. }), "{error:?}");
    assert!(error.to_string().contains(restored.id.as_str()), "{error}");

    let source = stage.create("pvc-2").await;
    let clone = copy("clone", Source::Volume(source.id.clone()));
    let clone = stage.cloud.create_volume(clone).await.expect("a clone").volume;
    let error = stage.cloud.delete_volume(&source.id).await.expect_err("needed");
    assert!(matches!(error, CloudError::StillNeeded { .. }), "{error:?}");
    assert!(error.to_string().contains(clone.id.as_str()), "{error}");

    // Sidecars repeat a rejected call.
    stage.sim.clear_log();
    stage.cloud.delete_volume(&source.id).await.expect_err("needed");
    let error = stage.cloud.delete_point_in_time(created.id.as_str()).await;
    let error = error.expect_err("needed");
    assert!(error.to_string().contains(restored.id.as_str()), "{error}");
    let lists = stage.sim.log();
    let lists = lists.iter().filter(|entry| entry.operation == "list_volumes_detail");
    let whole = lists.filter(|entry| !entry.path.contains('?'));
    assert_eq!(whole.count(), 0, "the project was listed once for each");
}

#[tokio::test(start_paused = true)]
async fn snapshots_prevent_volume_deletion_issue_2181() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let created = stage
        .cloud
        .create_snapshot(snapshot("snap-1", &volume))
        .await
        .expect("made");
    let error = stage.cloud.delete_volume(&volume.id).await.expect_err("has a snapshot");
    assert!(matches!(error, CloudError::VolumeHasDependents { .. }), "{error:?}");
    for part in ["snap-1", created.id.as_str()] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    let found = stage.cloud.point_in_time(created.id.as_str()).await.expect("a look");
    assert_eq!(found, Some(PointInTime::Snapshot(created)));
}

#[tokio::test(start_paused = true)]
async fn snapshot_deletion_survives_lagging_node() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.delete = Duration::from_secs(5)),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    let created = stage.cloud.create_snapshot(snapshot("snap-1", &volume)).await;
    let created = created.expect("made");
    let id = created.id.as_str();
    stage.sim.clear_log();
    let lag = async {
        while stage.sim.count("delete_snapshot") == 0 {
            tick().await;
        }
        stage
            .sim
            .set_snapshot_status(id, openstack_sim::SnapshotStatus::Available);
        let polls = stage.sim.count("get_snapshot");
        while stage.sim.count("get_snapshot") == polls {
            tick().await;
        }
        stage
            .sim
            .set_snapshot_status(id, openstack_sim::SnapshotStatus::Deleting);
    };
    let (deleted, ()) = tokio::join!(stage.cloud.delete_point_in_time(id), lag);
    deleted.expect("the first look was at an old record");
    assert!(stage.sim.state().snapshots.is_empty());
}
