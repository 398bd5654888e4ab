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
use crate::{Kubelet, code, disk, ext4, mount, node_on};

#[test]
fn conflicting_state_is_already_exists() {
    run("refusals::conflicting_state_is_already_exists", |lab| async move {
        disk(&lab).await;
        let kubelet = Kubelet::new(&lab);
        kubelet.stage(VOLUME, ext4()).await.expect("it is staged");
        assert_eq!(
            code(kubelet.stage(VOLUME, mount("xfs", Mode::SingleNodeWriter)).await),
            Code::AlreadyExists
        );
        let reader = mount("ext4", Mode::SingleNodeReaderOnly);
        assert_eq!(code(kubelet.stage(VOLUME, reader).await), Code::AlreadyExists);
        kubelet
            .publish("pod/mount", false, ext4())
            .await
            .expect("it is published");
        assert_eq!(
            code(kubelet.publish("pod/mount", true, ext4()).await),
            Code::AlreadyExists
        );
        fs::write(lab.at("pod/mount/data"), "data").expect("the refused calls changed nothing");
        kubelet.unpublish("pod/mount").await.expect("it goes");
        kubelet.unstage(VOLUME).await.expect("it goes");
    });
}

#[test]
fn refuses_calls_out_of_order() {
    run("refusals::refuses_calls_out_of_order", |lab| async move {
        disk(&lab).await;
        lab.volume(OTHER, 64 * MIB).await;
        let kubelet = Kubelet::new(&lab);
        assert_eq!(
            code(kubelet.publish("pod/mount", false, ext4()).await),
            Code::FailedPrecondition
        );
        assert!(!lab.at("pod/mount").exists(), "a refused publish makes no target");
        kubelet.stage(VOLUME, ext4()).await.expect("it is staged");
        assert_eq!(code(kubelet.stage(OTHER, ext4()).await), Code::FailedPrecondition);
        kubelet
            .publish("pod/mount", false, ext4())
            .await
            .expect("it is published");
        let error = kubelet.unstage(VOLUME).await.expect_err("it is still published");
        assert_eq!(error.code(), Code::FailedPrecondition);
        assert!(error.message().contains("pod/mount"), "{error}");
        kubelet.unpublish("pod/mount").await.expect("it goes");
        kubelet.unstage(VOLUME).await.expect("now it goes");
    });
}

#[test]
fn access_mode_limits_targets_per_node_issue_1686() {
    run(
        "refusals::access_mode_limits_targets_per_node_issue_1686",
        |lab| async move {
            disk(&lab).await;
            let kubelet = Kubelet::new(&lab);
            kubelet.stage(VOLUME, ext4()).await.expect("it is staged");
            let cases = [
                (Mode::SingleNodeWriter, Code::Ok),
                (Mode::SingleNodeMultiWriter, Code::Ok),
                (Mode::SingleNodeSingleWriter, Code::FailedPrecondition),
            ];
            for (mode, second) in cases {
                for _ in 0..2 {
                    kubelet
                        .publish("pod-1/mount", false, mount("ext4", mode))
                        .await
                        .expect("the first is always served");
                }
                assert_eq!(
                    code(kubelet.publish("pod-2/mount", false, mount("ext4", mode)).await),
                    second,
                    "{mode:?}"
                );
                kubelet.unpublish("pod-1/mount").await.expect("it goes");
                kubelet.unpublish("pod-2/mount").await.expect("it goes");
            }
            kubelet.unstage(VOLUME).await.expect("it goes");
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
    let node = node_on(Host::new(HostPaths::default()));
    let refused = |field: &str, status: Status, expected: Code| {
        assert_eq!(status.code(), expected, "{status}");
        assert!(status.message().contains(field), "{status}");
    };
    let path = |path: &str| Path::new("/nowhere").join(path).display().to_string();

    let mut stage = NodeStageVolumeRequest::default();
    let answer = node.node_stage_volume(Request::new(stage.clone())).await;
    refused(
        "volume_id",
        answer.expect_err("nothing is given"),
        Code::InvalidArgument,
    );
    stage.volume_id = VOLUME.into();
    let answer = node.node_stage_volume(Request::new(stage.clone())).await;
    refused(
        "staging_target_path",
        answer.expect_err("no path is given"),
        Code::InvalidArgument,
    );
    stage.staging_target_path = path("staging");
    let answer = node.node_stage_volume(Request::new(stage)).await;
    refused(
        "volume_capability",
        answer.expect_err("no capability is given"),
        Code::InvalidArgument,
    );

    let mut publish = NodePublishVolumeRequest::default();
    let answer = node.node_publish_volume(Request::new(publish.clone())).await;
    refused(
        "volume_id",
        answer.expect_err("nothing is given"),
        Code::InvalidArgument,
    );
    publish.volume_id = VOLUME.into();
    let answer = node.node_publish_volume(Request::new(publish.clone())).await;
    refused(
        "target_path",
        answer.expect_err("no path is given"),
        Code::InvalidArgument,
    );
    publish.target_path = path("target");
    let answer = node.node_publish_volume(Request::new(publish.clone())).await;
    refused(
        "volume_capability",
        answer.expect_err("no capability is given"),
        Code::InvalidArgument,
    );
    publish.volume_capability = Some(ext4());
    let answer = node.node_publish_volume(Request::new(publish)).await;
    refused(
        "staging_target_path",
        answer.expect_err("it is not staged"),
        Code::FailedPrecondition,
    );

    let answer = node
        .node_unstage_volume(Request::new(NodeUnstageVolumeRequest::default()))
        .await;
    refused(
        "volume_id",
        answer.expect_err("nothing is given"),
        Code::InvalidArgument,
    );
    let half = NodeUnstageVolumeRequest {
        volume_id: VOLUME.into(),
        ..NodeUnstageVolumeRequest::default()
    };
    let answer = node.node_unstage_volume(Request::new(half)).await;
    refused(
        "staging_target_path",
        answer.expect_err("no path is given"),
        Code::InvalidArgument,
    );
    let half = NodeUnpublishVolumeRequest {
        volume_id: VOLUME.into(),
        ..NodeUnpublishVolumeRequest::default()
    };
    let answer = node.node_unpublish_volume(Request::new(half)).await;
    refused(
        "target_path",
        answer.expect_err("no path is given"),
        Code::InvalidArgument,
    );
    let half = NodeGetVolumeStatsRequest {
        volume_id: VOLUME.into(),
        ..NodeGetVolumeStatsRequest::default()
    };
    let answer = node.node_get_volume_stats(Request::new(half)).await;
    refused(
        "volume_path",
        answer.expect_err("no path is given"),
        Code::InvalidArgument,
    );

    let relative = NodeUnpublishVolumeRequest {
        volume_id: VOLUME.into(),
        target_path: "relative".into(),
    };
    let answer = node.node_unpublish_volume(Request::new(relative)).await;
    refused(
        "absolute",
        answer.expect_err("it has no meaning"),
        Code::InvalidArgument,
    );
}
