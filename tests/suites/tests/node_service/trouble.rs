// SPDX-License-Identifier: Apache-2.0
//! Tests of failed volumes, and of other volumes next to them.

use std::time::Duration;

use csi_proto::csi::v1::{StorageHealthErrorType, VolumeHealthErrorType};
use tonic::Code;

use crate::flaky::Mood;
use crate::lab::{MIB, OTHER, VOLUME, run};
use crate::{Kubelet, code, disk, ext4};

#[test]
fn hanging_volume_does_not_block_others_issue_1584() {
    run(
        "trouble::hanging_volume_does_not_block_others_issue_1584",
        |lab| async move {
            let (_, flaky) = lab.flaky(OTHER, 64 * MIB).await;
            disk(&lab).await;
            let kubelet = Kubelet::new(&lab);
            assert_eq!(kubelet.health(OTHER).await.expect("it is here"), []);
            flaky.set_mood(Mood::Hanging);
            let hung = kubelet.health(OTHER);
            let others = async {
                kubelet.must_stage(ext4()).await;
                kubelet.must_publish("pod/mount", false, ext4()).await;
                kubelet.usage("pod/mount").await;
                assert_eq!(kubelet.health(VOLUME).await.expect("it is here"), []);
                kubelet.must_unpublish("pod/mount").await;
            };
            let (hung, ()) = tokio::join!(hung, others);
            let timed_out = [(VolumeHealthErrorType::Inaccessible, "ReadTimedOut".to_owned())];
            assert_eq!(hung.expect("it is here"), timed_out);
            let start = tokio::time::Instant::now();
            assert_eq!(kubelet.health(OTHER).await.expect("it is here"), timed_out);
            assert_eq!(
                kubelet.storage_health().await,
                [StorageHealthErrorType::StorageDegraded]
            );
            assert!(
                start.elapsed() < Duration::from_secs(3),
                "what hangs is not asked again"
            );
            kubelet.must_unstage().await;
            assert_eq!(
                kubelet.storage_health().await,
                [StorageHealthErrorType::StorageUnreachable]
            );
            flaky.set_mood(Mood::Healthy);
            let recovers = async {
                while !kubelet.storage_health().await.is_empty() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(20), recovers)
                .await
                .expect("it is well again");
        },
    );
}

#[test]
fn health_reports_missing_disk_until_unmount() {
    run("trouble::health_reports_missing_disk_until_unmount", |lab| async move {
        let device = disk(&lab).await;
        let kubelet = Kubelet::new(&lab);
        assert_eq!(
            code(kubelet.health("some-other-volume").await.map(drop)),
            Code::NotFound
        );
        kubelet.must_stage(ext4()).await;
        // The loop device exists as long as the mount. Its link and its node are removed, as for an unplugged disk.
        std::fs::remove_file(lab.at("dev/disk/by-id/virtio-0cf2a1d9-6b1c-4c3e-9")).expect("its link");
        let device_gone = [(VolumeHealthErrorType::Inaccessible, "DeviceGone".to_owned())];
        assert_eq!(kubelet.health(VOLUME).await.expect("it is mounted"), device_gone);
        assert_eq!(
            kubelet.storage_health().await,
            [StorageHealthErrorType::StorageUnreachable]
        );
        kubelet.must_unstage().await;
        assert_eq!(code(kubelet.health(VOLUME).await.map(drop)), Code::NotFound);
        assert_eq!(kubelet.storage_health().await, []);
        drop(device);
    });
}

#[test]
fn health_request_without_id_is_refused() {
    run("trouble::health_request_without_id_is_refused", |lab| async move {
        let request = csi_proto::csi::v1::NodeGetVolumeHealthRequest::default();
        let node = Kubelet::new(&lab).node;
        let answer = csi_proto::csi::v1::node_server::Node::node_get_volume_health(&node, tonic::Request::new(request));
        assert_eq!(answer.await.expect_err("no id").code(), Code::InvalidArgument);
    });
}
