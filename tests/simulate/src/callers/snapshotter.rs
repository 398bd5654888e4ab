// SPDX-License-Identifier: Apache-2.0
//! external-snapshotter: snapshots and backups of one volume, and group snapshots.

use std::time::Duration;

use csi_proto::csi::v1::{
    CreateSnapshotRequest, CreateSnapshotResponse, CreateVolumeGroupSnapshotRequest, CreateVolumeGroupSnapshotResponse,
    DeleteSnapshotRequest, DeleteVolumeGroupSnapshotRequest,
};

use super::Claim;
use crate::call::{Call, Sidecar};
use crate::cluster::{Answer, Cluster, Controller, GroupController};
use crate::judge::ends_snapshot;
use crate::ledger::ResourceState;

/// Takes a snapshot or a backup, and waits until it is ready. Returns `None` after a final error.
pub(super) async fn cut(cluster: &Cluster, name: &str, claim: &Claim, kind: &'static str) -> Option<String> {
    let (volume, limit) = (claim.volume.as_str(), claim.limit);
    cluster
        .ledger
        .book()
        .snapshots
        .insert(name.to_owned(), ResourceState::Asked);
    let create = || {
        let request = CreateSnapshotRequest {
            source_volume_id: volume.to_owned(),
            name: name.to_owned(),
            parameters: [("type".to_owned(), kind.to_owned())].into(),
            secrets: claim.secrets.clone(),
            ..CreateSnapshotRequest::default()
        };
        let call = async |mut client: Controller, request| client.create_snapshot(request).await;
        cluster.controller(Sidecar::Snapshotter, limit, request, call)
    };
    // The sidecar retains the first id.
    let mut made: Option<String> = None;
    let end = |answer: Answer<CreateSnapshotResponse>| match answer {
        Ok(CreateSnapshotResponse { snapshot }) => {
            let snapshot = snapshot.unwrap_or_default();
            let id = made.get_or_insert(snapshot.snapshot_id.clone()).clone();
            let judge = &cluster.judge;
            judge.cut(name, &id, &snapshot.snapshot_id, snapshot.ready_to_use);
            let known = ResourceState::Made(id.clone());
            cluster.ledger.book().snapshots.insert(name.to_owned(), known);
            snapshot.ready_to_use.then(|| {
                cluster.schedule.note(&format!("{kind} {name} is {id}"));
                Some(id)
            })
        }
        Err((code, message)) if ends_snapshot(code) => {
            if made.is_none() {
                cluster.judge.refused_snapshot(name, code, &message);
                cluster.ledger.book().snapshots.remove(name);
            }
            // The VolumeSnapshotContent exists and is deleted later, together with the snapshot.
            Some(made.clone())
        }
        Err(_) => None,
    };
    let call = Call::CreateSnapshot { name: name.to_owned() };
    cluster.repeat(call, create, end).await
}

/// Deletes a snapshot or a backup.
pub(super) async fn delete(cluster: &Cluster, claim: &Claim, name: &str, id: &str) {
    let limit = claim.limit;
    cluster
        .ledger
        .book()
        .snapshots
        .insert(name.to_owned(), ResourceState::Deleting(id.to_owned()));
    let delete = || {
        let request = DeleteSnapshotRequest {
            snapshot_id: id.to_owned(),
            secrets: claim.secrets.clone(),
        };
        let call = async |mut client: Controller, request| client.delete_snapshot(request).await;
        cluster.controller(Sidecar::Snapshotter, limit, request, call)
    };
    let end = |answer: Answer<_>| {
        answer.ok()?;
        cluster.schedule.note(&format!("snapshot {id} of {name} is deleted"));
        cluster.judge.deleted_snapshot(id);
        cluster.ledger.book().snapshots.remove(name);
        Some(())
    };
    let call = Call::DeleteSnapshot {
        snapshot: id.to_owned(),
    };
    cluster.repeat(call, delete, end).await;
}

/// Takes a group snapshot, and deletes it.
pub(super) async fn cut_group(cluster: &Cluster, name: &str, volumes: &[String], limit: Duration) {
    {
        let mut book = cluster.ledger.book();
        let others = book.group_snapshots.keys().filter(|other| {
            let members = book.members.get(*other).into_iter().flatten();
            members.into_iter().any(|member| volumes.contains(member))
        });
        let others: Vec<String> = others.cloned().collect();
        if !others.is_empty() {
            book.contested.insert(name.to_owned());
            book.contested.extend(others);
        }
        book.group_snapshots.insert(name.to_owned(), ResourceState::Asked);
        book.members.insert(name.to_owned(), volumes.to_vec());
    }
    let create = || {
        let request = CreateVolumeGroupSnapshotRequest {
            name: name.to_owned(),
            source_volume_ids: volumes.to_vec(),
            // The simulator's group type with consistent snapshots.
            parameters: [("group-type".to_owned(), "consistent".to_owned())].into(),
            ..CreateVolumeGroupSnapshotRequest::default()
        };
        let call = async |mut client: GroupController, request| client.create_volume_group_snapshot(request).await;
        cluster.group_controller(limit, request, call)
    };
    let end = |answer: Answer<CreateVolumeGroupSnapshotResponse>| match answer {
        Ok(CreateVolumeGroupSnapshotResponse { group_snapshot }) => {
            let group = group_snapshot.unwrap_or_default();
            let id = group.group_snapshot_id;
            let known = ResourceState::Made(id.clone());
            cluster.ledger.book().group_snapshots.insert(name.to_owned(), known);
            group.ready_to_use.then(|| {
                cluster.judge.cut_together(name, volumes.len(), group.snapshots.len());
                let members = group.snapshots.into_iter();
                let members: Vec<String> = members.map(|snapshot| snapshot.snapshot_id).collect();
                Some((id, members))
            })
        }
        Err((code, message)) => ends_snapshot(code).then(|| {
            cluster.judge.refused_group_snapshot(name, code, &message);
            cluster.ledger.book().group_snapshots.remove(name);
            None
        }),
    };
    let call = Call::CreateGroupSnapshot { name: name.to_owned() };
    let made = cluster.repeat(call, create, end).await;
    let Some((id, members)) = made else { return };
    cluster
        .ledger
        .book()
        .group_snapshots
        .insert(name.to_owned(), ResourceState::Deleting(id.clone()));
    let delete = || {
        let request = DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: id.clone(),
            snapshot_ids: members.clone(),
            ..DeleteVolumeGroupSnapshotRequest::default()
        };
        let call = async |mut client: GroupController, request| client.delete_volume_group_snapshot(request).await;
        cluster.group_controller(limit, request, call)
    };
    let end = |answer: Answer<_>| {
        answer.ok()?;
        cluster.judge.deleted_group_snapshot(&id, &members);
        cluster.ledger.book().group_snapshots.remove(name);
        Some(())
    };
    let call = Call::DeleteGroupSnapshot { id: id.clone() };
    cluster.repeat(call, delete, end).await;
}
