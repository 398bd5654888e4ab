// SPDX-License-Identifier: Apache-2.0
//! ControllerExpandVolume over gRPC, against a cloud.

use csi_proto::csi::v1::volume_capability::{AccessType, BlockVolume};
use csi_proto::csi::v1::{CapacityRange, ControllerExpandVolumeRequest, ControllerExpandVolumeResponse};
use openstack_sim::{Effect, Fault, Quota};
use tonic::{Code, Status};

use crate::support::{Driver, GIB, NODE, UNKNOWN, cloud, create_request, patient, refused};

fn request(volume_id: &str, required_bytes: i64, limit_bytes: i64) -> ControllerExpandVolumeRequest {
    ControllerExpandVolumeRequest {
        volume_id: volume_id.into(),
        capacity_range: Some(CapacityRange {
            required_bytes,
            limit_bytes,
        }),
        ..ControllerExpandVolumeRequest::default()
    }
}

async fn expand(
    driver: &Driver,
    request: ControllerExpandVolumeRequest,
) -> Result<ControllerExpandVolumeResponse, Status> {
    let answer = driver.controller().controller_expand_volume(patient(request)).await?;
    Ok(answer.into_inner())
}

#[tokio::test(start_paused = true)]
async fn expand_rounds_up_and_returns_real_size_issue_2138() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    let grown = expand(&driver, request(&volume, 2 * GIB + 1, 0)).await.expect("grown");
    assert_eq!((grown.capacity_bytes, grown.node_expansion_required), (3 * GIB, true));
    assert_eq!(sim.state().volumes[0].size, 3);
}

#[tokio::test(start_paused = true)]
async fn attached_volume_expands_online() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    driver.publish(&volume, NODE).await.expect("attached");
    let grown = expand(&driver, request(&volume, 2 * GIB, 0)).await.expect("grown");
    assert_eq!(grown.capacity_bytes, 2 * GIB);
    assert_eq!(sim.state().volumes[0].status.as_str(), "in-use");
}

#[tokio::test(start_paused = true)]
async fn online_expansion_requires_microversions() {
    let sim = cloud(|_| {}).await;
    let conf = format!(
        "{}\n[BlockStorage]\nignore-volume-microversion=true\n",
        sim.access().cloud_conf()
    );
    let driver = Driver::start_with(&sim, &conf, |_| {});
    let volume = driver.volume("pvc-1").await;
    driver.publish(&volume, NODE).await.expect("attached");
    let text = refused(
        expand(&driver, request(&volume, 2 * GIB, 0)).await,
        Code::FailedPrecondition,
    );
    assert!(text.contains("3.42") && text.contains(NODE), "{text}");
}

#[tokio::test(start_paused = true)]
async fn large_enough_volume_costs_one_query() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    sim.clear_log();
    let same = expand(&driver, request(&volume, GIB, 0)).await.expect("large enough");
    assert_eq!(same.capacity_bytes, GIB);
    let calls: Vec<_> = sim.log().into_iter().map(|entry| entry.operation).collect();
    assert_eq!(calls, ["get_volume"]);
}

#[tokio::test(start_paused = true)]
async fn block_volume_needs_node_expansion_only_for_rescan_issue_2694() {
    let sim = cloud(|_| {}).await;
    let rescanning = format!("{}\n[BlockStorage]\nrescan-on-resize=true\n", sim.access().cloud_conf());
    for (conf, expected) in [(sim.access().cloud_conf(), false), (rescanning, true)] {
        let driver = Driver::start_with(&sim, &conf, |_| {});
        let volume = driver.volume("pvc-block").await;
        let mut capability = create_request("pvc-block").volume_capabilities.remove(0);
        capability.access_type = Some(AccessType::Block(BlockVolume {}));
        let block = ControllerExpandVolumeRequest {
            volume_capability: Some(capability),
            ..request(&volume, 2 * GIB, 0)
        };
        let grown = expand(&driver, block).await.expect("grown");
        assert_eq!(grown.node_expansion_required, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_request_never_reaches_cloud() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    sim.clear_log();
    refused(expand(&driver, request("", GIB, 0)).await, Code::InvalidArgument);
    let without = ControllerExpandVolumeRequest {
        capacity_range: None,
        ..request(&volume, GIB, 0)
    };
    refused(expand(&driver, without).await, Code::InvalidArgument);
    refused(
        expand(&driver, request(&volume, GIB + 1, GIB + 2)).await,
        Code::OutOfRange,
    );
    refused(expand(&driver, request("no-uuid", GIB, 0)).await, Code::NotFound);
    assert!(sim.log().is_empty());
    refused(expand(&driver, request(UNKNOWN, GIB, 0)).await, Code::NotFound);
}

#[tokio::test(start_paused = true)]
async fn volume_larger_than_limit_is_out_of_range() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    expand(&driver, request(&volume, 3 * GIB, 0)).await.expect("grown");
    refused(expand(&driver, request(&volume, GIB, 2 * GIB)).await, Code::OutOfRange);
}

#[tokio::test(start_paused = true)]
async fn exceeded_quota_is_resource_exhausted_issue_2860() {
    let quota = Quota {
        gigabytes: 1,
        ..Quota::default()
    };
    let sim = cloud(|config| config.quota = quota).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    let text = refused(
        expand(&driver, request(&volume, 2 * GIB, 0)).await,
        Code::ResourceExhausted,
    );
    assert!(text.contains("[quota]") && text.contains(&volume), "{text}");
}

#[tokio::test(start_paused = true)]
async fn failed_expansion_quotes_cinder_message_issue_1437() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    let fails = Effect::work_fails().message("extend volume:Driver failed to extend the volume.");
    sim.fault(Fault::on("extend_volume").times(1).effect(fails))
        .expect("rule");
    let text = refused(expand(&driver, request(&volume, 2 * GIB, 0)).await, Code::Internal);
    for part in [
        "error_extending",
        "Driver failed to extend",
        "2 GiB",
        volume.as_str(),
        "reset",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The status remains until an administrator resets it.
    let text = refused(expand(&driver, request(&volume, 2 * GIB, 0)).await, Code::Aborted);
    assert!(
        text.contains("Driver failed to extend") && text.contains("reset"),
        "{text}"
    );
    assert_eq!(sim.count("extend_volume"), 1);
}
