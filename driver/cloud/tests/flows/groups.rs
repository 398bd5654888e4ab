// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;
use std::time::Duration;

use cinder_cloud::{
    Cloud, CloudConfig, CloudError, CloudOptions, GroupSnapshot, GroupSnapshotId, NewGroupSnapshot, ObjectKind, Volume,
    VolumeId,
};
use openstack_sim::{Effect, Fault, GroupType, SimConfig, When};
use rstest::rstest;

use crate::support::{NOTHING, ONE, Stage, latencies, stage_with};

/// A cloud with one consistent group type and one that is not consistent.
async fn group_stage() -> Stage {
    stage_with(SimConfig {
        group_types: vec![GroupType::consistent("together"), GroupType::new("loose")],
        ..SimConfig::default()
    })
    .await
}

impl Stage {
    async fn pair(&self) -> [Volume; 2] {
        tokio::join!(Box::pin(self.create("pvc-1")), Box::pin(self.create("pvc-2"))).into()
    }

    async fn take(&self, new: &NewGroupSnapshot) -> Result<GroupSnapshot, CloudError> {
        self.cloud.create_group_snapshot(new.clone()).await
    }

    /// Counts the groups, the group snapshots, the snapshots, and the volumes in a group.
    fn resource_counts(&self) -> (usize, usize, usize, usize) {
        let state = self.sim.state();
        let grouped = state.volumes.iter().filter(|volume| volume.group_id.is_some()).count();
        (
            state.groups.len(),
            state.group_snapshots.len(),
            state.snapshots.len(),
            grouped,
        )
    }
}

fn request(volumes: &[Volume]) -> NewGroupSnapshot {
    NewGroupSnapshot {
        name: "groupsnapshot-1".to_owned(),
        volumes: volumes.iter().map(|volume| volume.id.clone()).collect(),
        group_type: Some("together".to_owned()),
        cluster: "test".to_owned(),
    }
}

fn sources(taken: &GroupSnapshot) -> BTreeSet<VolumeId> {
    taken
        .snapshots
        .iter()
        .map(|snapshot| snapshot.volume_id.clone())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn group_snapshot_releases_its_volumes() {
    let stage = group_stage().await;
    let volumes = stage.pair().await;
    let taken = stage.take(&request(&volumes)).await.expect("taken");
    assert_eq!(sources(&taken), request(&volumes).volumes);
    for snapshot in &taken.snapshots {
        assert_eq!(snapshot.group_snapshot_id.as_deref(), Some(taken.id.as_str()));
    }
    assert_eq!(
        stage.resource_counts(),
        (1, 1, 2, 0),
        "the empty group stays with its snapshot"
    );
    for volume in &volumes {
        // Cinder rejects changes of a volume that is still in a group.
        let changes = cinder_cloud::Changes {
            volume_type: Some("slow".to_owned()),
            ..cinder_cloud::Changes::default()
        };
        stage.cloud.modify_volume(&volume.id, &changes).await.expect("free");
    }

    stage
        .cloud
        .delete_group_snapshot(&taken.id, &BTreeSet::new())
        .await
        .expect("deleted");
    assert_eq!(stage.resource_counts(), (0, 0, 0, 0));
    stage
        .cloud
        .delete_group_snapshot(&taken.id, &BTreeSet::new())
        .await
        .expect("deleted twice");
}

#[tokio::test(start_paused = true)]
async fn group_snapshot_supports_attached_volume() {
    let stage = group_stage().await;
    let volumes = stage.pair().await;
    let options = cinder_cloud::AttachOptions::default();
    stage
        .cloud
        .attach(&volumes[0].id, &ONE.into(), options)
        .await
        .expect("attached");
    let taken = stage.take(&request(&volumes)).await.expect("taken");
    assert_eq!(taken.snapshots.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn repeated_call_adopts_same_members_only() {
    let stage = group_stage().await;
    let volumes = stage.pair().await;
    let first = stage.take(&request(&volumes)).await.expect("taken");
    let again = stage.take(&request(&volumes)).await.expect("found");
    assert_eq!((&again.id, stage.resource_counts()), (&first.id, (1, 1, 2, 0)));
    let error = stage.take(&request(&volumes[..1])).await.expect_err("other volumes");
    assert!(
        matches!(
            &error,
            CloudError::SnapshotExists {
                kind: ObjectKind::GroupSnapshot,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn group_snapshot_is_found_by_id() {
    let stage = group_stage().await;
    let volumes = stage.pair().await;
    let taken = stage.take(&request(&volumes)).await.expect("taken");
    let existing = stage
        .cloud
        .group_snapshot(&taken.id)
        .await
        .expect("a look")
        .expect("it is there");
    assert_eq!(existing, taken);
    for id in [NOTHING, "no-uuid"] {
        let existing = stage
            .cloud
            .group_snapshot(&GroupSnapshotId::new(id))
            .await
            .expect("a look");
        assert!(existing.is_none());
    }
}

#[rstest]
#[case("loose")]
#[case("no-such-type")]
#[tokio::test(start_paused = true)]
async fn group_snapshot_requires_consistent_type(#[case] group_type: &str) {
    let stage = stage_with(SimConfig {
        // Only administrators see the specs, and only then the driver can detect a wrong type.
        group_types: vec![GroupType::new("loose")],
        pools_for_members: true,
        ..SimConfig::default()
    })
    .await;
    let volumes = stage.pair().await;
    let new = NewGroupSnapshot {
        group_type: (group_type != "loose").then(|| group_type.to_owned()),
        ..request(&volumes)
    };
    let error = stage.take(&new).await.expect_err("not consistent");
    assert!(matches!(error, CloudError::CannotGroup { .. }), "{error}");
    assert_eq!(stage.resource_counts(), (0, 0, 0, 0));
}

#[rstest]
#[case("create_group")]
#[case("create_group_snapshot")]
#[tokio::test(start_paused = true)]
async fn failed_group_snapshot_is_cleaned_up(#[case] operation: &str) {
    let stage = group_stage().await;
    let volumes = stage.pair().await;
    let fails = Fault::on(operation).times(1).effect(Effect::work_fails());
    stage.sim.fault(fails).expect("a rule");
    stage.take(&request(&volumes)).await.expect_err("failed");
    assert_eq!(stage.resource_counts(), (0, 0, 0, 0));
    stage.take(&request(&volumes)).await.expect("the next one");
    assert_eq!(stage.resource_counts(), (1, 1, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn rejection_with_remaining_group_is_not_final() {
    let stage = group_stage().await;
    let volumes = stage.pair().await;
    let refused = Fault::on("create_group_snapshot").effect(Effect::status(400));
    stage.sim.fault(refused).expect("a rule");
    let stays = Fault::on("delete_group").times(1).effect(Effect::status(400));
    stage.sim.fault(stays).expect("a rule");
    let error = stage.take(&request(&volumes)).await.expect_err("refused");
    assert!(
        matches!(
            &error,
            CloudError::Busy {
                kind: ObjectKind::Group,
                ..
            }
        ),
        "{error}"
    );
    let error = stage.take(&request(&volumes)).await.expect_err("refused");
    assert!(matches!(&error, CloudError::CannotGroup { .. }), "{error}");
    assert_eq!(stage.resource_counts(), (0, 0, 0, 0));
}

#[rstest]
#[case("create_group")]
#[case("update_group")]
#[case("create_group_snapshot")]
#[tokio::test(start_paused = true)]
async fn lost_answer_creates_no_second_group(#[case] operation: &str) {
    let stage = group_stage().await;
    let volumes = stage.pair().await;
    let lost = Fault::on(operation).times(1).effect(Effect::cut(When::After));
    stage.sim.fault(lost).expect("a rule");
    let first = stage.take(&request(&volumes)).await;
    let taken = match first {
        Ok(taken) => taken,
        Err(_) => stage.take(&request(&volumes)).await.expect("the next one"),
    };
    assert_eq!(taken.snapshots.len(), 2);
    assert_eq!(stage.resource_counts(), (1, 1, 2, 0));
}

#[rstest]
#[case::lost_answer(true)]
#[case::out_of_time(false)]
#[tokio::test(start_paused = true)]
async fn volumes_remain_grouped_during_possible_snapshot(#[case] lost: bool) {
    let stage = stage_with(SimConfig {
        group_types: vec![GroupType::consistent("together")],
        latencies: latencies(|l| l.snapshot = Duration::from_millis(1500)),
        ..SimConfig::default()
    })
    .await;
    let volumes = stage.pair().await;
    if lost {
        let lost = Fault::on("create_group_snapshot").times(1);
        stage.sim.fault(lost.effect(Effect::cut(When::After))).expect("a rule");
    }
    let config = CloudConfig::from_cloud_conf(&stage.sim.access().cloud_conf()).expect("a good configuration");
    let options = CloudOptions {
        operation_timeout: Duration::from_millis(if lost { 10_000 } else { 700 }),
        ..stage.options()
    };
    let hasty = Cloud::new(config, options).expect("a cloud");
    let error = hasty
        .create_group_snapshot(request(&volumes))
        .await
        .expect_err("nobody knows how it ended");
    assert!(
        error.is_uncertain() == lost && matches!(error, CloudError::Timeout { .. }) != lost,
        "{error:?}"
    );
    let (groups, cut, _, grouped) = stage.resource_counts();
    assert_eq!((groups, cut, grouped), (1, 1, 2), "they are left where they are");
    let taken = stage.take(&request(&volumes)).await.expect("the next one");
    assert_eq!(sources(&taken), request(&volumes).volumes);
    assert_eq!(stage.resource_counts(), (1, 1, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn killed_group_snapshot_is_completed() {
    let stage = group_stage().await;
    let volumes = stage.pair().await;
    let mut last = 0;
    loop {
        let new = NewGroupSnapshot {
            name: format!("groupsnapshot-{last}"),
            ..request(&volumes)
        };
        stage.sim.clear_log();
        let ended = {
            let first = stage.take(&new);
            tokio::pin!(first);
            let mut tick = tokio::time::interval(std::time::Duration::from_millis(1));
            loop {
                tokio::select! {
                    ended = &mut first => break Some(ended),
                    _ = tick.tick() => if stage.calls() > last { break None },
                }
            }
        };
        let taken = stage.take(&new).await;
        let taken = taken.unwrap_or_else(|error| panic!("after call {last}: {error}"));
        assert_eq!(taken.snapshots.len(), 2, "after call {last}");
        stage
            .cloud
            .delete_group_snapshot(&taken.id, &BTreeSet::new())
            .await
            .expect("deleted");
        assert_eq!(stage.resource_counts(), (0, 0, 0, 0), "after call {last}");
        if ended.is_some() {
            break;
        }
        last += 1;
    }
    assert!(last > 8, "it was cut short after {last} calls only");
}

#[tokio::test(start_paused = true)]
async fn volume_remains_grouped_until_attempts_expire() {
    let stage = stage_with(SimConfig {
        group_types: vec![GroupType::consistent("together")],
        latencies: latencies(|l| l.group = Duration::from_secs(1)),
        ..SimConfig::default()
    })
    .await;
    let volumes = stage.pair().await;
    {
        let killed = request(&volumes);
        let killed = stage.take(&killed);
        tokio::pin!(killed);
        let mut tick = tokio::time::interval(Duration::from_millis(1));
        while stage.resource_counts().3 < 2 {
            tokio::select! {
                ended = &mut killed => panic!("it ended before its volumes were in the group: {ended:?}"),
                _ = tick.tick() => {}
            }
        }
    }
    let config = CloudConfig::from_cloud_conf(&stage.sim.access().cloud_conf()).expect("a good configuration");
    let other = Cloud::new(config, stage.options()).expect("another process");
    let error = other.delete_volume(&volumes[0].id).await.expect_err("in a group");
    assert!(
        matches!(
            &error,
            CloudError::Busy {
                kind: ObjectKind::Volume,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(stage.resource_counts(), (1, 0, 0, 2));

    let options = stage.options();
    tokio::time::sleep(2 * options.operation_timeout + options.request_timeout).await;
    other.delete_volume(&volumes[0].id).await.expect("deleted");
    let taken = stage.take(&request(&volumes[1..])).await.expect("taken in a new group");
    assert_eq!(taken.snapshots.len(), 1);
    assert_eq!(stage.resource_counts(), (1, 1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn slow_attempt_respects_operation_timeout() {
    let stage = group_stage().await;
    let volumes = stage.pair().await;
    let slow = Fault::everywhere().effect(Effect::delay(Duration::from_secs(9)));
    stage.sim.fault(slow).expect("a rule");
    let began = tokio::time::Instant::now();
    let error = stage.take(&request(&volumes)).await.expect_err("too slow");
    assert!(matches!(&error, CloudError::Timeout { .. }), "{error:?}");
    // The operation timeout of the stage's cloud.
    assert!(began.elapsed() <= Duration::from_secs(21), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn incomplete_group_snapshot_is_replaced_later() {
    let stage = group_stage().await;
    let volumes = stage.pair().await;
    let first = stage.take(&request(&volumes)).await.expect("taken");
    // The state after an earlier removal of the volume from the group.
    let missing = first.snapshots[0].id.as_str();
    let apart = |snapshot: &mut openstack_sim::Snapshot| snapshot.group_snapshot_id = None;
    assert!(stage.sim.set_snapshot(missing, apart));
    let error = stage.take(&request(&volumes)).await.expect_err("too young");
    assert!(
        matches!(
            &error,
            CloudError::Busy {
                kind: ObjectKind::GroupSnapshot,
                ..
            }
        ),
        "{error}"
    );

    tokio::time::sleep(stage.options().operation_timeout).await;
    let taken = stage.take(&request(&volumes)).await.expect("replaced");
    assert_ne!(taken.id, first.id);
    assert_eq!(sources(&taken), request(&volumes).volumes);
    assert_eq!(stage.resource_counts(), (1, 1, 3, 0), "the one apart is no member");
}

#[tokio::test(start_paused = true)]
async fn smaller_group_snapshot_is_not_replaced() {
    let stage = group_stage().await;
    let volumes = stage.pair().await;
    let first = stage.take(&request(&volumes[..1])).await.expect("taken");
    for _ in 0..2 {
        let error = stage.take(&request(&volumes)).await.expect_err("other volumes");
        assert!(matches!(&error, CloudError::SnapshotExists { .. }), "{error}");
        tokio::time::sleep(3 * stage.options().operation_timeout).await;
    }
    let again = stage.take(&request(&volumes[..1])).await.expect("still there");
    assert_eq!(again.id, first.id);
}

#[tokio::test(start_paused = true)]
async fn next_deletion_removes_stale_group() {
    let stage = group_stage().await;
    let volumes = stage.pair().await;
    let taken = stage.take(&request(&volumes)).await.expect("taken");
    let refused = Fault::on("delete_group").times(1).effect(Effect::status(503));
    stage.sim.fault(refused).expect("a rule");
    let first = stage.cloud.delete_group_snapshot(&taken.id, &BTreeSet::new()).await;
    first.expect_err("the group is still there");
    assert_eq!(stage.resource_counts(), (1, 0, 0, 0));
    stage
        .cloud
        .delete_group_snapshot(&taken.id, &BTreeSet::new())
        .await
        .expect("deleted");
    assert_eq!(stage.resource_counts(), (0, 0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn unlisted_members_prevent_deletion() {
    let stage = group_stage().await;
    let volumes = stage.pair().await;
    let taken = stage.take(&request(&volumes)).await.expect("taken");
    let some = taken
        .snapshots
        .iter()
        .take(1)
        .map(|snapshot| snapshot.id.clone())
        .collect();
    let error = stage
        .cloud
        .delete_group_snapshot(&taken.id, &some)
        .await
        .expect_err("one is missing");
    assert!(matches!(error, CloudError::OtherMembers { .. }), "{error}");
    assert_eq!(stage.resource_counts(), (1, 1, 2, 0));
    let all = taken.snapshots.iter().map(|snapshot| snapshot.id.clone()).collect();
    stage
        .cloud
        .delete_group_snapshot(&taken.id, &all)
        .await
        .expect("deleted");
}

#[tokio::test(start_paused = true)]
async fn missing_volume_fails_before_creation() {
    let stage = group_stage().await;
    let volumes = stage.pair().await;
    let mut new = request(&volumes);
    new.volumes.insert(VolumeId::new(NOTHING));
    let error = stage.take(&new).await.expect_err("one is missing");
    assert!(
        matches!(&error, CloudError::NotFound { kind: ObjectKind::Volume, id, .. } if id == NOTHING),
        "{error}"
    );
    assert_eq!(stage.resource_counts(), (0, 0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn deleted_members_permit_group_deletion() {
    let stage = group_stage().await;
    let volumes = stage.pair().await;
    let taken = stage.take(&request(&volumes)).await.expect("taken");
    let mut named: BTreeSet<_> = taken.snapshots.iter().map(|snapshot| snapshot.id.clone()).collect();
    let alone = cinder_cloud::NewSnapshot {
        name: "alone".to_owned(),
        volume_id: volumes[0].id.clone(),
        force: true,
        description: String::new(),
        metadata: std::collections::BTreeMap::new(),
    };
    let alone = stage.cloud.create_snapshot(alone).await;
    let alone = alone.expect("a snapshot").id;
    named.insert(alone.clone());
    let error = stage
        .cloud
        .delete_group_snapshot(&taken.id, &named)
        .await
        .expect_err("no member");
    assert!(matches!(error, CloudError::OtherMembers { .. }), "{error}");
    // A listed member that does not exist was deleted by an earlier call.
    stage.cloud.delete_point_in_time(alone.as_str()).await.expect("deleted");
    stage
        .cloud
        .delete_group_snapshot(&taken.id, &named)
        .await
        .expect("deleted");
    assert_eq!(stage.resource_counts(), (0, 0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn rejects_group_snapshot_of_other_cluster() {
    let stage = group_stage().await;
    let volumes = stage.pair().await;
    let theirs = NewGroupSnapshot {
        cluster: "other.example".to_owned(),
        ..request(&volumes)
    };
    let taken = stage.take(&theirs).await.expect("taken");
    assert_eq!(taken.cluster.as_deref(), Some("other.example"));
    let error = stage.take(&request(&volumes)).await.expect_err("the other cluster's");
    assert!(
        matches!(&error, CloudError::SnapshotExists { difference, .. } if difference.contains("other.example")),
        "{error}"
    );
    assert_eq!(stage.take(&theirs).await.expect("the same").id, taken.id);
}

#[tokio::test(start_paused = true)]
async fn complete_group_snapshot_survives_busy_volumes() {
    let stage = group_stage().await;
    let volumes = stage.pair().await;
    // The first update adds the volumes to the group, the second removes them.
    let refused = Fault::on("update_group").skip(1).effect(Effect::status(400));
    stage.sim.fault(refused).expect("a rule");
    let taken = stage.take(&request(&volumes)).await.expect("it is complete");
    assert_eq!(taken.snapshots.len(), 2);
    assert_eq!(
        stage.resource_counts(),
        (1, 1, 2, 2),
        "the volumes are still in the group"
    );
    stage.sim.clear_faults();
    stage
        .cloud
        .delete_group_snapshot(&taken.id, &BTreeSet::new())
        .await
        .expect("deleted");
    assert_eq!(stage.resource_counts(), (0, 0, 0, 0));
}
