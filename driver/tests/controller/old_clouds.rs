// SPDX-License-Identifier: Apache-2.0
//! Clouds with old releases of OpenStack.

use std::time::Duration;

use csi_proto::csi::v1::volume_content_source::{SnapshotSource, Type};
use csi_proto::csi::v1::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerGetVolumeHealthRequest, ControllerModifyVolumeRequest,
    CreateSnapshotRequest, CreateVolumeRequest, DeleteSnapshotRequest, GetCapacityRequest, ListSnapshotsRequest,
    ListVolumesRequest, VolumeContentSource,
};
use openstack_sim::Sim;
use tonic::{Code, Status};

use crate::support::{Driver, GIB, NODE, cloud, create_request, patient, refused};

/// The highest microversions of Cinder and Nova, from releases without microversions to one with all relevant ones.
const RELEASES: [((u32, u32), (u32, u32)); 3] = [((3, 0), (2, 1)), ((3, 27), (2, 42)), ((3, 44), (2, 60))];

async fn expand(driver: &Driver, volume: &str, size: i64) -> Result<i64, Status> {
    let request = ControllerExpandVolumeRequest {
        volume_id: volume.into(),
        capacity_range: Some(CapacityRange {
            required_bytes: size,
            limit_bytes: 0,
        }),
        ..ControllerExpandVolumeRequest::default()
    };
    let answer = driver.controller().controller_expand_volume(patient(request)).await?;
    Ok(answer.into_inner().capacity_bytes)
}

/// Takes a snapshot or backup, and waits until it is complete.
async fn take_snapshot(sim: &Sim, driver: &Driver, volume: &str, kind: &str) -> String {
    let request = CreateSnapshotRequest {
        name: format!("{kind}-1"),
        source_volume_id: volume.into(),
        parameters: [("type".to_owned(), kind.to_owned())].into(),
        ..CreateSnapshotRequest::default()
    };
    let take = async || {
        let answer = driver.controller().create_snapshot(patient(request.clone())).await;
        answer.expect(kind).into_inner().snapshot.expect("a snapshot")
    };
    take().await;
    assert!(sim.settled(Duration::from_secs(10)).await);
    let done = take().await;
    assert!(done.ready_to_use);
    done.snapshot_id
}

fn from(name: &str, snapshot: &str) -> CreateVolumeRequest {
    CreateVolumeRequest {
        volume_content_source: Some(VolumeContentSource {
            r#type: Some(Type::Snapshot(SnapshotSource {
                snapshot_id: snapshot.into(),
            })),
        }),
        ..create_request(name)
    }
}

async fn remove(driver: &Driver, snapshot_id: String) {
    let request = DeleteSnapshotRequest {
        snapshot_id,
        ..DeleteSnapshotRequest::default()
    };
    let answer = driver.controller().delete_snapshot(patient(request)).await;
    answer.expect("deleted");
}

#[tokio::test(start_paused = true)]
async fn old_cloud_serves_supported_calls_issue_1967_issue_1986_issue_819() {
    for (cinder, nova) in RELEASES {
        let sim = cloud(|config| {
            config.block_storage_version = cinder;
            config.compute_version = nova;
        })
        .await;
        let driver = Driver::start(&sim);
        // The lifecycle of a volume, and every read-only RPC.
        let volume = driver.volume("pvc-1").await;
        driver.publish(&volume, NODE).await.expect("attached");
        let mut client = driver.controller();
        let listed = client.list_volumes(patient(ListVolumesRequest::default())).await;
        let listed = listed.expect("a list").into_inner().entries;
        let status = listed[0].status.as_ref().expect("a status");
        assert_eq!(status.published_node_ids, [NODE], "{cinder:?}");
        let health = ControllerGetVolumeHealthRequest {
            volume_id: volume.clone(),
            ..ControllerGetVolumeHealthRequest::default()
        };
        let health = client.controller_get_volume_health(patient(health)).await;
        let health = health.expect("an answer").into_inner().volume_health;
        assert!(health.is_some_and(|health| health.health_statuses.is_empty()));
        let capacity = client.get_capacity(patient(GetCapacityRequest::default())).await;
        capacity.expect("a capacity");

        // Attached volumes can be expanded since 3.42. Before that, the error requests a detachment.
        let grown = expand(&driver, &volume, 2 * GIB).await;
        if cinder < (3, 42) {
            let refusal = refused(grown, Code::FailedPrecondition);
            assert!(refusal.contains("3.42") && refusal.contains(NODE), "{refusal}");
        } else {
            assert_eq!(grown.expect("grown"), 2 * GIB);
        }
        driver.unpublish(&volume, NODE).await.expect("detached");
        assert_eq!(expand(&driver, &volume, 3 * GIB).await.expect("grown"), 3 * GIB);
        let modify = ControllerModifyVolumeRequest {
            volume_id: volume.clone(),
            mutable_parameters: [("type".to_owned(), "slow".to_owned())].into(),
            ..ControllerModifyVolumeRequest::default()
        };
        client.controller_modify_volume(patient(modify)).await.expect("retyped");

        let snapshot = take_snapshot(&sim, &driver, &volume, "snapshot").await;
        let large = CreateVolumeRequest {
            capacity_range: Some(CapacityRange {
                required_bytes: 3 * GIB,
                limit_bytes: 0,
            }),
            ..from("restored", &snapshot)
        };
        let restored = driver.create(large).await.expect("restored").volume_id;
        let backup = take_snapshot(&sim, &driver, &volume, "backup").await;
        let listed = client.list_snapshots(patient(ListSnapshotsRequest::default())).await;
        assert_eq!(listed.expect("a list").into_inner().entries.len(), 2, "{cinder:?}");
        remove(&driver, snapshot).await;
        remove(&driver, backup).await;
        for volume in [restored, volume] {
            driver.delete(&volume).await.expect("deleted");
        }
        let state = sim.state();
        assert!(state.volumes.is_empty() && state.snapshots.is_empty() && state.backups.is_empty());
        // No request used a version that the cloud does not support.
        let unknown: Vec<_> = sim.log().into_iter().filter(|entry| entry.status == 406).collect();
        assert!(unknown.is_empty(), "Cinder {cinder:?}, Nova {nova:?}: {unknown:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn old_cloud_refusal_names_missing_feature_issue_1967() {
    let sim = cloud(|config| config.block_storage_version = (3, 44)).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    let backup = take_snapshot(&sim, &driver, &volume, "backup").await;
    // Volumes are created from backups since 3.47.
    let refusal = refused(driver.create(from("restored", &backup)).await, Code::FailedPrecondition);
    assert!(refusal.contains("3.47") && refusal.contains(&backup), "{refusal}");
    assert_eq!(sim.state().volumes.len(), 1, "nothing was made");
}
