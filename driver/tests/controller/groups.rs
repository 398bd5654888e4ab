// SPDX-License-Identifier: Apache-2.0

use std::collections::{BTreeMap, BTreeSet};

use csi_proto::csi::v1::group_controller_client::GroupControllerClient;
use csi_proto::csi::v1::{
    CreateVolumeGroupSnapshotRequest, DeleteSnapshotRequest, DeleteVolumeGroupSnapshotRequest,
    GetVolumeGroupSnapshotRequest, VolumeGroupSnapshot,
};
use openstack_sim::{Effect, Fault, GroupType, Sim};
use tonic::{Code, Status};

use crate::channel::Channel;
use crate::support::{Driver, UNKNOWN, cloud, patient, refused};

impl Driver {
    fn groups(&self) -> GroupControllerClient<Channel> {
        GroupControllerClient::new(self.channel())
    }
}

async fn grouping() -> Sim {
    cloud(|config| config.group_types = vec![GroupType::consistent("together"), GroupType::new("loose")]).await
}

fn request(volumes: &[&String]) -> CreateVolumeGroupSnapshotRequest {
    CreateVolumeGroupSnapshotRequest {
        name: "groupsnapshot-1".into(),
        source_volume_ids: volumes.iter().map(|&id| id.clone()).collect(),
        parameters: BTreeMap::from([("group-type".to_owned(), "together".to_owned())]),
        ..CreateVolumeGroupSnapshotRequest::default()
    }
}

async fn take(driver: &Driver, request: CreateVolumeGroupSnapshotRequest) -> Result<VolumeGroupSnapshot, Status> {
    let answer = driver.groups().create_volume_group_snapshot(patient(request)).await?;
    Ok(answer.into_inner().group_snapshot.expect("a group snapshot"))
}

async fn get(driver: &Driver, id: &str, members: &[String]) -> Result<VolumeGroupSnapshot, Status> {
    let request = GetVolumeGroupSnapshotRequest {
        group_snapshot_id: id.into(),
        snapshot_ids: members.to_vec(),
        ..GetVolumeGroupSnapshotRequest::default()
    };
    let answer = driver.groups().get_volume_group_snapshot(patient(request)).await?;
    Ok(answer.into_inner().group_snapshot.expect("a group snapshot"))
}

async fn delete(driver: &Driver, id: &str, members: &[String]) -> Result<(), Status> {
    let request = DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id: id.into(),
        snapshot_ids: members.to_vec(),
        ..DeleteVolumeGroupSnapshotRequest::default()
    };
    driver
        .groups()
        .delete_volume_group_snapshot(patient(request))
        .await
        .map(drop)
}

fn members(group_snapshot: &VolumeGroupSnapshot) -> Vec<String> {
    group_snapshot
        .snapshots
        .iter()
        .map(|member| member.snapshot_id.clone())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn group_snapshot_is_created_and_deleted_with_members() {
    let sim = grouping().await;
    let driver = Driver::start(&sim);
    let (one, two) = (driver.volume("pvc-1").await, driver.volume("pvc-2").await);
    let group_snapshot = take(&driver, request(&[&one, &two])).await.expect("taken");
    assert!(group_snapshot.ready_to_use && group_snapshot.creation_time.is_some());
    let sources: BTreeSet<&String> = group_snapshot
        .snapshots
        .iter()
        .map(|member| &member.source_volume_id)
        .collect();
    assert_eq!(sources, BTreeSet::from([&one, &two]));
    for member in &group_snapshot.snapshots {
        assert_eq!(member.group_snapshot_id, group_snapshot.group_snapshot_id);
        assert!(member.ready_to_use && member.size_bytes > 0 && member.creation_time.is_some());
        // A member can only be deleted together with the group snapshot.
        let alone = DeleteSnapshotRequest {
            snapshot_id: member.snapshot_id.clone(),
            ..DeleteSnapshotRequest::default()
        };
        let refusal = refused(
            driver.controller().delete_snapshot(patient(alone)).await,
            Code::InvalidArgument,
        );
        assert!(refusal.contains(&group_snapshot.group_snapshot_id), "{refusal}");
    }
    assert_eq!(
        take(&driver, request(&[&two, &one])).await.expect("the same"),
        group_snapshot
    );
    let id = group_snapshot.group_snapshot_id.as_str();
    assert_eq!(
        get(&driver, id, &members(&group_snapshot)).await.expect("it is there"),
        group_snapshot
    );
    refused(
        get(&driver, id, &members(&group_snapshot)[..1]).await,
        Code::InvalidArgument,
    );
    refused(
        delete(&driver, id, &members(&group_snapshot)[..1]).await,
        Code::InvalidArgument,
    );
    delete(&driver, id, &members(&group_snapshot)).await.expect("deleted");
    delete(&driver, id, &members(&group_snapshot))
        .await
        .expect("deleted twice");
    refused(get(&driver, id, &[]).await, Code::NotFound);
    driver.delete(&one).await.expect("the volumes are free");
    driver.delete(&two).await.expect("the volumes are free");
    let state = sim.state();
    assert!(state.groups.is_empty() && state.group_snapshots.is_empty() && state.snapshots.is_empty());
}

#[tokio::test(start_paused = true)]
async fn invalid_group_requests_have_distinct_codes() {
    let sim = grouping().await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    let unknown = UNKNOWN.to_owned();
    let fake = "fake-vol-id".to_owned();
    let nameless = CreateVolumeGroupSnapshotRequest {
        name: String::new(),
        ..request(&[&volume])
    };
    let typeless = CreateVolumeGroupSnapshotRequest {
        parameters: BTreeMap::from([("group-type".to_owned(), "no-such-type".to_owned())]),
        ..request(&[&volume])
    };
    for (bad, code) in [
        (nameless, Code::InvalidArgument),
        (request(&[]), Code::InvalidArgument),
        (request(&[&volume, &unknown]), Code::NotFound),
        (request(&[&fake]), Code::NotFound),
        (typeless, Code::FailedPrecondition),
    ] {
        refused(take(&driver, bad).await, code);
    }
    take(&driver, request(&[&volume])).await.expect("taken");
    let other = driver.volume("pvc-2").await;
    refused(take(&driver, request(&[&volume, &other])).await, Code::AlreadyExists);
    refused(get(&driver, "", &[]).await, Code::InvalidArgument);
    refused(get(&driver, "fake-id", &[]).await, Code::NotFound);
    refused(get(&driver, UNKNOWN, &[]).await, Code::NotFound);
    refused(delete(&driver, "", &[]).await, Code::InvalidArgument);
    delete(&driver, "fake-id", &[]).await.expect("never was");
    delete(&driver, UNKNOWN, &[]).await.expect("never was");
}

#[tokio::test(start_paused = true)]
async fn group_of_other_cluster_is_protected() {
    let sim = grouping().await;
    let theirs = Driver::start_with(&sim, &sim.access().cloud_conf(), |args| args.cluster = "theirs".into());
    let volume = theirs.volume("pvc-1").await;
    let group_snapshot = take(&theirs, request(&[&volume])).await.expect("taken");
    let (id, member) = (
        &group_snapshot.group_snapshot_id,
        &group_snapshot.snapshots[0].snapshot_id,
    );
    let mark = ("cinder.csi.openstack.org/cluster".to_owned(), "theirs".to_owned());
    assert!(sim.set_snapshot(member, |snapshot| snapshot.metadata.extend([mark])));
    let ours = Driver::start_with(&sim, &sim.access().cloud_conf(), |args| {
        args.cluster = "ours".into();
        args.protect_other_clusters = true;
    });
    let refusal = refused(delete(&ours, id, &[]).await, Code::FailedPrecondition);
    assert!(refusal.contains("theirs"), "{refusal}");
    assert_eq!(sim.state().snapshots.len(), 1);
    delete(&theirs, id, &[]).await.expect("deleted");
}

/// An API node with a lagging database does not show a new group snapshot.
#[tokio::test(start_paused = true)]
async fn group_of_other_cluster_is_protected_despite_404() {
    let sim = grouping().await;
    let theirs = Driver::start_with(&sim, &sim.access().cloud_conf(), |args| args.cluster = "theirs".into());
    let volume = theirs.volume("pvc-1").await;
    let group_snapshot = take(&theirs, request(&[&volume])).await.expect("taken");
    let ours = Driver::start_with(&sim, &sim.access().cloud_conf(), |args| {
        args.cluster = "ours".into();
        args.protect_other_clusters = true;
    });
    sim.fault(Fault::on("get_group_snapshot").times(1).effect(Effect::status(404)))
        .expect("a rule");
    refused(
        delete(&ours, &group_snapshot.group_snapshot_id, &[]).await,
        Code::FailedPrecondition,
    );
    assert_eq!(sim.state().snapshots.len(), 1);
}
