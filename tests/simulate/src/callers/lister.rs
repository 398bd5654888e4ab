// SPDX-License-Identifier: Apache-2.0
//! Lists that sidecars compare with their own records: ListVolumes of external-attacher, ListSnapshots of
//! external-snapshotter, and GetCapacity of external-provisioner.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use csi_proto::csi::v1::{GetCapacityRequest, ListSnapshotsRequest, ListVolumesRequest};
use openstack_sim::{BackupStatus, SnapshotStatus};
use tonic::Status;

use crate::call::{Call, Sidecar};
use crate::cluster::{Answer, Cluster, Controller};
use crate::judge::is_attached;
use crate::ledger::{AttachmentState, Book, ResourceState};

/// Time between two rounds, as external-attacher's `--reconcile-sync`.
const PAUSE: Duration = Duration::from_mins(1);
/// Maximum age of a driver's response: it caches a slow list for 90 s, and the list itself takes time.
const STALE: Duration = Duration::from_mins(5);
/// Limit of pages, above the number of volumes or snapshots of a run.
const MOST_PAGES: usize = 1_000;
/// `--timeout` of the sidecars.
const LIMIT: Duration = Duration::from_mins(3);

/// Lists repeatedly until the future is dropped.
pub async fn list(cluster: &Cluster) {
    let schedule = &cluster.schedule;
    let mut records: Vec<(Duration, Book)> = Vec::new();
    loop {
        schedule.event(PAUSE, || "sidecars list".into()).await;
        let now = schedule.elapsed();
        records.push((now, cluster.ledger.book().clone()));
        let Some(at) = records.iter().rposition(|(at, _)| *at + STALE <= now) else {
            continue;
        };
        records.drain(..at);
        let (_, earlier) = &records[0];
        match schedule.below(4) {
            0 | 1 => list_volumes(cluster, earlier).await,
            2 => list_snapshots(cluster, earlier).await,
            _ => get_capacity(cluster).await,
        }
    }
}

/// Checks that each continuously existing volume is listed, with all continuously attached servers.
async fn list_volumes(cluster: &Cluster, earlier: &Book) {
    let page = page(cluster);
    let fetch = async |starting_token| {
        let request = ListVolumesRequest {
            max_entries: page,
            starting_token,
        };
        let call = async |mut client: Controller, request| client.list_volumes(request).await;
        let answer = cluster.controller(Sidecar::Attacher, LIMIT, request, call).await?;
        Ok((answer.entries, answer.next_token))
    };
    let listed = cluster
        .repeat(Call::ListVolumes, || all_pages(&fetch), Answer::ok)
        .await;
    let listed = listed.into_iter().map(|entry| {
        let volume = entry.volume.unwrap_or_default().volume_id;
        (volume, entry.status.unwrap_or_default().published_node_ids)
    });
    let listed: BTreeMap<String, Vec<String>> = listed.collect();
    let (state, book) = (cluster.clouds.state(), cluster.ledger.book());
    for id in existing(&earlier.volumes, &book.volumes) {
        if !listed.contains_key(id) {
            return cluster
                .schedule
                .violation(&format!("ListVolumes does not list volume {id}, which exists"));
        }
    }
    for (pair, attached) in &earlier.attachments {
        let (volume, server) = pair;
        // Cinder does not list attachments to an offloaded server.
        let is_kept = *attached == AttachmentState::Made
            && book.attachments.get(pair) == Some(attached)
            && is_attached(&state, volume, server);
        let is_listed = listed.get(volume).is_some_and(|servers| servers.contains(server));
        if is_kept && !is_listed && !book.touched.contains_key(volume) {
            return cluster.schedule.violation(&format!(
                "ListVolumes lists volume {volume} without server {server}, to which it is attached"
            ));
        }
    }
}

/// Checks that each complete, continuously existing snapshot or backup is listed.
async fn list_snapshots(cluster: &Cluster, earlier: &Book) {
    let page = page(cluster);
    let fetch = async |starting_token| {
        let request = ListSnapshotsRequest {
            max_entries: page,
            starting_token,
            ..ListSnapshotsRequest::default()
        };
        let call = async |mut client: Controller, request| client.list_snapshots(request).await;
        let answer = cluster.controller(Sidecar::Snapshotter, LIMIT, request, call).await?;
        Ok((answer.entries, answer.next_token))
    };
    let listed = cluster
        .repeat(Call::ListSnapshots, || all_pages(&fetch), Answer::ok)
        .await;
    let listed = listed.into_iter().filter_map(|entry| entry.snapshot);
    let listed: BTreeSet<String> = listed.map(|snapshot| snapshot.snapshot_id).collect();
    let (state, book) = (cluster.clouds.state(), cluster.ledger.book());
    for id in existing(&earlier.snapshots, &book.snapshots) {
        let snapshot = state.snapshot(id).map(|one| one.status == SnapshotStatus::Available);
        let backup = state.backup(id).map(|one| one.status == BackupStatus::Available);
        if snapshot.or(backup) == Some(true) && !listed.contains(id) {
            return cluster
                .schedule
                .violation(&format!("ListSnapshots does not list snapshot {id}, which exists"));
        }
    }
}

/// Returns the entries of all pages. `fetch` returns the entries of one page and the token of the next one.
async fn all_pages<T>(fetch: &impl AsyncFn(String) -> Result<(Vec<T>, String), Status>) -> Result<Vec<T>, Status> {
    let mut all = Vec::new();
    let mut token = String::new();
    for _ in 0..MOST_PAGES {
        let (entries, next) = fetch(token).await?;
        all.extend(entries);
        if next.is_empty() {
            return Ok(all);
        }
        token = next;
    }
    Err(Status::internal("the list does not end"))
}

async fn get_capacity(cluster: &Cluster) {
    let query = || {
        let call = async |mut client: Controller, request| client.get_capacity(request).await;
        cluster.controller(Sidecar::Provisioner, LIMIT, GetCapacityRequest::default(), call)
    };
    let answer = cluster.repeat(Call::GetCapacity, query, Answer::ok).await;
    if answer.available_capacity <= 0 {
        cluster
            .schedule
            .violation("GetCapacity reports no capacity in a cloud without a limit");
    }
}

/// Returns the ids that are created and not deleted in both books.
fn existing<'a>(
    earlier: &'a BTreeMap<String, ResourceState>,
    now: &'a BTreeMap<String, ResourceState>,
) -> impl Iterator<Item = &'a String> {
    earlier.iter().filter_map(|(name, known)| match known {
        ResourceState::Made(id) if now.get(name) == Some(known) => Some(id),
        _ => None,
    })
}

/// Returns a page size: unlimited, or a few entries.
fn page(cluster: &Cluster) -> i32 {
    cluster.schedule.one_of(&[0, 0, 1, 3])
}
