// SPDX-License-Identifier: Apache-2.0
//! Group snapshots whose members an earlier version took one by one: found, deleted together, and nothing of others with them.

use std::collections::{BTreeMap, BTreeSet};

use cinder_cloud::{
    CloudError, GroupSnapshot, GroupSnapshotId, NewGroupSnapshot, NewSnapshot, NewVolume, SnapshotId, Source, Volume,
};
use openstack_sim::{Effect, Fault, GroupType, SimConfig};

use crate::support::{Stage, new, stage, stage_with};

/// The id that the earlier version made of the name `groupsnapshot-1`.
const ID: &str = "7932a195-e048-8bbc-8983-2d908c1f26b9";

impl Stage {
    async fn three(&self) -> [Volume; 3] {
        tokio::join!(
            Box::pin(self.create("pvc-1")),
            Box::pin(self.create("pvc-2")),
            Box::pin(self.create("pvc-3"))
        )
        .into()
    }

    /// What the earlier version left of `groupsnapshot-1`.
    async fn taken(&self, volumes: &[Volume]) -> GroupSnapshot {
        for volume in volumes {
            let metadata = [
                ("cinder.csi.openstack.org/cluster", "test"),
                ("cinder.csi.openstack.org/group-snapshot", ID),
                (
                    "cinder.csi.openstack.org/group-snapshot-members",
                    &volumes.len().to_string(),
                ),
            ];
            let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned()));
            self.snapshot(&format!("groupsnapshot-1-{}", volume.id), volume, metadata.into())
                .await;
        }
        let found = self.cloud.group_snapshot(&GroupSnapshotId::new(ID)).await;
        found.expect("a look").expect("it is there")
    }

    fn snapshots(&self) -> usize {
        self.sim.state().snapshots.len()
    }

    /// A snapshot of no group.
    async fn alone(&self, name: &str, volume: &Volume) -> SnapshotId {
        self.snapshot(name, volume, BTreeMap::new()).await
    }

    async fn snapshot(&self, name: &str, volume: &Volume, metadata: BTreeMap<String, String>) -> SnapshotId {
        let new = NewSnapshot {
            name: name.to_owned(),
            volume_id: volume.id.clone(),
            force: true,
            description: String::new(),
            metadata,
        };
        self.cloud.create_snapshot(new).await.expect("a snapshot").id
    }
}

fn members(taken: &GroupSnapshot) -> BTreeSet<SnapshotId> {
    taken.snapshots.iter().map(|member| member.id.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn members_taken_one_by_one_are_found_by_id_and_go_together() {
    let stage = stage().await;
    let volumes = stage.three().await;
    let taken = stage.taken(&volumes).await;
    assert_eq!((taken.snapshots.len(), taken.members), (3, 3));
    for member in &taken.snapshots {
        assert_eq!(member.group(), Some(ID));
        let error = stage.cloud.delete_point_in_time(member.id.as_str()).await;
        let error = error.expect_err("a member goes only with all of them");
        assert!(
            matches!(&error, CloudError::MemberOfGroup { group, .. } if group == ID),
            "{error}"
        );
    }
    let bystander = stage.alone("another", &volumes[0]).await;
    for _ in 0..2 {
        let deleted = stage.cloud.delete_group_snapshot(&taken.id, &members(&taken)).await;
        deleted.expect("deleted, twice");
        assert_eq!(stage.snapshots(), 1, "another's stays");
    }
    assert_eq!(stage.sim.state().snapshots[0].id, bystander.as_str());
    assert_eq!(stage.cloud.group_snapshot(&taken.id).await.expect("a look"), None);
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_one_by_one_is_no_group_snapshot_of_one_moment() {
    let stage = stage_with(SimConfig {
        group_types: vec![GroupType::consistent("together")],
        ..SimConfig::default()
    })
    .await;
    let volumes = stage.three().await;
    stage.taken(&volumes).await;
    let together = NewGroupSnapshot {
        name: "groupsnapshot-1".to_owned(),
        volumes: volumes.iter().map(|volume| volume.id.clone()).collect(),
        group_type: Some("together".to_owned()),
    };
    let error = stage
        .cloud
        .create_group_snapshot(together)
        .await
        .expect_err("taken one by one");
    assert!(
        matches!(&error, CloudError::SnapshotExists { .. }) && error.to_string().contains("one by one"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_got_half_way_is_ended_by_the_next_one() {
    let stage = stage().await;
    let volumes = stage.three().await;
    let taken = stage.taken(&volumes).await;
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
    let taken = stage.taken(&volumes).await;
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
    let taken = stage.taken(&volumes).await;
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
