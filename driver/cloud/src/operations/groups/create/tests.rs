// SPDX-License-Identifier: Apache-2.0
//! Group snapshots of another client, which only a test in this crate can create.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openstack_sim::{Effect, Fault, GroupType, Sim, SimConfig};
use tokio::time::Instant;

use super::*;
use crate::NewVolume;
use crate::api::block_storage::NewGroup;
use crate::config::CloudConfig;
use crate::http::options::CloudOptions;
use crate::ids::GiB;
use crate::operations::groups::poll::{wait_group_settled, wait_group_snapshot_settled};
use crate::operations::volumes::create::create_volume;

/// A group that another client created, with one volume.
struct OtherGroup {
    sim: Sim,
    cx: Context,
    volume: VolumeId,
    id: String,
}

async fn other_group() -> OtherGroup {
    let config = SimConfig {
        group_types: vec![GroupType::consistent("together")],
        ..SimConfig::default()
    };
    let sim = Sim::start(config).await.expect("the simulator starts");
    let config = CloudConfig::from_cloud_conf(&sim.access().cloud_conf()).expect("a good configuration");
    let cx = Context::new(config, CloudOptions::default()).expect("a cloud");
    let volume = NewVolume {
        name: "pvc-1".to_owned(),
        size: GiB::new(1).expect("size"),
        largest: None,
        source: None,
        multiattach: false,
        mode: None,
        allow_mode_change: false,
        volume_type: None,
        availability_zone: None,
        acceptable_zones: Vec::new(),
        description: String::new(),
        metadata: [("cluster".to_owned(), "test".to_owned())].into(),
        same_host: Vec::new(),
        different_host: Vec::new(),
        mutable_metadata: BTreeMap::new(),
    };
    let volume = create_volume(&cx, &volume).await.expect("a volume").volume;

    let cinder = BlockStorage::new(&cx.transport);
    let types = cinder.group_types(|_| true).await.expect("types");
    let group = NewGroup {
        name: "by-hand",
        description: "made by hand",
        group_type: &types[0].id,
        volume_types: volume.volume_type.iter().cloned().collect(),
        availability_zone: volume.availability_zone.as_deref(),
    };
    let group = cinder.create_group(&group).await.expect("a group");
    wait_group_settled(&cx, &group, deadline())
        .await
        .expect("a look")
        .expect("it is there");
    let inside = std::slice::from_ref(&volume.id);
    cinder
        .update_group(&group, inside, &[], None)
        .await
        .expect("the volume enters");
    wait_group_settled(&cx, &group, deadline()).await.expect("a look");
    OtherGroup {
        sim,
        volume: volume.id,
        id: group,
        cx,
    }
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

#[tokio::test]
async fn failed_group_snapshot_of_another_client_stays() {
    let OtherGroup {
        sim,
        cx,
        volume,
        id: group,
    } = other_group().await;
    let cinder = BlockStorage::new(&cx.transport);
    let fails = Fault::on("create_group_snapshot").times(1).effect(Effect::work_fails());
    sim.fault(fails).expect("a rule");
    let theirs = cinder
        .create_group_snapshot(&group, "groupsnapshot-1", "made by hand")
        .await;
    let theirs = theirs.expect("accepted");
    wait_group_snapshot_settled(&cx, &theirs, deadline())
        .await
        .expect("a look");
    let before = sim.state();

    let new = NewGroupSnapshot {
        name: "groupsnapshot-1".to_owned(),
        volumes: BTreeSet::from([volume]),
        group_type: Some("together".to_owned()),
        cluster: String::new(),
    };
    let error = create_group_snapshot(&cx, &new).await.expect_err("somebody else's");
    assert!(
        matches!(&error, CloudError::SnapshotExists { kind: ObjectKind::GroupSnapshot, id, .. } if *id == theirs),
        "{error}"
    );
    let after = sim.state();
    assert_eq!(after.group_snapshots, before.group_snapshots);
    assert_eq!(
        (after.groups.len(), after.snapshots.len()),
        (before.groups.len(), before.snapshots.len())
    );
}

#[tokio::test]
async fn group_with_stale_record_is_emptied() {
    let OtherGroup {
        sim: _running,
        cx,
        volume,
        id,
    } = other_group().await;
    let cinder = BlockStorage::new(&cx.transport);
    let record = cinder.group(&id).await.expect("an answer").expect("the group");
    let inside = std::slice::from_ref(&volume);
    let removed = cinder.update_group(&id, &[], inside, None).await;
    removed.expect("the volume leaves");
    wait_group_settled(&cx, &id, deadline()).await.expect("an answer");
    let emptied = own::empty_group(&cx, &record, Some("emptied"), deadline()).await;
    emptied.expect("no volume is in the group");
    let left = cinder.group(&id).await.expect("an answer").expect("the group");
    assert_eq!((left.description.as_str(), left.volumes.len()), ("emptied", 0));
}
