// SPDX-License-Identifier: Apache-2.0
//! The real node service on a simulated node, one situation at a time.

#![allow(clippy::expect_used, clippy::panic, reason = "this is a test")]

use std::path::Path;
use std::sync::Arc;

use csi_proto::csi::v1::{NodeStageVolumeRequest, NodeUnstageVolumeRequest};
use csi_sources::Sources;
use rstest::rstest;
use simulate::backend::Backend;
use simulate::cluster::VolumeMode;
use simulate::machine::{Faults, Medium, Violations};
use simulate::node::{Node, Trace};
use simulate::schedule::Schedule;
use tokio::time::Instant;
use tonic::{Code, Status};

const VOLUME: &str = "0cf2a1d9-6b1c-4c3e-9d3f-5a8f2f3d7e10";
const CLONE: &str = "7b7c1f60-aaaa-4bbb-8ccc-1234567890ab";
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
    let request = NodeStageVolumeRequest {
        volume_id: volume.to_owned(),
        staging_target_path: staging(volume),
        volume_capability: Some(VolumeMode::Filesystem(fs_type).capability()),
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
