// SPDX-License-Identifier: Apache-2.0
//! The real node service on a simulated node, one situation at a time.

#![allow(clippy::expect_used, clippy::panic, reason = "this is a test")]

use std::path::Path;
use std::sync::Arc;

use cinder_csi_driver::parameters::PUBLISH_SIZE;
use csi_proto::csi::v1::{
    CapacityRange, NodeExpandVolumeRequest, NodeGetVolumeStatsRequest, NodePublishVolumeRequest,
    NodeStageVolumeRequest, NodeUnstageVolumeRequest,
};
use csi_sources::Sources;
use rstest::rstest;
use simulate::backend::Backend;
use simulate::cluster::VolumeMode;
use simulate::machine::{Faults, Medium, Violations};
use simulate::node::{Node, Trace};
use simulate::schedule::Schedule;
use tokio::time::{Duration, Instant, sleep};
use tonic::{Code, Status};

const VOLUME: &str = "0cf2a1d9-6b1c-4c3e-9d3f-5a8f2f3d7e10";
const CLONE: &str = "7b7c1f60-aaaa-4bbb-8ccc-1234567890ab";
const TARGET: &str = "/var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/pvc-1/mount";
const GIB: u64 = 1 << 30;

fn node() -> Node {
    let start = "2026-01-02T03:04:05Z".parse().expect("a time");
    let schedule = Schedule::new(Sources::seeded(1, start), true);
    let violations = Violations::observed_by(Arc::new(Trace(schedule.clone())));
    let server = "6c1f2b9e-0000-4000-8000-000000000001".to_owned();
    Node::new(
        "node-1".into(),
        server,
        Backend::new(schedule.clone()),
        violations,
        schedule,
    )
}

fn staging(volume: &str) -> String {
    format!("/var/lib/kubelet/plugins/kubernetes.io/csi/cinder.csi.openstack.org/{volume}/globalmount")
}

async fn stage(node: &Node, volume: &str, fs_type: &'static str) -> Result<(), Status> {
    stage_as(node, volume, VolumeMode::Filesystem(fs_type), None).await
}

async fn stage_as(node: &Node, volume: &str, mode: VolumeMode, size: Option<u64>) -> Result<(), Status> {
    let size = size.map(|size| (PUBLISH_SIZE.to_owned(), size.to_string()));
    let request = NodeStageVolumeRequest {
        volume_id: volume.to_owned(),
        staging_target_path: staging(volume),
        volume_capability: Some(mode.capability()),
        publish_context: size.into_iter().collect(),
        ..NodeStageVolumeRequest::default()
    };
    let answer = node.call(request, async |mut client, request| {
        client.node_stage_volume(request).await
    });
    answer.await.map(drop)
}

async fn unstage(node: &Node, volume: &str) -> Result<(), Status> {
    let request = NodeUnstageVolumeRequest {
        volume_id: volume.to_owned(),
        staging_target_path: staging(volume),
    };
    let answer = node.call(request, async |mut client, request| {
        client.node_unstage_volume(request).await
    });
    answer.await.map(drop)
}

#[tokio::test(start_paused = true)]
async fn a_clone_of_a_mounted_btrfs_leaves_nothing_that_holds_its_source() {
    let node = node();
    let (machine, medium) = (node.machine(), Medium::blank());
    machine.plug(VOLUME, medium.clone(), GIB);
    stage(&node, VOLUME, "btrfs").await.expect("it is blank");
    machine.plug(CLONE, medium.copy(), GIB);
    machine.set_faults(Faults {
        unmount_busy: 1_000_000,
        ..Faults::default()
    });
    let refused = stage(&node, CLONE, "btrfs")
        .await
        .expect_err("the kernel shows the source");
    machine.set_faults(Faults::default());
    assert!(
        !machine
            .places(VOLUME)
            .iter()
            .any(|place| place == Path::new(&staging(CLONE)))
    );
    // What is left is taken away by the kubelet only where the code says that something may be.
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    unstage(&node, CLONE).await.expect("nothing of it is in use");
    unstage(&node, VOLUME).await.expect("nothing of it is in use");
    assert_eq!(machine.places(VOLUME), [""; 0].map(Path::new));
}

async fn publish(node: &Node, mode: VolumeMode) -> Result<(), Status> {
    let request = NodePublishVolumeRequest {
        volume_id: VOLUME.to_owned(),
        staging_target_path: staging(VOLUME),
        target_path: TARGET.to_owned(),
        volume_capability: Some(mode.capability()),
        ..NodePublishVolumeRequest::default()
    };
    let answer = node.call(request, async |mut client, request| {
        client.node_publish_volume(request).await
    });
    answer.await.map(drop)
}

/// Expands as the kubelet does, which names both paths.
async fn expand(node: &Node, path: &str, mode: VolumeMode) -> Result<i64, Status> {
    let request = NodeExpandVolumeRequest {
        volume_id: VOLUME.to_owned(),
        volume_path: path.to_owned(),
        staging_target_path: staging(VOLUME),
        capacity_range: Some(CapacityRange {
            required_bytes: i64::try_from(2 * GIB).expect("a small volume"),
            limit_bytes: 0,
        }),
        volume_capability: Some(mode.capability()),
        ..NodeExpandVolumeRequest::default()
    };
    let answer = node.call(request, async |mut client, request| {
        client.node_expand_volume(request).await
    });
    answer.await.map(|answer| answer.capacity_bytes)
}

async fn ask_usage(node: &Node) {
    let request = NodeGetVolumeStatsRequest {
        volume_id: VOLUME.to_owned(),
        volume_path: TARGET.to_owned(),
        ..NodeGetVolumeStatsRequest::default()
    };
    let answer = node.call(request, async |mut client, request| {
        client.node_get_volume_stats(request).await
    });
    answer.await.expect("the volume is published");
}

/// Seconds that a call takes, and its code.
async fn timed<T>(call: impl Future<Output = Result<T, Status>>) -> (u64, Code) {
    let start = Instant::now();
    let code = call.await.map_or_else(|status| status.code(), |_| Code::Ok);
    (start.elapsed().as_secs(), code)
}

#[rstest]
#[case("ext4")]
#[case("xfs")]
#[case("btrfs")]
#[tokio::test(start_paused = true)]
async fn volume_is_staged_again_while_file_is_open(#[case] fs_type: &'static str) {
    let node = node();
    let (machine, staging) = (node.machine(), staging(VOLUME));
    machine.plug(VOLUME, Medium::blank(), GIB);
    stage(&node, VOLUME, fs_type).await.expect("the volume is blank");
    machine.write(Path::new(&staging), 1).expect("it is writable");
    machine.mount_elsewhere(VOLUME);
    machine.open_elsewhere(VOLUME);
    for _ in 0..2 {
        let (seconds, code) = timed(unstage(&node, VOLUME)).await;
        assert_eq!(
            (seconds, code),
            (30, Code::Ok),
            "the holder is waited for and passed over"
        );
        assert_eq!(machine.places(VOLUME), [""; 0].map(Path::new));
        let (seconds, code) = timed(stage(&node, VOLUME, fs_type)).await;
        assert_eq!((seconds, code), (0, Code::Ok));
        let keys = machine.read(Path::new(&staging)).expect("it is mounted");
        assert_eq!(keys.into_iter().collect::<Vec<u64>>(), [1]);
    }
    machine.unmount_elsewhere(VOLUME);
    let (seconds, code) = timed(unstage(&node, VOLUME)).await;
    assert_eq!((seconds, code), (0, Code::Ok));
}

#[tokio::test(start_paused = true)]
async fn private_mount_does_not_delay_unstage() {
    let node = node();
    let machine = node.machine();
    machine.plug(VOLUME, Medium::blank(), GIB);
    for _ in 0..2 {
        stage(&node, VOLUME, "ext4").await.expect("it can be mounted");
        machine.mount_elsewhere(VOLUME);
        let (seconds, code) = timed(unstage(&node, VOLUME)).await;
        assert_eq!((seconds, code), (0, Code::Ok));
        assert!(!machine.is_used(VOLUME));
    }
}

#[rstest]
#[case::file_system(VolumeMode::Filesystem("xfs"))]
#[case::raw_block(VolumeMode::Block)]
#[tokio::test(start_paused = true)]
async fn small_disk_does_not_keep_pod_from_starting(#[case] mode: VolumeMode) {
    let node = node();
    let machine = node.machine();
    machine.plug(VOLUME, Medium::blank(), GIB);
    stage_as(&node, VOLUME, mode, None).await.expect("the volume is blank");
    let before = timed(expand(&node, &staging(VOLUME), mode)).await;
    assert_eq!(before, (0, Code::FailedPrecondition), "only the staging path has it");
    publish(&node, mode).await.expect("it is staged");
    let after = timed(expand(&node, TARGET, mode)).await;
    assert_eq!(
        after,
        (30, Code::FailedPrecondition),
        "the kubelet has just published it"
    );
    // The pod runs now.
    ask_usage(&node).await;
    let online = timed(expand(&node, TARGET, mode)).await;
    assert_eq!(online, (60, Code::Unavailable), "the kubelet tries again");
    machine.resize(VOLUME, 2 * GIB);
    let grown = expand(&node, TARGET, mode).await.expect("the disk has grown");
    assert_eq!(u64::try_from(grown), Ok(2 * GIB));
}

#[tokio::test(start_paused = true)]
async fn expansion_long_after_publish_is_retried() {
    let (node, mode) = (node(), VolumeMode::Filesystem("ext4"));
    node.machine().plug(VOLUME, Medium::blank(), GIB);
    stage_as(&node, VOLUME, mode, None).await.expect("the volume is blank");
    publish(&node, mode).await.expect("it is staged");
    sleep(Duration::from_hours(2)).await;
    let online = timed(expand(&node, TARGET, mode)).await;
    assert_eq!(online, (60, Code::Unavailable));
}

#[tokio::test(start_paused = true)]
async fn small_disk_is_staged_unless_it_is_blank() {
    let (node, mode) = (node(), VolumeMode::Filesystem("ext4"));
    let (machine, medium) = (node.machine(), Medium::blank());
    machine.plug(VOLUME, medium.clone(), GIB);
    let blank = stage_as(&node, VOLUME, mode, Some(2 * GIB)).await;
    assert_eq!(
        blank.expect_err("a part of a disk is not formatted").code(),
        Code::FailedPrecondition
    );
    assert!(!medium.holds_data());
    let raw = timed(stage_as(&node, VOLUME, VolumeMode::Block, Some(2 * GIB))).await;
    assert_eq!(raw, (10, Code::Ok), "nothing is formatted");
    stage_as(&node, VOLUME, mode, Some(GIB)).await.expect("it has its size");
    unstage(&node, VOLUME).await.expect("it is not in use");
    let existing = timed(stage_as(&node, VOLUME, mode, Some(2 * GIB))).await;
    assert_eq!(existing, (10, Code::Ok));
}
