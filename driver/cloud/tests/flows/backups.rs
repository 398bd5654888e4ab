// SPDX-License-Identifier: Apache-2.0
//! Backups: the data frozen, the backup made, chains kept, volumes restored.

use std::collections::BTreeMap;
use std::time::Duration;

use cinder_cloud::{
    Backup, BackupStatus, CloudError, NewBackup, NewVolume, PointInTime, Source, Volume, VolumeStatus, metadata_keys,
};
use openstack_sim::{Effect, Fault, SimConfig, When};

use crate::support::{Stage, latencies, new, stage, stage_with};

fn backup(name: &str, volume: &Volume) -> NewBackup {
    NewBackup {
        name: name.to_owned(),
        volume_id: volume.id.clone(),
        incremental: false,
        availability_zone: None,
        description: "made by a test".to_owned(),
        metadata: BTreeMap::from([("cinder.csi.openstack.org/cluster".to_owned(), "test".to_owned())]),
    }
}

/// A backup that is complete, its snapshot gone: asked for until then, as the snapshotter does.
pub(crate) async fn complete(stage: &Stage, new: NewBackup) -> Backup {
    let made = stage.cloud.create_backup(new.clone()).await.expect("a backup");
    assert!(stage.sim.settled(Duration::from_secs(10)).await);
    let found = stage.cloud.create_backup(new).await.expect("the same backup");
    assert_eq!((&found.id, &found.status), (&made.id, &BackupStatus::Available));
    found
}

#[tokio::test(start_paused = true)]
async fn a_backup_answers_at_once_and_its_snapshot_goes_when_it_is_complete() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.backup = Duration::from_millis(500)),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    let early = stage
        .cloud
        .create_backup(backup("b-1", &volume))
        .await
        .expect("under way");
    assert_eq!(early.status, BackupStatus::Creating);
    assert_eq!(stage.sim.state().snapshots.len(), 1, "the data is frozen");
    assert!(
        stage.cloud.list_snapshots(None).await.expect("a list").is_empty(),
        "and no snapshot of anybody's"
    );
    let again = stage
        .cloud
        .create_backup(backup("b-1", &volume))
        .await
        .expect("under way");
    assert_eq!(again.id, early.id);
    let ready = complete(&stage, backup("b-1", &volume)).await;
    assert_eq!(ready.id, early.id);
    let left = stage.sim.state();
    assert_eq!((left.backups.len(), left.snapshots.len()), (1, 0));
    assert_eq!(stage.sim.count("create_backup"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_incremental_backup_needs_a_full_one_and_makes_it_where_there_is_none_issue_3077() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let incremental = |name: &str| NewBackup {
        incremental: true,
        ..backup(name, &volume)
    };
    let first = complete(&stage, incremental("b-1")).await;
    assert!(!first.is_incremental);
    let second = complete(&stage, incremental("b-2")).await;
    assert!(second.is_incremental, "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn a_backup_with_incremental_ones_on_it_stays_and_they_are_named() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let full = complete(&stage, backup("b-1", &volume)).await;
    let on_it = NewBackup {
        incremental: true,
        ..backup("b-2", &volume)
    };
    let on_it = complete(&stage, on_it).await;
    assert!(on_it.is_incremental);
    let error = stage
        .cloud
        .delete_point_in_time(full.id.as_str())
        .await
        .expect_err("needed");
    assert!(matches!(error, CloudError::StillNeeded { .. }), "{error:?}");
    assert!(error.to_string().contains(on_it.id.as_str()), "{error}");
    for id in [on_it.id, full.id] {
        stage.cloud.delete_point_in_time(id.as_str()).await.expect("deleted");
    }
    assert!(stage.sim.state().backups.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_volume_restored_from_a_backup_tells_its_source_on_every_call() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.backup = Duration::from_millis(200)),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    let made = complete(&stage, backup("b-1", &volume)).await;
    let restore = NewVolume {
        source: Some(Source::PointInTime(made.id.to_string())),
        ..new("restored")
    };
    let first = stage.cloud.create_volume(restore.clone()).await.expect("restored");
    assert_eq!(first.volume.status, VolumeStatus::Available);
    let second = stage.cloud.create_volume(restore).await.expect("found");
    assert!(second.adopted);
    for volume in [first.volume, second.volume] {
        assert_eq!(
            volume.metadata.get(metadata_keys::SOURCE_BACKUP).map(String::as_str),
            Some(made.id.as_str())
        );
    }
    let other = NewVolume {
        source: None,
        ..new("restored")
    };
    let error = stage.cloud.create_volume(other).await.expect_err("it has a source");
    assert!(matches!(error, CloudError::AlreadyExists { .. }), "{error:?}");
}

/// The next backup fails when Cinder has been at it for so long.
async fn failing(after: Duration) -> (Stage, Volume) {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.backup = after),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    let full = Effect::work_fails().message("the store is full");
    let fails = Fault::on("create_backup").times(1).effect(full);
    stage.sim.fault(fails).expect("rule");
    (stage, volume)
}

#[tokio::test(start_paused = true)]
async fn a_backup_whose_id_was_answered_is_never_replaced_and_its_failure_comes_after_its_id() {
    let (stage, volume) = failing(Duration::from_secs(5)).await;
    let early = stage.cloud.create_backup(backup("b-1", &volume)).await;
    let early = early.expect("under way");
    assert_eq!(early.status, BackupStatus::Creating);
    assert!(stage.sim.settled(Duration::from_secs(10)).await);
    // By a process that knows nothing of the answer.
    for _ in 0..3 {
        let again = stage.another().create_backup(backup("b-1", &volume)).await;
        let again = again.expect("the id, for each answer may be lost");
        assert_eq!((&again.id, &again.status), (&early.id, &BackupStatus::Error));
    }
    assert!(stage.sim.state().snapshots.is_empty(), "nothing is frozen any more");
    for cloud in [&stage.cloud, &stage.another()] {
        let error = cloud.create_backup(backup("b-1", &volume)).await.expect_err("failed");
        assert!(matches!(error, CloudError::Broken { .. }), "{error:?}");
        assert!(error.to_string().contains("the store is full"), "{error}");
        assert!(error.to_string().contains(early.id.as_str()), "{error}");
    }
    stage
        .cloud
        .delete_point_in_time(early.id.as_str())
        .await
        .expect("deleted");
    let next = complete(&stage, backup("b-1", &volume)).await;
    assert_ne!(next.id, early.id);
    let left = stage.sim.state();
    assert_eq!((left.backups.len(), left.snapshots.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn while_the_failure_of_a_backup_cannot_be_noted_its_id_is_answered() {
    let (stage, volume) = failing(Duration::from_secs(5)).await;
    let early = stage.cloud.create_backup(backup("b-1", &volume)).await;
    let early = early.expect("under way");
    assert!(stage.sim.settled(Duration::from_secs(10)).await);
    let refused = Fault::on("update_backup").times(2).effect(Effect::status(403));
    stage.sim.fault(refused).expect("rule");
    // Those that could not be noted do not count.
    for _ in 0..2 + 3 {
        let found = stage.cloud.create_backup(backup("b-1", &volume)).await;
        assert_eq!(found.expect("the id").id, early.id);
    }
    let error = stage.cloud.create_backup(backup("b-1", &volume)).await;
    assert!(matches!(error, Err(CloudError::Broken { .. })), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_backup_that_fails_at_once_is_removed_with_its_snapshot_and_made_anew() {
    let (stage, volume) = failing(Duration::ZERO).await;
    // So slow that the first look shows the failure.
    let slow = Fault::on("get_backup")
        .times(1)
        .effect(Effect::delay(Duration::from_secs(1)));
    stage.sim.fault(slow).expect("rule");
    let error = stage.cloud.create_backup(backup("b-1", &volume)).await;
    assert!(
        matches!(error, Err(CloudError::SnapshotFailed { removed: true, .. })),
        "{error:?}"
    );
    let left = stage.sim.state();
    assert_eq!((left.backups.len(), left.snapshots.len()), (0, 0));
    complete(&stage, backup("b-1", &volume)).await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_killed_at_any_request_of_a_backup_leaves_one_backup_and_no_snapshot() {
    for operation in ["create_snapshot", "create_backup"] {
        for when in [When::Before, When::After] {
            let stage = stage().await;
            let volume = stage.create("pvc-1").await;
            stage
                .sim
                .fault(Fault::on(operation).times(1).effect(Effect::cut(when)))
                .expect("rule");
            // The answer may be found again, or be an error: the process knows no more of it.
            drop(stage.cloud.create_backup(backup("b-1", &volume)).await);
            complete(&stage, backup("b-1", &volume)).await;
            let left = stage.sim.state();
            assert_eq!(
                (left.backups.len(), left.snapshots.len()),
                (1, 0),
                "{operation} {when:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_backup_that_is_deleted_takes_its_snapshot_with_it() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.backup = Duration::from_millis(300)),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    let made = stage
        .cloud
        .create_backup(backup("b-1", &volume))
        .await
        .expect("a backup");
    assert!(stage.sim.settled(Duration::from_secs(5)).await);
    assert_eq!(stage.sim.state().snapshots.len(), 1);
    stage
        .cloud
        .delete_point_in_time(made.id.as_str())
        .await
        .expect("deleted");
    let left = stage.sim.state();
    assert_eq!((left.backups.len(), left.snapshots.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_volume_can_be_deleted_when_only_the_snapshot_of_a_complete_backup_is_left_of_it() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.backup = Duration::from_millis(300)),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    let made = stage
        .cloud
        .create_backup(backup("b-1", &volume))
        .await
        .expect("a backup");
    assert!(stage.sim.settled(Duration::from_secs(5)).await);
    stage.cloud.delete_volume(&volume.id).await.expect("deleted");
    let left = stage.sim.state();
    assert_eq!(
        (left.volumes.len(), left.snapshots.len(), left.backups.len()),
        (0, 0, 1)
    );
    let found = stage.cloud.point_in_time(made.id.as_str()).await.expect("a look");
    assert!(matches!(found, Some(PointInTime::Backup(_))));
}

#[tokio::test(start_paused = true)]
async fn a_look_that_fails_is_never_taken_for_an_absence_issue_3148() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let made = complete(&stage, backup("b-1", &volume)).await;
    stage
        .sim
        .fault(Fault::on("get_backup").effect(Effect::status(500)))
        .expect("rule");
    let error = stage
        .cloud
        .delete_point_in_time(made.id.as_str())
        .await
        .expect_err("unknown");
    assert!(matches!(error, CloudError::Server(_)), "{error:?}");
    assert_eq!(stage.sim.state().backups.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cloud_without_a_backup_service_says_so_and_keeps_nothing() {
    let stage = stage_with(SimConfig {
        backups: false,
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    let error = stage
        .cloud
        .create_backup(backup("b-1", &volume))
        .await
        .expect_err("no service");
    assert!(matches!(error, CloudError::NoBackups(_)), "{error:?}");
    assert!(stage.sim.state().snapshots.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_killed_at_any_call_leaves_no_frozen_data_behind() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.backup = Duration::from_millis(100)),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    let mut last = 0;
    loop {
        // Complete, and nobody has asked for it since: its snapshot is still there.
        let new = backup(&format!("b-{last}"), &volume);
        let made = stage.cloud.create_backup(new).await.expect("under way");
        assert!(stage.sim.settled(Duration::from_secs(10)).await);
        assert_eq!(stage.sim.state().snapshots.len(), 1, "the data is frozen");
        stage.sim.clear_log();
        let ended = {
            let deletion = stage.cloud.delete_point_in_time(made.id.as_str());
            tokio::pin!(deletion);
            let mut tick = tokio::time::interval(Duration::from_millis(1));
            loop {
                tokio::select! {
                    ended = &mut deletion => break Some(ended),
                    _ = tick.tick() => if stage.calls() > last { break None },
                }
            }
        };
        stage
            .cloud
            .delete_point_in_time(made.id.as_str())
            .await
            .expect("deleted");
        let left = stage.sim.state();
        assert_eq!((left.backups.len(), left.snapshots.len()), (0, 0), "after call {last}");
        if ended.is_some() {
            break;
        }
        last += 1;
    }
    assert!(last >= 5, "it was cut short after {last} calls only");
}

#[tokio::test(start_paused = true)]
async fn a_restoration_elsewhere_that_was_cut_short_keeps_its_name_and_stays() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let made = complete(&stage, backup("b-1", &volume)).await;
    let wanted = |zone: &str| NewVolume {
        source: Some(Source::PointInTime(made.id.to_string())),
        acceptable_zones: vec![zone.to_owned()],
        ..new("restored")
    };
    let left = stage
        .cloud
        .create_volume(wanted("nova"))
        .await
        .expect("restored")
        .volume;
    // As Cinder leaves it until its marks are written again.
    let bare = |volume: &mut openstack_sim::Volume| {
        volume.metadata.remove(metadata_keys::SOURCE_BACKUP);
        volume.metadata.remove(metadata_keys::REQUESTED_ZONES);
        let restored = made.id.to_string();
        volume
            .metadata
            .insert(metadata_keys::CINDERS_SOURCE_BACKUP.to_owned(), restored);
    };
    assert!(stage.sim.set_volume(left.id.as_str(), bare));
    let error = stage.cloud.create_volume(wanted("east")).await.expect_err("elsewhere");
    assert!(matches!(error, CloudError::Busy { .. }), "{error:?}");
    assert!(
        error.to_string().contains("zone east is wanted, it is in nova"),
        "{error}"
    );
    assert!(stage.cloud.volume(&left.id).await.expect("a look").is_some());
}

#[tokio::test(start_paused = true)]
async fn complete_backup_is_ready_with_remaining_snapshot() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let refused = Fault::on("delete_snapshot").effect(Effect::work_fails());
    stage.sim.fault(refused).expect("a rule");
    let made = complete(&stage, backup("b-1", &volume)).await;
    let left = stage.sim.state();
    assert_eq!(left.snapshots.len(), 1, "its deletion fails");
    let error = stage.cloud.delete_point_in_time(made.id.as_str()).await;
    error.expect_err("without the backup no caller would know the snapshot");
    stage.sim.clear_faults();
    let reset = openstack_sim::SnapshotStatus::Available;
    assert!(stage.sim.set_snapshot_status(&left.snapshots[0].id, reset));
    stage
        .cloud
        .delete_point_in_time(made.id.as_str())
        .await
        .expect("deleted");
    let left = stage.sim.state();
    assert_eq!((left.backups.len(), left.snapshots.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn refused_backup_is_final_without_remains_only() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let refuses = |sim: &openstack_sim::Sim| {
        sim.fault(Fault::on("create_backup").times(1).effect(Effect::quota()))
            .expect("a rule");
    };
    refuses(&stage.sim);
    let fails = Fault::on("delete_snapshot").times(1).effect(Effect::status(500));
    stage.sim.fault(fails).expect("a rule");
    let error = stage.cloud.create_backup(backup("b-1", &volume)).await;
    let error = error.expect_err("the quota is used up");
    assert!(
        matches!(error, CloudError::Quota(_) | CloudError::Busy { .. }),
        "{error}"
    );
    let is_left = !stage.sim.state().snapshots.is_empty();
    assert_eq!(is_left, matches!(error, CloudError::Busy { .. }), "{error}");

    stage.sim.clear_faults();
    refuses(&stage.sim);
    let error = stage.cloud.create_backup(backup("b-1", &volume)).await;
    let error = error.expect_err("the quota is used up");
    assert!(matches!(error, CloudError::Quota(_)), "{error}");
    assert!(stage.sim.state().snapshots.is_empty());
}

#[tokio::test(start_paused = true)]
async fn backup_of_other_cluster_is_refused() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let mut theirs = backup("b-1", &volume);
    let cluster = "cinder.csi.openstack.org/cluster".to_owned();
    theirs.metadata.insert(cluster, "another".to_owned());
    complete(&stage, theirs).await;
    let error = stage.cloud.create_backup(backup("b-1", &volume)).await;
    let error = error.expect_err("the other cluster's");
    assert!(
        matches!(&error, CloudError::SnapshotExists { difference, .. } if difference.contains("another")),
        "{error}"
    );
}
