// SPDX-License-Identifier: Apache-2.0
//! Creating and deleting snapshots.

use std::time::Duration;

use csi_proto::csi::v1::{CreateSnapshotRequest, DeleteSnapshotRequest, GetSnapshotRequest, ListSnapshotsRequest};
use openstack_sim::Sim;
use tonic::Code;

use super::reads::READ_ONLY;
use super::{CALL, CHANGING, CREATING, Expected, nothing, over_all_faults, volume};
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

/// Creates a backup, and waits until it is complete.
async fn backup(sim: &Sim, driver: &Driver) -> String {
    let request = backup_request(&driver.volume("pvc-1").await);
    let answer = driver.controller().create_snapshot(patient(request)).await;
    let created = answer.expect("a backup").into_inner().snapshot;
    assert!(sim.settled(Duration::from_secs(30)).await);
    created.expect("a backup").snapshot_id
}

async fn snapshot(_: &Sim, driver: &Driver) -> String {
    let request = request(&driver.volume("pvc-1").await);
    let answer = driver.controller().create_snapshot(patient(request)).await;
    let created = answer.expect("a snapshot").into_inner().snapshot;
    created.expect("a snapshot").snapshot_id
}

async fn creation(operation: &str, request: impl Fn(&str) -> CreateSnapshotRequest) {
    over_all_faults(operation, Expected(CREATING, &[]), volume, async |driver, volume| {
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
async fn create_snapshot_is_final_only_without_snapshot() {
    creation("create_snapshot", request).await;
}

#[tokio::test(start_paused = true)]
async fn delete_snapshot_reports_obstacle() {
    deletion("delete_snapshot", snapshot).await;
}

#[tokio::test(start_paused = true)]
async fn create_snapshot_is_final_only_without_backup() {
    creation("create_backup", backup_request).await;
}

#[tokio::test(start_paused = true)]
async fn delete_snapshot_reports_obstacle_of_backup() {
    deletion("delete_backup", backup).await;
}

#[tokio::test(start_paused = true)]
async fn get_snapshot_reports_failed_query() {
    over_all_faults("get_snapshot", READ_ONLY, snapshot, async |driver, snapshot_id| {
        let request = GetSnapshotRequest {
            snapshot_id,
            ..GetSnapshotRequest::default()
        };
        driver.controller().get_snapshot(within(request, CALL)).await.map(drop)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn list_snapshots_reports_failed_query() {
    over_all_faults("list_snapshots_detail", READ_ONLY, nothing, async |driver, _| {
        let request = within(ListSnapshotsRequest::default(), CALL);
        driver.controller().list_snapshots(request).await.map(drop)
    })
    .await;
}
