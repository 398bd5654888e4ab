//! Snapshots of several volumes taken one by one: found again by marks, gone together, and nothing of anybody else's with them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cinder_cloud::{
    CloudError, GroupSnapshot, NewGroupSnapshot, NewOneByOne, NewSnapshot, NewVolume, ObjectKind, SnapshotId, Source,
    Volume, VolumeId,
};
use openstack_sim::{Effect, Fault, GroupType, SimConfig, When};
use rstest::rstest;

use crate::support::{NOTHING, Stage, latencies, new, stage, stage_with};

const PATIENCE: Duration = Duration::from_secs(10);

fn wanted(volumes: &[Volume]) -> NewOneByOne {
    NewOneByOne {
        name: "groupsnapshot-1".to_owned(),
        volumes: volumes.iter().map(|volume| volume.id.clone()).collect(),
        force: true,
        description: "made by a test".to_owned(),
        metadata: BTreeMap::from([("cinder.csi.openstack.org/cluster".to_owned(), "test".to_owned())]),
        mark_zones: true,
    }
}

impl Stage {
    async fn three(&self) -> [Volume; 3] {
        tokio::join!(
            Box::pin(self.create("pvc-1")),
            Box::pin(self.create("pvc-2")),
            Box::pin(self.create("pvc-3"))
        )
        .into()
    }

    async fn one_by_one(&self, new: &NewOneByOne) -> Result<GroupSnapshot, CloudError> {
        self.cloud.create_one_by_one(new.clone(), PATIENCE).await
    }

    fn snapshots(&self) -> usize {
        self.sim.state().snapshots.len()
    }

    /// A snapshot of nobody's group.
    async fn alone(&self, name: &str, volume: &Volume) -> SnapshotId {
        let new = NewSnapshot {
            name: name.to_owned(),
            volume_id: volume.id.clone(),
            force: true,
            description: String::new(),
            metadata: BTreeMap::new(),
        };
        let made = self.cloud.create_snapshot(new, Some(PATIENCE)).await;
        made.expect("a snapshot").id
    }
}

fn members(taken: &GroupSnapshot) -> BTreeSet<SnapshotId> {
    taken.snapshots.iter().map(|member| member.id.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn members_taken_one_by_one_are_found_by_name_and_by_id_and_go_together() {
    // This cloud has no group types: none is needed.
    let stage = stage().await;
    let volumes = stage.three().await;
    let taken = stage.one_by_one(&wanted(&volumes)).await.expect("taken");
    assert_eq!((taken.snapshots.len(), taken.members), (3, 3));
    for member in &taken.snapshots {
        assert_eq!(member.group(), Some(taken.id.as_str()));
        assert_eq!(member.metadata["cinder.csi.openstack.org/cluster"], "test");
        assert_eq!(member.metadata["cinder.csi.openstack.org/zone"], "nova");
        let error = stage.cloud.delete_point_in_time(member.id.as_str()).await;
        let error = error.expect_err("a member goes only with all of them");
        assert!(
            matches!(&error, CloudError::MemberOfGroup { group, .. } if *group == taken.id.to_string()),
            "{error}"
        );
    }
    assert_eq!(stage.one_by_one(&wanted(&volumes)).await.expect("found"), taken);
    assert_eq!(
        stage.cloud.group_snapshot(&taken.id).await.expect("a look"),
        Some(taken.clone())
    );
    let bystander = stage.alone("another", &volumes[0]).await;
    stage
        .cloud
        .delete_group_snapshot(&taken.id, &members(&taken))
        .await
        .expect("deleted");
    assert_eq!(stage.sim.state().snapshots.len(), 1, "another's stays");
    assert_eq!(stage.sim.state().snapshots[0].id, bystander.as_str());
    assert_eq!(stage.cloud.group_snapshot(&taken.id).await.expect("a look"), None);
    stage
        .cloud
        .delete_group_snapshot(&taken.id, &members(&taken))
        .await
        .expect("deleted twice");
    assert_eq!(stage.snapshots(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_that_takes_long_is_answered_as_it_is_and_joined_by_the_next_call() {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| l.snapshot = Duration::from_millis(600)),
        ..SimConfig::default()
    })
    .await;
    let volumes = stage.three().await;
    let early = stage
        .cloud
        .create_one_by_one(wanted(&volumes), Duration::ZERO)
        .await
        .expect("under way");
    assert!(
        early.snapshots.iter().all(|member| !member.status.is_complete()),
        "{early:?}"
    );
    let whole = stage.one_by_one(&wanted(&volumes)).await.expect("complete");
    assert_eq!(members(&whole), members(&early));
    assert!(
        whole.snapshots.iter().all(|member| member.status.is_complete()),
        "{whole:?}"
    );
    assert_eq!(stage.sim.count("create_snapshot"), 3);
}

#[tokio::test(start_paused = true)]
async fn two_members_of_one_volume_do_not_stand_for_that_of_another() {
    let stage = stage().await;
    let volumes = stage.three().await;
    // As if the answer to the creation of the first had been lost, and its second attempt come before Cinder was done.
    let first = stage.one_by_one(&wanted(&volumes[..2])).await.expect("taken");
    let moved = first
        .snapshots
        .iter()
        .find(|member| member.volume_id == volumes[1].id)
        .expect("a member");
    assert!(stage.sim.set_snapshot(moved.id.as_str(), |member| {
        member.volume_id = volumes[0].id.to_string();
        member.name = Some(format!("groupsnapshot-1-{}", volumes[0].id));
    }));
    let whole = stage.one_by_one(&wanted(&volumes[..2])).await.expect("completed");
    let of: BTreeSet<VolumeId> = whole.snapshots.into_iter().map(|member| member.volume_id).collect();
    assert_eq!(of, wanted(&volumes[..2]).volumes);
}

#[tokio::test(start_paused = true)]
async fn other_volumes_under_the_same_name_are_refused_and_nothing_is_touched() {
    let stage = stage().await;
    let volumes = stage.three().await;
    let taken = stage.one_by_one(&wanted(&volumes[..2])).await.expect("taken");
    for other in [&volumes[..1], &volumes[1..], &volumes[..]] {
        let error = stage.one_by_one(&wanted(other)).await.expect_err("other volumes");
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
    assert_eq!(
        stage.cloud.group_snapshot(&taken.id).await.expect("a look"),
        Some(taken)
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_cut_together_and_what_was_taken_one_by_one_are_not_mistaken_for_each_other() {
    let stage = stage_with(SimConfig {
        group_types: vec![GroupType::consistent("together")],
        ..SimConfig::default()
    })
    .await;
    let volumes = stage.three().await;
    let together = |name: &str| NewGroupSnapshot {
        name: name.to_owned(),
        volumes: wanted(&volumes).volumes,
        group_type: Some("together".to_owned()),
    };
    stage
        .cloud
        .create_group_snapshot(together("groupsnapshot-1"))
        .await
        .expect("cut");
    let error = stage.one_by_one(&wanted(&volumes)).await.expect_err("cut together");
    assert!(
        matches!(&error, CloudError::SnapshotExists { .. }) && error.to_string().contains("one moment"),
        "{error}"
    );
    let second = NewOneByOne {
        name: "groupsnapshot-2".to_owned(),
        ..wanted(&volumes)
    };
    stage.one_by_one(&second).await.expect("taken");
    let error = stage
        .cloud
        .create_group_snapshot(together("groupsnapshot-2"))
        .await
        .expect_err("taken one by one");
    assert!(
        matches!(&error, CloudError::SnapshotExists { .. }) && error.to_string().contains("one by one"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_missing_volume_is_told_before_anything_is_made() {
    let stage = stage().await;
    let mut new = wanted(&stage.three().await);
    new.volumes.insert(VolumeId::new(NOTHING));
    let error = stage.one_by_one(&new).await.expect_err("one is missing");
    assert!(
        matches!(&error, CloudError::NotFound { kind: ObjectKind::Volume, id, .. } if id == NOTHING),
        "{error}"
    );
    assert_eq!(stage.sim.count("create_snapshot"), 0);
}

#[rstest]
#[case(Effect::work_fails())]
#[case(Effect::quota())]
#[tokio::test(start_paused = true)]
async fn a_failure_that_does_not_pass_leaves_no_member_behind(#[case] effect: Effect) {
    let stage = stage().await;
    let volumes = stage.three().await;
    let bystander = stage.alone("another", &volumes[0]).await;
    stage
        .sim
        .fault(Fault::on("create_snapshot").skip(1).times(1).effect(effect))
        .expect("a rule");
    let error = stage.one_by_one(&wanted(&volumes)).await.expect_err("one failed");
    assert!(
        matches!(error, CloudError::SnapshotFailed { .. } | CloudError::Quota(_)),
        "{error}"
    );
    let left = stage.sim.state().snapshots;
    assert_eq!(
        left.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(),
        [bystander.as_str()]
    );
    stage.one_by_one(&wanted(&volumes)).await.expect("the next one");
    assert_eq!(stage.snapshots(), 4);
}

#[tokio::test(start_paused = true)]
async fn what_passes_keeps_the_members_for_the_next_call() {
    let stage = stage().await;
    let volumes = stage.three().await;
    let lost = Fault::on("create_snapshot")
        .skip(1)
        .times(1)
        .effect(Effect::cut(When::After));
    stage.sim.fault(lost).expect("a rule");
    let taken = match stage.one_by_one(&wanted(&volumes)).await {
        Ok(taken) => taken,
        Err(_) => stage.one_by_one(&wanted(&volumes)).await.expect("the next one"),
    };
    assert_eq!(
        (
            taken.snapshots.len(),
            stage.snapshots(),
            stage.sim.count("create_snapshot")
        ),
        (3, 3, 3)
    );
}

#[tokio::test(start_paused = true)]
async fn somebody_elses_snapshot_of_a_members_name_is_neither_taken_in_nor_removed() {
    let stage = stage().await;
    let volumes = stage.three().await;
    let foreign = stage
        .alone(&format!("groupsnapshot-1-{}", volumes[1].id), &volumes[1])
        .await;
    let error = stage
        .one_by_one(&wanted(&volumes))
        .await
        .expect_err("the name is taken");
    assert!(
        matches!(&error, CloudError::SnapshotExists { kind: ObjectKind::Snapshot, id, .. } if id == foreign.as_str()),
        "{error}"
    );
    let left = stage.sim.state().snapshots;
    assert_eq!(
        left.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(),
        [foreign.as_str()]
    );
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_got_half_way_is_ended_by_the_next_one() {
    let stage = stage().await;
    let volumes = stage.three().await;
    let taken = stage.one_by_one(&wanted(&volumes)).await.expect("taken");
    stage
        .sim
        .fault(
            Fault::on("delete_snapshot")
                .skip(1)
                .times(1)
                .effect(Effect::policy("volume:delete_snapshot")),
        )
        .expect("a rule");
    stage
        .cloud
        .delete_group_snapshot(&taken.id, &members(&taken))
        .await
        .expect_err("one stays");
    assert_eq!(stage.snapshots(), 1, "all that can go has gone");
    stage
        .cloud
        .delete_group_snapshot(&taken.id, &members(&taken))
        .await
        .expect("a subset is there");
    assert_eq!(stage.snapshots(), 0);
}

#[tokio::test(start_paused = true)]
async fn other_members_than_those_named_keep_all_of_them_alive() {
    let stage = stage().await;
    let volumes = stage.three().await;
    let taken = stage.one_by_one(&wanted(&volumes)).await.expect("taken");
    let few: BTreeSet<SnapshotId> = members(&taken).into_iter().take(2).collect();
    let mut many = members(&taken);
    many.insert(stage.alone("another", &volumes[0]).await);
    for named in [few, many] {
        let error = stage
            .cloud
            .delete_group_snapshot(&taken.id, &named)
            .await
            .expect_err("not these");
        assert!(matches!(error, CloudError::OtherMembers { .. }), "{error}");
    }
    assert_eq!(stage.snapshots(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_a_volume_is_built_on_is_told_and_the_deletion_can_be_repeated() {
    let stage = stage_with(SimConfig {
        clones_hold_sources: true,
        ..SimConfig::default()
    })
    .await;
    let volumes = stage.three().await;
    let taken = stage.one_by_one(&wanted(&volumes)).await.expect("taken");
    let restored = NewVolume {
        source: Some(Source::PointInTime(taken.snapshots[0].id.to_string())),
        ..new("restored")
    };
    let restored = stage.cloud.create_volume(restored).await.expect("restored").volume;
    let error = stage
        .cloud
        .delete_group_snapshot(&taken.id, &members(&taken))
        .await
        .expect_err("needed");
    assert!(matches!(&error, CloudError::StillNeeded { .. }), "{error}");
    stage.cloud.delete_volume(&restored.id).await.expect("deleted");
    stage
        .cloud
        .delete_group_snapshot(&taken.id, &members(&taken))
        .await
        .expect("deleted");
    assert_eq!(stage.snapshots(), 0);
}

/// Runs `work` until so many calls were made; `None` when it was cut short.
async fn cut_short<T>(stage: &Stage, calls: usize, work: impl Future<Output = T>) -> Option<T> {
    tokio::pin!(work);
    let mut tick = tokio::time::interval(Duration::from_millis(1));
    loop {
        tokio::select! {
            ended = &mut work => return Some(ended),
            _ = tick.tick() => if stage.calls() > calls { return None },
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_call_may_be_the_last_of_its_process_and_the_next_process_ends_it() {
    let stage = stage().await;
    let volumes = stage.three().await;
    let mut last = 0;
    loop {
        let new = NewOneByOne {
            name: format!("groupsnapshot-{last}"),
            ..wanted(&volumes)
        };
        stage.sim.clear_log();
        let created = cut_short(&stage, last, stage.one_by_one(&new)).await;
        let taken = stage.one_by_one(&new).await;
        let taken = taken.unwrap_or_else(|error| panic!("after call {last} of the creation: {error}"));
        assert_eq!((taken.snapshots.len(), stage.snapshots()), (3, 3), "after call {last}");
        let named = members(&taken);
        stage.sim.clear_log();
        let deleted = cut_short(&stage, last, stage.cloud.delete_group_snapshot(&taken.id, &named)).await;
        let again = stage.cloud.delete_group_snapshot(&taken.id, &named).await;
        again.unwrap_or_else(|error| panic!("after call {last} of the deletion: {error}"));
        assert_eq!(stage.snapshots(), 0, "after call {last}");
        if created.is_some() && deleted.is_some() {
            break;
        }
        last += 1;
    }
    assert!(last > 8, "it was cut short after {last} calls only");
}
