// SPDX-License-Identifier: Apache-2.0
//! Tests of refused requests and their codes.

use std::fs;
use std::path::Path;

use csi_host::{Host, HostPaths};
use csi_proto::csi::v1::node_server::Node;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::{
    NodeGetVolumeStatsRequest, NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest,
    NodeUnstageVolumeRequest,
};
use tonic::{Code, Request, Status};

use crate::lab::{MIB, OTHER, VOLUME, read_device, run, write_at};
use crate::{Kubelet, disk, expect_code, expect_refusal, ext4, mount, node_on};

#[test]
fn conflicting_state_is_already_exists() {
    run("refusals::conflicting_state_is_already_exists", |lab| async move {
        disk(&lab).await;
        let kubelet = Kubelet::new(&lab);
        kubelet.must_stage(ext4()).await;
        expect_code(
            kubelet.stage(VOLUME, mount("xfs", Mode::SingleNodeWriter)).await,
            Code::AlreadyExists,
        );
        let reader = mount("ext4", Mode::SingleNodeReaderOnly);
        expect_code(kubelet.stage(VOLUME, reader).await, Code::AlreadyExists);
        kubelet.must_publish("pod/mount", false, ext4()).await;
        expect_code(kubelet.publish("pod/mount", true, ext4()).await, Code::AlreadyExists);
        fs::write(lab.at("pod/mount/data"), "data").expect("the refused calls changed nothing");
        kubelet.must_unpublish("pod/mount").await;
        kubelet.must_unstage().await;
    });
}

#[test]
fn refuses_calls_out_of_order() {
    run("refusals::refuses_calls_out_of_order", |lab| async move {
        disk(&lab).await;
        lab.volume(OTHER, 64 * MIB).await;
        let kubelet = Kubelet::new(&lab);
        expect_code(
            kubelet.publish("pod/mount", false, ext4()).await,
            Code::FailedPrecondition,
        );
        assert!(!lab.at("pod/mount").exists(), "a refused publish makes no target");
        kubelet.must_stage(ext4()).await;
        expect_code(kubelet.stage(OTHER, ext4()).await, Code::FailedPrecondition);
        kubelet.must_publish("pod/mount", false, ext4()).await;
        let error = kubelet.unstage(VOLUME).await.expect_err("it is still published");
        expect_refusal(&error, Code::FailedPrecondition, &["pod/mount"]);
        kubelet.must_unpublish("pod/mount").await;
        kubelet.must_unstage().await;
    });
}

#[test]
fn access_mode_limits_targets_per_node_issue_1686() {
    run(
        "refusals::access_mode_limits_targets_per_node_issue_1686",
        |lab| async move {
            disk(&lab).await;
            let kubelet = Kubelet::new(&lab);
            kubelet.must_stage(ext4()).await;
            let cases = [
                (Mode::SingleNodeWriter, Code::Ok),
                (Mode::SingleNodeMultiWriter, Code::Ok),
                (Mode::SingleNodeSingleWriter, Code::FailedPrecondition),
            ];
            for (mode, second) in cases {
                for _ in 0..2 {
                    kubelet.must_publish("pod-1/mount", false, mount("ext4", mode)).await;
                }
                let published = kubelet.publish("pod-2/mount", false, mount("ext4", mode)).await;
                expect_code(published, second);
                kubelet.must_unpublish("pod-1/mount").await;
                kubelet.must_unpublish("pod-2/mount").await;
            }
            kubelet.must_unstage().await;
        },
    );
}

#[test]
fn unknown_data_are_refused_and_retained() {
    run("refusals::unknown_data_are_refused_and_retained", |lab| async move {
        let device = disk(&lab).await;
        write_at(&device, 4096, b"somebody's data");
        let before = read_device(&device);
        let error = Kubelet::new(&lab)
            .stage(VOLUME, ext4())
            .await
            .expect_err("it may be data");
        assert_eq!(error.code(), Code::FailedPrecondition);
        let message = error.message();
        assert!(
            message.contains(VOLUME) && message.contains("wipefs") && message.contains("4096"),
            "{message}"
        );
        assert!(read_device(&device) == before);
    });
}

#[tokio::test]
async fn missing_fields_are_named_in_specification_order() {
    const MISSING: Code = Code::InvalidArgument;
    let node = node_on(Host::new(HostPaths::default()));
    let refused = |field: &str, result: Result<(), Status>, expected: Code| {
        let error = result.expect_err("the request lacks a field");
        expect_refusal(&error, expected, &[field]);
    };
    let path = |path: &str| Path::new("/nowhere").join(path).display().to_string();

    let stage = async |request: &NodeStageVolumeRequest| {
        let request = Request::new(request.clone());
        node.node_stage_volume(request).await.map(drop)
    };
    let mut request = NodeStageVolumeRequest::default();
    refused("volume_id", stage(&request).await, MISSING);
    request.volume_id = VOLUME.into();
    refused("staging_target_path", stage(&request).await, MISSING);
    request.staging_target_path = path("staging");
    refused("volume_capability", stage(&request).await, MISSING);

    let publish = async |request: &NodePublishVolumeRequest| {
        let request = Request::new(request.clone());
        node.node_publish_volume(request).await.map(drop)
    };
    let mut request = NodePublishVolumeRequest::default();
    refused("volume_id", publish(&request).await, MISSING);
    request.volume_id = VOLUME.into();
    refused("target_path", publish(&request).await, MISSING);
    request.target_path = path("target");
    refused("volume_capability", publish(&request).await, MISSING);
    request.volume_capability = Some(ext4());
    refused("staging_target_path", publish(&request).await, Code::FailedPrecondition);

    let unstage = async |request: &NodeUnstageVolumeRequest| {
        let request = Request::new(request.clone());
        node.node_unstage_volume(request).await.map(drop)
    };
    let mut request = NodeUnstageVolumeRequest::default();
    refused("volume_id", unstage(&request).await, MISSING);
    request.volume_id = VOLUME.into();
    refused("staging_target_path", unstage(&request).await, MISSING);

    let unpublish = async |request: &NodeUnpublishVolumeRequest| {
        let request = Request::new(request.clone());
        node.node_unpublish_volume(request).await.map(drop)
    };
    let mut request = NodeUnpublishVolumeRequest {
        volume_id: VOLUME.into(),
        ..NodeUnpublishVolumeRequest::default()
    };
    refused("target_path", unpublish(&request).await, MISSING);
    request.target_path = "relative".into();
    refused("absolute", unpublish(&request).await, MISSING);

    let request = NodeGetVolumeStatsRequest {
        volume_id: VOLUME.into(),
        ..NodeGetVolumeStatsRequest::default()
    };
    let usage = node.node_get_volume_stats(Request::new(request)).await;
    refused("volume_path", usage.map(drop), MISSING);
}
