// SPDX-License-Identifier: Apache-2.0
//! Snapshots made, found again and deleted, each to its end.

use std::collections::BTreeMap;
use std::time::Duration;

use cinder_cloud::{
    AttachOptions, Awaited, CloudError, NewSnapshot, PointInTime, ServerId, SnapshotStatus, Source, Volume, VolumeId,
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
async fn a_snapshot_is_made_once_and_found_again() {
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
async fn names_are_compared_as_a_whole_and_a_name_of_another_volume_is_told() {
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
async fn a_volume_in_use_is_cut_by_force_only_issue_1812() {
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
async fn a_snapshot_that_fails_is_removed_with_its_reason_told_and_made_again() {
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
async fn a_failed_snapshot_that_an_earlier_process_left_is_made_anew_and_one_of_somebody_else_stays() {
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
        // Killed right after its request.
        let killed = tokio::time::timeout(Duration::from_millis(100), stage.cloud.create_snapshot(first)).await;
        assert!(killed.is_err(), "{killed:?}");
        let left = stage.sim.state().snapshots.last().map(|left| left.id.clone());
        assert!(stage.sim.settled(Duration::from_secs(5)).await);
        stage.sim.clear_faults();
        let again = stage.cloud.create_snapshot(snapshot(&name, &volume)).await;
        match again {
            Ok(made) => assert!(remade && left.is_some_and(|left| left != made.id.as_str())),
            Err(error) => assert!(
                !remade && matches!(error, CloudError::SnapshotExists { .. }),
                "{error:?}"
            ),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_makes_no_second_snapshot() {
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
async fn a_used_up_quota_is_told_as_such() {
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
async fn a_snapshot_of_nothing_is_not_made() {
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
async fn what_had_to_wait_is_not_asked_for_when_no_caller_is_left() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.delete = Duration::from_millis(300)),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    for (is_awaited, creations) in [(false, 1), (true, 2)] {
        let create = || stage.cloud.create_snapshot(snapshot("snap-1", &volume));
        let earlier = create().await.expect("made").id;
        let (deleted, made) = tokio::join!(
            stage.cloud.delete_point_in_time(earlier.as_str()),
            // Once the deletion is under way.
            async {
                while stage.sim.count("delete_snapshot") == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Awaited::new(move || is_awaited).during(create()).await
            }
        );
        deleted.expect("deleted");
        assert_eq!(stage.sim.count("create_snapshot"), creations, "{made:?}");
        match made {
            Ok(made) => assert!(is_awaited && made.id != earlier, "{made:?}"),
            Err(error) => assert!(!is_awaited && matches!(error, CloudError::Unawaited(_)), "{error:?}"),
        }
        stage.sim.clear_log();
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_followed_until_the_snapshot_is_gone_issue_2294() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.delete = Duration::from_millis(300)),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    let made = stage
        .cloud
        .create_snapshot(snapshot("snap-1", &volume))
        .await
        .expect("made");
    stage
        .cloud
        .delete_point_in_time(made.id.as_str())
        .await
        .expect("deleted");
    assert!(names(&stage).is_empty());
    for gone in [made.id.as_str(), NOTHING, "no-uuid"] {
        stage.cloud.delete_point_in_time(gone).await.expect("gone already");
        assert_eq!(stage.cloud.point_in_time(gone).await.expect("a look"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_fails_in_the_cloud_is_told_and_the_snapshot_is_still_there() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let made = stage
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
            .delete_point_in_time(made.id.as_str())
            .await
            .expect_err("error_deleting");
        assert!(
            matches!(&error, CloudError::SnapshotFailed { status, .. } if status == "error_deleting"),
            "{error:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_built_on_a_snapshot_or_a_volume_keeps_it_and_is_named() {
    let stage = stage_with(SimConfig {
        clones_hold_sources: true,
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    let made = stage
        .cloud
        .create_snapshot(snapshot("snap-1", &volume))
        .await
        .expect("made");
    let copy = |name: &str, source| cinder_cloud::NewVolume {
        source: Some(source),
        ..new(name)
    };
    let restored = copy("restored", Source::PointInTime(made.id.to_string()));
    let restored = stage.cloud.create_volume(restored).await.expect("a copy").volume;
    let error = stage
        .cloud
        .delete_point_in_time(made.id.as_str())
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

    // Sidecars repeat what was refused.
    stage.sim.clear_log();
    stage.cloud.delete_volume(&source.id).await.expect_err("needed");
    let error = stage.cloud.delete_point_in_time(made.id.as_str()).await;
    let error = error.expect_err("needed");
    assert!(error.to_string().contains(restored.id.as_str()), "{error}");
    let lists = stage.sim.log();
    let lists = lists.iter().filter(|entry| entry.operation == "list_volumes_detail");
    let whole = lists.filter(|entry| !entry.path.contains('?'));
    assert_eq!(whole.count(), 0, "the project was listed once for each");
}

#[tokio::test(start_paused = true)]
async fn a_volume_with_snapshots_stays_and_they_are_named_issue_2181() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let made = stage
        .cloud
        .create_snapshot(snapshot("snap-1", &volume))
        .await
        .expect("made");
    let error = stage.cloud.delete_volume(&volume.id).await.expect_err("has a snapshot");
    assert!(matches!(error, CloudError::VolumeHasDependents { .. }), "{error:?}");
    for part in ["snap-1", made.id.as_str()] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    let found = stage.cloud.point_in_time(made.id.as_str()).await.expect("a look");
    assert_eq!(found, Some(PointInTime::Snapshot(made)));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_a_lagging_api_node_still_shows_available_is_deleted_all_the_same() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.delete = Duration::from_secs(5)),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    let made = stage.cloud.create_snapshot(snapshot("snap-1", &volume)).await;
    let made = made.expect("made");
    let id = made.id.as_str();
    stage.sim.clear_log();
    let lag = async {
        while stage.sim.count("delete_snapshot") == 0 {
            tick().await;
        }
        stage
            .sim
            .set_snapshot_status(id, openstack_sim::SnapshotStatus::Available);
        let before = stage.sim.count("get_snapshot");
        while stage.sim.count("get_snapshot") == before {
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
