// SPDX-License-Identifier: Apache-2.0
//! Backups: creation with a temporary snapshot, incremental backups, deletion, and volumes that are restored from
//! them.

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

/// Creates a complete backup without its snapshot. Repeats the call as the snapshotter does.
pub(crate) async fn complete_backup(stage: &Stage, new: NewBackup) -> Backup {
    let created = stage.cloud.create_backup(new.clone()).await.expect("a backup");
    assert!(stage.sim.settled(Duration::from_secs(10)).await);
    let existing = stage.cloud.create_backup(new).await.expect("the same backup");
    assert_eq!(
        (&existing.id, &existing.status),
        (&created.id, &BackupStatus::Available)
    );
    existing
}

#[tokio::test(start_paused = true)]
async fn backup_snapshot_is_deleted_after_completion() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.backup = Duration::from_millis(500)),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    let first = stage
        .cloud
        .create_backup(backup("b-1", &volume))
        .await
        .expect("under way");
    assert_eq!(first.status, BackupStatus::Creating);
    assert_eq!(stage.sim.state().snapshots.len(), 1, "the data is frozen");
    assert!(
        stage.cloud.map_snapshots(None, Some).await.expect("a list").is_empty(),
        "and no snapshot of anybody's"
    );
    let again = stage
        .cloud
        .create_backup(backup("b-1", &volume))
        .await
        .expect("under way");
    assert_eq!(again.id, first.id);
    let ready = complete_backup(&stage, backup("b-1", &volume)).await;
    assert_eq!(ready.id, first.id);
    let state = stage.sim.state();
    assert_eq!((state.backups.len(), state.snapshots.len()), (1, 0));
    assert_eq!(stage.sim.count("create_backup"), 1);
}

#[tokio::test(start_paused = true)]
async fn first_incremental_backup_is_full_issue_3077() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let incremental = |name: &str| NewBackup {
        incremental: true,
        ..backup(name, &volume)
    };
    let first = complete_backup(&stage, incremental("b-1")).await;
    assert!(!first.is_incremental);
    let second = complete_backup(&stage, incremental("b-2")).await;
    assert!(second.is_incremental, "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn backup_with_dependents_is_not_deleted() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let full = complete_backup(&stage, backup("b-1", &volume)).await;
    let on_it = NewBackup {
        incremental: true,
        ..backup("b-2", &volume)
    };
    let on_it = complete_backup(&stage, on_it).await;
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
async fn restored_volume_reports_source_on_every_call() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.backup = Duration::from_millis(200)),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    let created = complete_backup(&stage, backup("b-1", &volume)).await;
    let restore = NewVolume {
        source: Some(Source::PointInTime(created.id.to_string())),
        ..new("restored")
    };
    let first = stage.cloud.create_volume(restore.clone()).await.expect("restored");
    assert_eq!(first.volume.status, VolumeStatus::Available);
    let second = stage.cloud.create_volume(restore).await.expect("found");
    assert!(second.adopted);
    for volume in [first.volume, second.volume] {
        assert_eq!(
            volume.metadata.get(metadata_keys::SOURCE_BACKUP).map(String::as_str),
            Some(created.id.as_str())
        );
    }
    let other = NewVolume {
        source: None,
        ..new("restored")
    };
    let error = stage.cloud.create_volume(other).await.expect_err("it has a source");
    assert!(matches!(error, CloudError::AlreadyExists { .. }), "{error:?}");
}

/// The next backup fails after this time.
async fn stage_with_failing_backup(after: Duration) -> (Stage, Volume) {
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
async fn returned_backup_is_never_replaced() {
    let (stage, volume) = stage_with_failing_backup(Duration::from_secs(5)).await;
    let first = stage.cloud.create_backup(backup("b-1", &volume)).await;
    let first = first.expect("under way");
    assert_eq!(first.status, BackupStatus::Creating);
    assert!(stage.sim.settled(Duration::from_secs(10)).await);
    // Calls of another process, which does not know the answer.
    for _ in 0..3 {
        let again = stage.other_process().create_backup(backup("b-1", &volume)).await;
        let again = again.expect("the id, for each answer may be lost");
        assert_eq!((&again.id, &again.status), (&first.id, &BackupStatus::Error));
    }
    assert!(stage.sim.state().snapshots.is_empty(), "nothing is frozen any more");
    for cloud in [&stage.cloud, &stage.other_process()] {
        let error = cloud.create_backup(backup("b-1", &volume)).await.expect_err("failed");
        assert!(matches!(error, CloudError::Broken { .. }), "{error:?}");
        assert!(error.to_string().contains("the store is full"), "{error}");
        assert!(error.to_string().contains(first.id.as_str()), "{error}");
    }
    stage
        .cloud
        .delete_point_in_time(first.id.as_str())
        .await
        .expect("deleted");
    let next = complete_backup(&stage, backup("b-1", &volume)).await;
    assert_ne!(next.id, first.id);
    let state = stage.sim.state();
    assert_eq!((state.backups.len(), state.snapshots.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn unrecorded_backup_failure_returns_id() {
    let (stage, volume) = stage_with_failing_backup(Duration::from_secs(5)).await;
    let first = stage.cloud.create_backup(backup("b-1", &volume)).await;
    let first = first.expect("under way");
    assert!(stage.sim.settled(Duration::from_secs(10)).await);
    let refused = Fault::on("update_backup").times(2).effect(Effect::status(403));
    stage.sim.fault(refused).expect("rule");
    // Failures that the driver could not record do not count.
    for _ in 0..2 + 3 {
        let existing = stage.cloud.create_backup(backup("b-1", &volume)).await;
        assert_eq!(existing.expect("the id").id, first.id);
    }
    let error = stage.cloud.create_backup(backup("b-1", &volume)).await;
    assert!(matches!(error, Err(CloudError::Broken { .. })), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn immediately_failed_backup_is_recreated() {
    let (stage, volume) = stage_with_failing_backup(Duration::ZERO).await;
    // Slow enough that the first poll shows the failure.
    let slow = Fault::on("get_backup")
        .times(1)
        .effect(Effect::delay(Duration::from_secs(1)));
    stage.sim.fault(slow).expect("rule");
    let error = stage.cloud.create_backup(backup("b-1", &volume)).await;
    assert!(
        matches!(error, Err(CloudError::SnapshotFailed { removed: true, .. })),
        "{error:?}"
    );
    let state = stage.sim.state();
    assert_eq!((state.backups.len(), state.snapshots.len()), (0, 0));
    complete_backup(&stage, backup("b-1", &volume)).await;
}

#[tokio::test(start_paused = true)]
async fn killed_backup_creation_is_completed() {
    for operation in ["create_snapshot", "create_backup"] {
        for when in [When::Before, When::After] {
            let stage = stage().await;
            let volume = stage.create("pvc-1").await;
            stage
                .sim
                .fault(Fault::on(operation).times(1).effect(Effect::cut(when)))
                .expect("rule");
            // The process is killed, so its result does not matter: the backup or an error.
            drop(stage.cloud.create_backup(backup("b-1", &volume)).await);
            complete_backup(&stage, backup("b-1", &volume)).await;
            let state = stage.sim.state();
            assert_eq!(
                (state.backups.len(), state.snapshots.len()),
                (1, 0),
                "{operation} {when:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn backup_deletion_includes_its_snapshot() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.backup = Duration::from_millis(300)),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    let created = stage
        .cloud
        .create_backup(backup("b-1", &volume))
        .await
        .expect("a backup");
    assert!(stage.sim.settled(Duration::from_secs(5)).await);
    assert_eq!(stage.sim.state().snapshots.len(), 1);
    stage
        .cloud
        .delete_point_in_time(created.id.as_str())
        .await
        .expect("deleted");
    let state = stage.sim.state();
    assert_eq!((state.backups.len(), state.snapshots.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn stale_backup_snapshot_permits_volume_deletion() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.backup = Duration::from_millis(300)),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    let created = stage
        .cloud
        .create_backup(backup("b-1", &volume))
        .await
        .expect("a backup");
    assert!(stage.sim.settled(Duration::from_secs(5)).await);
    stage.cloud.delete_volume(&volume.id).await.expect("deleted");
    let state = stage.sim.state();
    assert_eq!(
        (state.volumes.len(), state.snapshots.len(), state.backups.len()),
        (0, 0, 1)
    );
    let existing = stage.cloud.point_in_time(created.id.as_str()).await.expect("a look");
    assert!(matches!(existing, Some(PointInTime::Backup(_))));
}

#[tokio::test(start_paused = true)]
async fn failed_poll_is_not_absence_issue_3148() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let created = complete_backup(&stage, backup("b-1", &volume)).await;
    stage
        .sim
        .fault(Fault::on("get_backup").effect(Effect::status(500)))
        .expect("rule");
    let error = stage
        .cloud
        .delete_point_in_time(created.id.as_str())
        .await
        .expect_err("unknown");
    assert!(matches!(error, CloudError::Server(_)), "{error:?}");
    assert_eq!(stage.sim.state().backups.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn missing_backup_service_is_reported() {
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
async fn killed_backup_deletion_is_completed() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.backup = Duration::from_millis(100)),
        ..SimConfig::default()
    })
    .await;
    let volume = stage.create("pvc-1").await;
    let mut last = 0;
    loop {
        // The backup is complete, but no call has requested it since, so that its snapshot still exists.
        let new = backup(&format!("b-{last}"), &volume);
        let created = stage.cloud.create_backup(new).await.expect("under way");
        assert!(stage.sim.settled(Duration::from_secs(10)).await);
        assert_eq!(stage.sim.state().snapshots.len(), 1, "the data is frozen");
        stage.sim.clear_log();
        let ended = {
            let deletion = stage.cloud.delete_point_in_time(created.id.as_str());
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
            .delete_point_in_time(created.id.as_str())
            .await
            .expect("deleted");
        let state = stage.sim.state();
        assert_eq!(
            (state.backups.len(), state.snapshots.len()),
            (0, 0),
            "after call {last}"
        );
        if ended.is_some() {
            break;
        }
        last += 1;
    }
    assert!(last >= 5, "it was cut short after {last} calls only");
}

#[tokio::test(start_paused = true)]
async fn interrupted_restore_in_other_zone_remains() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let created = complete_backup(&stage, backup("b-1", &volume)).await;
    let request = |zone: &str| NewVolume {
        source: Some(Source::PointInTime(created.id.to_string())),
        acceptable_zones: vec![zone.to_owned()],
        ..new("restored")
    };
    let interrupted = stage
        .cloud
        .create_volume(request("nova"))
        .await
        .expect("restored")
        .volume;
    // The state in which Cinder returns the volume until the driver writes its metadata again.
    let bare = |volume: &mut openstack_sim::Volume| {
        volume.metadata.remove(metadata_keys::SOURCE_BACKUP);
        volume.metadata.remove(metadata_keys::REQUESTED_ZONES);
        let restored = created.id.to_string();
        volume
            .metadata
            .insert(metadata_keys::CINDERS_SOURCE_BACKUP.to_owned(), restored);
    };
    assert!(stage.sim.set_volume(interrupted.id.as_str(), bare));
    let error = stage.cloud.create_volume(request("east")).await.expect_err("elsewhere");
    assert!(matches!(error, CloudError::Busy { .. }), "{error:?}");
    assert!(
        error.to_string().contains("zone east is wanted, it is in nova"),
        "{error}"
    );
    assert!(stage.cloud.volume(&interrupted.id).await.expect("a look").is_some());
}

#[tokio::test(start_paused = true)]
async fn complete_backup_is_ready_with_remaining_snapshot() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let refused = Fault::on("delete_snapshot").effect(Effect::work_fails());
    stage.sim.fault(refused).expect("a rule");
    let created = complete_backup(&stage, backup("b-1", &volume)).await;
    let state = stage.sim.state();
    assert_eq!(state.snapshots.len(), 1, "its deletion fails");
    let error = stage.cloud.delete_point_in_time(created.id.as_str()).await;
    error.expect_err("without the backup no caller would know the snapshot");
    stage.sim.clear_faults();
    let reset = openstack_sim::SnapshotStatus::Available;
    assert!(stage.sim.set_snapshot_status(&state.snapshots[0].id, reset));
    stage
        .cloud
        .delete_point_in_time(created.id.as_str())
        .await
        .expect("deleted");
    let state = stage.sim.state();
    assert_eq!((state.backups.len(), state.snapshots.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn rejected_backup_is_final_after_cleanup() {
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
    let has_snapshot = !stage.sim.state().snapshots.is_empty();
    assert_eq!(has_snapshot, matches!(error, CloudError::Busy { .. }), "{error}");

    stage.sim.clear_faults();
    refuses(&stage.sim);
    let error = stage.cloud.create_backup(backup("b-1", &volume)).await;
    let error = error.expect_err("the quota is used up");
    assert!(matches!(error, CloudError::Quota(_)), "{error}");
    assert!(stage.sim.state().snapshots.is_empty());
}

#[tokio::test(start_paused = true)]
async fn rejects_backup_of_other_cluster() {
    let stage = stage().await;
    let volume = stage.create("pvc-1").await;
    let mut theirs = backup("b-1", &volume);
    let cluster = "cinder.csi.openstack.org/cluster".to_owned();
    theirs.metadata.insert(cluster, "another".to_owned());
    complete_backup(&stage, theirs).await;
    let error = stage.cloud.create_backup(backup("b-1", &volume)).await;
    let error = error.expect_err("the other cluster's");
    assert!(
        matches!(&error, CloudError::SnapshotExists { difference, .. } if difference.contains("another")),
        "{error}"
    );
}
