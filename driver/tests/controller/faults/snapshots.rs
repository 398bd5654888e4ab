// SPDX-License-Identifier: Apache-2.0
//! Snapshots come and go.

use std::time::Duration;

use csi_proto::csi::v1::{CreateSnapshotRequest, DeleteSnapshotRequest, GetSnapshotRequest, ListSnapshotsRequest};
use openstack_sim::Sim;
use tonic::Code;

use super::looks::LOOK;
use super::{CALL, CHANGING, Expected, MAKING, nothing, over_all_faults, volume};
use crate::support::{Driver, patient, within};

fn request(volume: &str) -> CreateSnapshotRequest {
    CreateSnapshotRequest {
        name: "snapshot-1".into(),
        source_volume_id: volume.into(),
        ..CreateSnapshotRequest::default()
    }
}

/// The request for a backup.
fn backup_request(volume: &str) -> CreateSnapshotRequest {
    CreateSnapshotRequest {
        parameters: [("type".to_owned(), "backup".to_owned())].into(),
        ..request(volume)
    }
}

/// A backup that is complete.
async fn backup(sim: &Sim, driver: &Driver) -> String {
    let request = backup_request(&driver.volume("pvc-1").await);
    let answer = driver.controller().create_snapshot(patient(request)).await;
    let made = answer.expect("a backup").into_inner().snapshot;
    assert!(sim.settled(Duration::from_secs(30)).await);
    made.expect("a backup").snapshot_id
}

async fn snapshot(_: &Sim, driver: &Driver) -> String {
    let request = request(&driver.volume("pvc-1").await);
    let answer = driver.controller().create_snapshot(patient(request)).await;
    let made = answer.expect("a snapshot").into_inner().snapshot;
    made.expect("a snapshot").snapshot_id
}

async fn creation(operation: &str, request: impl Fn(&str) -> CreateSnapshotRequest) {
    over_all_faults(operation, Expected(MAKING, &[]), volume, async |driver, volume| {
        let request = within(request(&volume), CALL);
        driver.controller().create_snapshot(request).await.map(drop)
    })
    .await;
}

async fn deletion(operation: &str, prepare: impl AsyncFn(&Sim, &Driver) -> String) {
    let expected = Expected(CHANGING, &[("404", Code::Ok)]);
    over_all_faults(operation, expected, prepare, async |driver, snapshot_id| {
        let request = DeleteSnapshotRequest {
            snapshot_id,
            ..DeleteSnapshotRequest::default()
        };
        let answer = driver.controller().delete_snapshot(within(request, CALL)).await;
        answer.map(drop)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn create_snapshot_is_final_only_when_nothing_was_made() {
    creation("create_snapshot", request).await;
}

#[tokio::test(start_paused = true)]
async fn delete_snapshot_tells_what_kept_the_snapshot() {
    deletion("delete_snapshot", snapshot).await;
}

#[tokio::test(start_paused = true)]
async fn create_snapshot_is_final_for_a_backup_only_when_nothing_was_made() {
    creation("create_backup", backup_request).await;
}

#[tokio::test(start_paused = true)]
async fn delete_snapshot_tells_what_kept_the_backup() {
    deletion("delete_backup", backup).await;
}

#[tokio::test(start_paused = true)]
async fn get_snapshot_tells_why_it_cannot_look() {
    over_all_faults("get_snapshot", LOOK, snapshot, async |driver, snapshot_id| {
        let request = GetSnapshotRequest {
            snapshot_id,
            ..GetSnapshotRequest::default()
        };
        driver.controller().get_snapshot(within(request, CALL)).await.map(drop)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn list_snapshots_tells_why_it_cannot_look() {
    over_all_faults("list_snapshots_detail", LOOK, nothing, async |driver, _| {
        let request = within(ListSnapshotsRequest::default(), CALL);
        driver.controller().list_snapshots(request).await.map(drop)
    })
    .await;
}
