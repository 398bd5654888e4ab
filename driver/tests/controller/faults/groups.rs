// SPDX-License-Identifier: Apache-2.0
//! Creating and deleting group snapshots.

use csi_proto::csi::v1::group_controller_client::GroupControllerClient;
use csi_proto::csi::v1::{
    CreateVolumeGroupSnapshotRequest, DeleteVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotRequest,
};
use openstack_sim::Sim;
use tonic::{Code, Request, Status};

use super::reads::READ_ONLY;
use super::{CALL, CHANGING, CREATING, Expected, over_all_faults};
use crate::channel::Channel;
use crate::support::{Driver, patient, within};

const NAME: &str = "groupsnapshot-1";

fn client(driver: &Driver) -> GroupControllerClient<Channel> {
    GroupControllerClient::new(driver.channel())
}

/// The request for a group snapshot of these volumes.
fn request(volumes: Vec<String>) -> CreateVolumeGroupSnapshotRequest {
    CreateVolumeGroupSnapshotRequest {
        name: NAME.into(),
        source_volume_ids: volumes,
        parameters: [("group-type".to_owned(), "consistent".to_owned())].into(),
        ..CreateVolumeGroupSnapshotRequest::default()
    }
}

async fn take(driver: &Driver, request: Request<CreateVolumeGroupSnapshotRequest>) -> Result<String, Status> {
    let answer = client(driver).create_volume_group_snapshot(request).await?;
    let created = answer.into_inner().group_snapshot.expect("a group snapshot");
    Ok(created.group_snapshot_id)
}

async fn group_snapshot(_: &Sim, driver: &Driver) -> String {
    let volumes = vec![driver.volume("pvc-1").await, driver.volume("pvc-2").await];
    take(driver, patient(request(volumes))).await.expect("taken")
}

#[tokio::test(start_paused = true)]
async fn create_volume_group_snapshot_is_final_without_remains() {
    let name = async |_: &_, _: &_| NAME.to_owned();
    let call = async |driver: &Driver, _| {
        let volumes = vec![driver.volume("pvc-1").await, driver.volume("pvc-2").await];
        take(driver, within(request(volumes), CALL)).await.map(drop)
    };
    // The temporary group, and the group snapshot itself.
    let group = Expected(
        CREATING,
        &[
            ("404", Code::Unavailable),
            ("500 after", Code::Unavailable),
            ("reset after", Code::Unavailable),
            ("truncated", Code::Unavailable),
        ],
    );
    over_all_faults("create_group", group, name, call).await;
    let snapshot = Expected(
        CREATING,
        &[
            ("400", Code::FailedPrecondition),
            ("404", Code::Unavailable),
            ("500 after", Code::Unavailable),
            ("reset after", Code::Unavailable),
            ("truncated", Code::Unavailable),
        ],
    );
    over_all_faults("create_group_snapshot", snapshot, name, call).await;
}

#[tokio::test(start_paused = true)]
async fn delete_volume_group_snapshot_reports_obstacle() {
    let expected = Expected(
        CHANGING,
        &[
            ("400", Code::FailedPrecondition),
            // Cinder still returns the group snapshot. A retry resolves the contradiction.
            ("404", Code::Aborted),
            ("500 after", Code::Internal),
            ("reset after", Code::Unavailable),
        ],
    );
    let delete = async |driver: &Driver, id| {
        let request = DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: id,
            ..DeleteVolumeGroupSnapshotRequest::default()
        };
        let answer = client(driver).delete_volume_group_snapshot(within(request, CALL)).await;
        answer.map(drop)
    };
    over_all_faults("delete_group_snapshot", expected, group_snapshot, delete).await;
}

#[tokio::test(start_paused = true)]
async fn get_volume_group_snapshot_reports_failed_query() {
    let get = async |driver: &Driver, id| {
        let request = GetVolumeGroupSnapshotRequest {
            group_snapshot_id: id,
            ..GetVolumeGroupSnapshotRequest::default()
        };
        let answer = client(driver).get_volume_group_snapshot(within(request, CALL)).await;
        answer.map(drop)
    };
    over_all_faults("get_group_snapshot", READ_ONLY, group_snapshot, get).await;
}
