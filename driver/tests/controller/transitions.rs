// SPDX-License-Identifier: Apache-2.0
//! Volumes with another operation in progress.

use csi_proto::csi::v1::{ControllerModifyVolumeRequest, CreateSnapshotRequest};
use openstack_sim::VolumeStatus;
use tonic::{Code, Status};

use crate::support::{Driver, cloud, patient, refused};

async fn snapshot(driver: &Driver, volume: &str) -> Result<(), Status> {
    let request = CreateSnapshotRequest {
        name: "snapshot-1".into(),
        source_volume_id: volume.into(),
        ..CreateSnapshotRequest::default()
    };
    driver.controller().create_snapshot(patient(request)).await.map(drop)
}

async fn retype(driver: &Driver, volume: &str) -> Result<(), Status> {
    let request = ControllerModifyVolumeRequest {
        volume_id: volume.into(),
        mutable_parameters: [("type".to_owned(), "slow".to_owned())].into(),
        ..ControllerModifyVolumeRequest::default()
    };
    let answer = driver.controller().controller_modify_volume(patient(request)).await;
    answer.map(drop)
}

fn names(refusal: &str, volume: &str, state: &str) {
    assert!(
        refusal.contains(volume) && refusal.contains(state),
        "{state} is not named: {refusal}"
    );
}

/// Cinder does not show the state of a migration to members of the project.
#[tokio::test(start_paused = true)]
async fn migrating_volume_is_aborted_until_done_issue_3129() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    let migration = |status: &str| {
        let status = Some(status.to_owned());
        assert!(sim.set_volume(&volume, |volume| volume.migration_status = status));
    };
    migration("migrating");
    for answer in [
        snapshot(&driver, &volume).await,
        retype(&driver, &volume).await,
        driver.delete(&volume).await,
    ] {
        names(&refused(answer, Code::Aborted), &volume, "the volume is migrating");
    }
    migration("success");
    snapshot(&driver, &volume).await.expect("a snapshot");
    retype(&driver, &volume).await.expect("retyped");
}

#[tokio::test(start_paused = true)]
async fn volume_in_maintenance_is_aborted_issue_3129() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    sim.set_volume_status(&volume, VolumeStatus::Maintenance);
    for answer in [
        snapshot(&driver, &volume).await,
        retype(&driver, &volume).await,
        driver.delete(&volume).await,
    ] {
        names(&refused(answer, Code::Aborted), &volume, "maintenance");
    }
    sim.set_volume_status(&volume, VolumeStatus::Available);
    driver.delete(&volume).await.expect("deleted");
}
