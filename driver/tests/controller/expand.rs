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
async fn a_free_volume_grows_to_whole_gibibytes_and_the_answer_tells_the_real_size_issue_2138() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    let grown = expand(&driver, request(&volume, 2 * GIB + 1, 0)).await.expect("grown");
    assert_eq!((grown.capacity_bytes, grown.node_expansion_required), (3 * GIB, true));
    assert_eq!(sim.state().volumes[0].size, 3);
}

#[tokio::test(start_paused = true)]
async fn an_attached_volume_grows_in_place() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    driver.publish(&volume, NODE).await.expect("attached");
    let grown = expand(&driver, request(&volume, 2 * GIB, 0)).await.expect("grown");
    assert_eq!(grown.capacity_bytes, 2 * GIB);
    assert_eq!(sim.state().volumes[0].status.as_str(), "in-use");
}

#[tokio::test(start_paused = true)]
async fn an_attached_volume_cannot_grow_in_a_cloud_that_is_used_without_microversions() {
    let sim = cloud(|_| {}).await;
    let conf = format!(
        "{}\n[BlockStorage]\nignore-volume-microversion=true\n",
        sim.access().cloud_conf()
    );
    let driver = Driver::with(&sim, &conf, |_| {});
    let volume = driver.volume("pvc-1").await;
    driver.publish(&volume, NODE).await.expect("attached");
    let text = refused(
        expand(&driver, request(&volume, 2 * GIB, 0)).await,
        Code::FailedPrecondition,
    );
    assert!(text.contains("3.42") && text.contains(NODE), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_large_enough_costs_one_look_and_no_change() {
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
async fn a_raw_block_volume_needs_nothing_at_the_node_unless_devices_have_to_be_rescanned_issue_2694() {
    let sim = cloud(|_| {}).await;
    let rescanning = format!("{}\n[BlockStorage]\nrescan-on-resize=true\n", sim.access().cloud_conf());
    for (conf, expected) in [(sim.access().cloud_conf(), false), (rescanning, true)] {
        let driver = Driver::with(&sim, &conf, |_| {});
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
async fn what_the_request_alone_shows_to_be_wrong_never_reaches_the_cloud() {
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
async fn a_volume_beyond_the_limit_is_out_of_range() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim);
    let volume = driver.volume("pvc-1").await;
    expand(&driver, request(&volume, 3 * GIB, 0)).await.expect("grown");
    refused(expand(&driver, request(&volume, GIB, 2 * GIB)).await, Code::OutOfRange);
}

#[tokio::test(start_paused = true)]
async fn a_used_up_quota_is_resource_exhausted_issue_2860() {
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
async fn a_growth_that_fails_in_the_cloud_is_told_with_cinders_own_words_issue_1437() {
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
