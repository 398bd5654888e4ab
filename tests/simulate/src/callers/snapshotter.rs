//! external-snapshotter: snapshots of one volume, and of several at one moment.

use std::time::Duration;

use csi_proto::csi::v1::{
    CreateSnapshotRequest, CreateVolumeGroupSnapshotRequest, DeleteSnapshotRequest, DeleteVolumeGroupSnapshotRequest,
};
use tonic::Code;

use crate::cluster::{Backoff, Cluster, Sidecar};
use crate::judge::ends_snapshot;
use crate::ledger::Known;

/// Takes a snapshot and waits until it is ready. Nothing where it is refused for good.
pub(super) async fn cut(cluster: &Cluster, name: &str, volume: &str, limit: Duration) -> Option<String> {
    let schedule = &cluster.schedule;
    let mut backoff = Backoff::new();
    cluster.ledger.book().snapshots.insert(name.to_owned(), Known::Asked);
    let mut made = None;
    loop {
        let request = CreateSnapshotRequest {
            source_volume_id: volume.to_owned(),
            name: name.to_owned(),
            ..CreateSnapshotRequest::default()
        };
        let call = async |mut client: csi_proto::csi::v1::controller_client::ControllerClient<_>, request| {
            client.create_snapshot(request).await
        };
        match cluster.controller(Sidecar::Snapshotter, limit, request, call).await {
            Ok(answer) => {
                let snapshot = answer.snapshot.unwrap_or_default();
                cluster.judge.cut(name, &snapshot.snapshot_id, snapshot.ready_to_use);
                let known = Known::Made(snapshot.snapshot_id.clone());
                cluster.ledger.book().snapshots.insert(name.to_owned(), known);
                if snapshot.ready_to_use {
                    schedule.note(&format!("snapshot {name} is {}", snapshot.snapshot_id));
                    return Some(snapshot.snapshot_id);
                }
                made = Some(snapshot.snapshot_id);
            }
            Err(status) => {
                schedule.note(&format!("snapshot {name}: {:?}: {}", status.code(), status.message()));
                if ends_snapshot(status.code()) {
                    if let Some(id) = made {
                        // It was made, so its content object stays and is deleted with it.
                        return Some(id);
                    }
                    cluster.judge.refused_snapshot(name, status.code(), status.message());
                    cluster.ledger.book().snapshots.remove(name);
                    return None;
                }
            }
        }
        backoff.pause(schedule, name).await;
    }
}

/// Deletes a snapshot.
pub(super) async fn delete(cluster: &Cluster, name: &str, id: &str, limit: Duration) {
    let schedule = &cluster.schedule;
    let mut backoff = Backoff::new();
    cluster
        .ledger
        .book()
        .snapshots
        .insert(name.to_owned(), Known::Deleting(id.to_owned()));
    loop {
        let request = DeleteSnapshotRequest {
            snapshot_id: id.to_owned(),
            ..DeleteSnapshotRequest::default()
        };
        let call = async |mut client: csi_proto::csi::v1::controller_client::ControllerClient<_>, request| {
            client.delete_snapshot(request).await
        };
        match cluster.controller(Sidecar::Snapshotter, limit, request, call).await {
            Ok(_) => {
                schedule.note(&format!("snapshot {id} of {name} is deleted"));
                cluster.judge.deleted_snapshot(id);
                cluster.ledger.book().snapshots.remove(name);
                return;
            }
            Err(status) => schedule.note(&format!(
                "deletion of snapshot {id}: {:?}: {}",
                status.code(),
                status.message()
            )),
        }
        backoff.pause(schedule, name).await;
    }
}

/// Takes snapshots of several volumes at one moment, and deletes them again.
pub(super) async fn cut_group(cluster: &Cluster, name: &str, volumes: &[String], limit: Duration) {
    let schedule = &cluster.schedule;
    let mut backoff = Backoff::new();
    {
        let mut book = cluster.ledger.book();
        book.group_snapshots.insert(name.to_owned(), Known::Asked);
        book.members.insert(name.to_owned(), volumes.to_vec());
    }
    let (id, members) = loop {
        let request = CreateVolumeGroupSnapshotRequest {
            name: name.to_owned(),
            source_volume_ids: volumes.to_vec(),
            // The simulator's group type of consistent snapshots.
            parameters: [("group-type".to_owned(), "consistent".to_owned())].into(),
            ..CreateVolumeGroupSnapshotRequest::default()
        };
        let call = async |mut client: csi_proto::csi::v1::group_controller_client::GroupControllerClient<_>,
                          request| client.create_volume_group_snapshot(request).await;
        match cluster.group_controller(limit, request, call).await {
            Ok(answer) => {
                let group = answer.group_snapshot.unwrap_or_default();
                let known = Known::Made(group.group_snapshot_id.clone());
                cluster.ledger.book().group_snapshots.insert(name.to_owned(), known);
                if group.ready_to_use {
                    if group.snapshots.len() != volumes.len() {
                        schedule.violation(&format!(
                            "group snapshot {name} of {} volumes has {} snapshots",
                            volumes.len(),
                            group.snapshots.len()
                        ));
                    }
                    let members: Vec<String> = group
                        .snapshots
                        .into_iter()
                        .map(|snapshot| snapshot.snapshot_id)
                        .collect();
                    break (group.group_snapshot_id, members);
                }
            }
            Err(status) => {
                schedule.note(&format!(
                    "group snapshot {name}: {:?}: {}",
                    status.code(),
                    status.message()
                ));
                if status.code() == Code::AlreadyExists {
                    schedule.violation(&format!("CreateVolumeGroupSnapshot of {name} answered ALREADY_EXISTS, and the request has never changed: {}", status.message()));
                }
                if ends_snapshot(status.code()) {
                    let state = cluster.sim.state();
                    if state
                        .group_snapshots
                        .iter()
                        .any(|snapshot| snapshot.name.as_deref() == Some(name))
                    {
                        schedule.violation(&format!(
                            "CreateVolumeGroupSnapshot of {name} ended with {:?}, and it exists: {}",
                            status.code(),
                            status.message()
                        ));
                    }
                    cluster.ledger.book().group_snapshots.remove(name);
                    return;
                }
            }
        }
        backoff.pause(schedule, name).await;
    };
    cluster
        .ledger
        .book()
        .group_snapshots
        .insert(name.to_owned(), Known::Deleting(id.clone()));
    let mut backoff = Backoff::new();
    loop {
        let request = DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: id.clone(),
            snapshot_ids: members.clone(),
            ..DeleteVolumeGroupSnapshotRequest::default()
        };
        let call = async |mut client: csi_proto::csi::v1::group_controller_client::GroupControllerClient<_>,
                          request| client.delete_volume_group_snapshot(request).await;
        match cluster.group_controller(limit, request, call).await {
            Ok(_) => {
                let state = cluster.sim.state();
                if state.group_snapshot(&id).is_some() || members.iter().any(|member| state.snapshot(member).is_some())
                {
                    schedule.violation(&format!(
                        "DeleteVolumeGroupSnapshot of {id} answered OK, and something of it is left"
                    ));
                }
                cluster.ledger.book().group_snapshots.remove(name);
                return;
            }
            Err(status) => schedule.note(&format!(
                "deletion of group snapshot {id}: {:?}: {}",
                status.code(),
                status.message()
            )),
        }
        backoff.pause(schedule, name).await;
    }
}
