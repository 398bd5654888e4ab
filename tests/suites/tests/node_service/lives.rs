// SPDX-License-Identifier: Apache-2.0
//! Tests of volume lifecycles without errors.

use std::fs;
use std::time::Duration;

use csi_host::{Host, HostPaths, Tools};
use csi_proto::csi::v1::node_server::Node;
use csi_proto::csi::v1::node_service_capability::{Type, rpc};
use csi_proto::csi::v1::volume_capability::AccessType;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::volume_usage::Unit;
use csi_proto::csi::v1::{NodeGetCapabilitiesRequest, VolumeUsage};
use tonic::{Code, Request};

use crate::lab::{self, OTHER, VOLUME, read_at, run, write_at};
use crate::{Kubelet, block, code, disk, expect_code, expect_content, ext4, mount, node_on};

#[test]
fn read_only_mount_option_permits_repeated_publish() {
    run(
        "lives::read_only_mount_option_permits_repeated_publish",
        |lab| async move {
            disk(&lab).await;
            let kubelet = Kubelet::new(&lab);
            kubelet.must_stage(ext4()).await;
            kubelet.must_unstage().await;
            let mut read_only = ext4();
            if let Some(AccessType::Mount(mount)) = &mut read_only.access_type {
                mount.mount_flags = vec!["ro".into()];
            }
            for _ in 0..2 {
                kubelet.must_stage(read_only.clone()).await;
                kubelet.must_publish("pod/mount", false, read_only.clone()).await;
            }
            assert_eq!(kubelet.mounts_at("pod/mount").await, 1);
            assert!(fs::write(lab.at("pod/mount/data"), "data").is_err());
            kubelet.must_unpublish("pod/mount").await;
            kubelet.must_unstage().await;
        },
    );
}

#[test]
fn file_system_lifecycle_is_idempotent() {
    run("lives::file_system_lifecycle_is_idempotent", |lab| async move {
        disk(&lab).await;
        let kubelet = Kubelet::new(&lab);
        for _ in 0..3 {
            kubelet.must_stage(ext4()).await;
        }
        for _ in 0..3 {
            kubelet.must_publish("pod/mount", false, ext4()).await;
            kubelet.must_publish("pod/read-only", true, ext4()).await;
        }
        for place in ["staging", "pod/mount", "pod/read-only"] {
            assert_eq!(kubelet.mounts_at(place).await, 1, "nothing is stacked at {place}");
        }
        fs::write(lab.at("pod/mount/data"), "data").expect("it can be written");
        expect_content(&lab.at("pod/read-only/data"), "data");
        assert!(fs::write(lab.at("pod/read-only/data"), "other").is_err());

        let usage = kubelet.usage("pod/mount").await;
        assert_eq!(
            usage.iter().map(VolumeUsage::unit).collect::<Vec<_>>(),
            [Unit::Bytes, Unit::Inodes]
        );
        assert!(
            usage
                .iter()
                .all(|figure| figure.total > 0 && figure.used > 0 && figure.available > 0),
            "{usage:?}"
        );

        for _ in 0..2 {
            kubelet.must_unpublish("pod/mount").await;
            kubelet.must_unpublish("pod/read-only").await;
        }
        assert!(
            !lab.at("pod/mount").exists() && !lab.at("pod/read-only").exists(),
            "targets are removed"
        );
        for _ in 0..2 {
            kubelet.must_unstage().await;
        }
        assert_eq!(kubelet.mounts_at("staging").await, 0);
        kubelet.must_stage(ext4()).await;
        expect_content(&lab.at("staging/data"), "data");
        kubelet.must_unstage().await;
    });
}

#[test]
fn block_lifecycle_is_idempotent() {
    run("lives::block_lifecycle_is_idempotent", |lab| async move {
        let device = disk(&lab).await;
        write_at(&device, 0, b"raw data");
        let kubelet = Kubelet::new(&lab);
        for _ in 0..3 {
            kubelet.must_stage(block()).await;
            kubelet.must_publish("pod/device", false, block()).await;
            kubelet.must_publish("pod/read-only", true, block()).await;
        }
        assert_eq!(
            (
                kubelet.mounts_at("staging").await,
                kubelet.mounts_at("pod/device").await
            ),
            (0, 1)
        );
        assert_eq!(read_at(&device, 0, 8), b"raw data", "nothing is formatted");
        let number = lab
            .host()
            .device_number(&lab.at("pod/device"))
            .await
            .expect("it can be looked at");
        assert_eq!(number, Some(device.number));
        let usage = kubelet.usage("pod/device").await;
        assert_eq!(usage.iter().map(|figure| figure.total).collect::<Vec<_>>(), [64 << 20]);
        expect_code(kubelet.publish("pod/device", true, block()).await, Code::AlreadyExists);
        for _ in 0..2 {
            kubelet.must_unpublish("pod/device").await;
            kubelet.must_unpublish("pod/read-only").await;
            kubelet.must_unstage().await;
        }
        assert!(!lab.at("pod/device").exists());
    });
}

#[test]
fn unknown_volume_is_unstaged_without_usage() {
    run("lives::unknown_volume_is_unstaged_without_usage", |lab| async move {
        disk(&lab).await;
        let kubelet = Kubelet::new(&lab);
        kubelet.must_unpublish("pod/mount").await;
        kubelet.unstage(OTHER).await.expect("nothing is there");
        let usage = kubelet.stats("non-existing-volume-id", "some/path").await.map(drop);
        assert_eq!(code(usage), Code::NotFound);
        kubelet.must_stage(ext4()).await;
        for path in [kubelet.path("elsewhere"), "/".into(), "some/path".into()] {
            assert_eq!(
                code(kubelet.stats(VOLUME, &path).await.map(drop)),
                Code::NotFound,
                "{path}"
            );
        }
        kubelet.must_unstage().await;
    });
}

#[test]
fn retry_joins_mkfs_after_timeout_issue_3068() {
    run("lives::retry_joins_mkfs_after_timeout_issue_3068", |lab| async move {
        disk(&lab).await;
        let (gate, runs) = (lab.at("gate"), lab.at("runs"));
        lab::output(std::process::Command::new("mkfifo").arg(&gate));
        let body = format!(
            "echo run >> {}; cat {} > /dev/null; exec mkfs.ext4 \"$@\"",
            runs.display(),
            gate.display()
        );
        let tools = Tools {
            mkfs_ext4: lab.script("slow.ext4", &body),
            ..Tools::default()
        };
        let kubelet = Kubelet::with_tools(&lab, tools);
        let mut first = Request::new(kubelet.stage_request(VOLUME, ext4()));
        first.set_timeout(Duration::from_secs(2));
        let error = kubelet.node.node_stage_volume(first).await.expect_err("mkfs waits");
        assert_eq!(error.code(), Code::DeadlineExceeded, "{error}");
        // Calls for another volume, or with another capability, are not treated as retries.
        expect_code(
            kubelet.stage(VOLUME, mount("xfs", Mode::SingleNodeWriter)).await,
            Code::Aborted,
        );
        let retry = kubelet.stage(VOLUME, ext4());
        let open_the_gate = tokio::task::spawn_blocking(move || fs::write(gate, "go"));
        let (retried, opened) = tokio::join!(retry, open_the_gate);
        opened.expect("no panic").expect("somebody reads");
        retried.expect("the same mkfs came to its end");
        assert_eq!(fs::read_to_string(runs).expect("it ran"), "run\n", "mkfs ran once");
        kubelet.must_unstage().await;
    });
}

#[tokio::test]
async fn capabilities_match_served_rpcs() {
    let node = node_on(Host::new(HostPaths::default()));
    let answer = node
        .node_get_capabilities(Request::new(NodeGetCapabilitiesRequest {}))
        .await
        .expect("it never fails");
    let claimed = answer
        .into_inner()
        .capabilities
        .into_iter()
        .map(|capability| match capability.r#type {
            Some(Type::Rpc(rpc)) => rpc.r#type(),
            None => rpc::Type::Unknown,
        });
    assert_eq!(
        claimed.collect::<Vec<_>>(),
        [
            rpc::Type::StageUnstageVolume,
            rpc::Type::GetVolumeStats,
            rpc::Type::ExpandVolume,
            rpc::Type::GetVolumeHealth,
            rpc::Type::GetStorageHealth,
            rpc::Type::SingleNodeMultiWriter
        ]
    );
}
