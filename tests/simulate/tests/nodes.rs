// SPDX-License-Identifier: Apache-2.0
//! Tests of the real node service on a simulated node, one situation per test.

#![allow(clippy::expect_used, clippy::panic, reason = "this is a test")]

use std::path::Path;
use std::sync::Arc;

use cinder_csi_driver::parameters::{PUBLISH_READONLY, PUBLISH_SIZE};
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::{
    CapacityRange, NodeExpandVolumeRequest, NodeGetInfoRequest, NodeGetVolumeStatsRequest, NodePublishVolumeRequest,
    NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest,
};
use csi_sources::Sources;
use rstest::rstest;
use simulate::backend::Backend;
use simulate::cluster::VolumeMode;
use simulate::machine::{Faults, Hardware, Holder, Medium, Moment, SimMachine, Violations};
use simulate::node::{Node, Trace};
use simulate::schedule::Schedule;
use tokio::time::{Duration, Instant, sleep};
use tonic::{Code, Status};

const VOLUME: &str = "0cf2a1d9-6b1c-4c3e-9d3f-5a8f2f3d7e10";
const CLONE: &str = "7b7c1f60-aaaa-4bbb-8ccc-1234567890ab";
const TARGET: &str = "/var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/pvc-1/mount";
const GIB: u64 = 1 << 30;

fn node() -> Node {
    node_on(Hardware::Virtio).0
}

fn node_on(hardware: Hardware) -> (Node, Schedule) {
    let start = "2026-01-02T03:04:05Z".parse().expect("a time");
    let schedule = Schedule::new(Sources::seeded(1, start), true);
    let violations = Violations::observed_by(Arc::new(Trace(schedule.clone())));
    let server = "6c1f2b9e-0000-4000-8000-000000000001".to_owned();
    let backend = Backend::new(schedule.clone());
    let node = Node::on(hardware, "node-1".into(), server, backend, violations, schedule.clone());
    (node, schedule)
}

fn staging(volume: &str) -> String {
    format!("/var/lib/kubelet/plugins/kubernetes.io/csi/cinder.csi.openstack.org/{volume}/globalmount")
}

async fn stage(node: &Node, volume: &str, fs_type: &'static str) -> Result<(), Status> {
    stage_as(node, volume, VolumeMode::Filesystem(fs_type), None).await
}

async fn stage_as(node: &Node, volume: &str, mode: VolumeMode, size: Option<u64>) -> Result<(), Status> {
    let size = size.map(|size| (PUBLISH_SIZE, size.to_string()));
    stage_with(node, volume, mode, size.into_iter()).await
}

async fn stage_with(
    node: &Node,
    volume: &str,
    mode: VolumeMode,
    context: impl Iterator<Item = (&str, String)>,
) -> Result<(), Status> {
    let request = NodeStageVolumeRequest {
        volume_id: volume.to_owned(),
        staging_target_path: staging(volume),
        volume_capability: Some(mode.capability(Mode::SingleNodeMultiWriter)),
        publish_context: context.map(|(key, value)| (key.to_owned(), value)).collect(),
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
async fn failed_btrfs_clone_does_not_block_source() {
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
    // The kubelet cleans up only if the code allows that a mount exists.
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
        volume_capability: Some(mode.capability(Mode::SingleNodeMultiWriter)),
        ..NodePublishVolumeRequest::default()
    };
    let answer = node.call(request, async |mut client, request| {
        client.node_publish_volume(request).await
    });
    answer.await.map(drop)
}

async fn unpublish(node: &Node) -> Result<(), Status> {
    let request = NodeUnpublishVolumeRequest {
        volume_id: VOLUME.to_owned(),
        target_path: TARGET.to_owned(),
    };
    let answer = node.call(request, async |mut client, request| {
        client.node_unpublish_volume(request).await
    });
    answer.await.map(drop)
}

/// Expands a volume as the kubelet does, with both paths.
async fn expand(node: &Node, path: &str, mode: VolumeMode) -> Result<i64, Status> {
    let request = NodeExpandVolumeRequest {
        volume_id: VOLUME.to_owned(),
        volume_path: path.to_owned(),
        staging_target_path: staging(VOLUME),
        capacity_range: Some(CapacityRange {
            required_bytes: i64::try_from(2 * GIB).expect("a small volume"),
            limit_bytes: 0,
        }),
        volume_capability: Some(mode.capability(Mode::SingleNodeMultiWriter)),
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

/// Returns the duration of a call in seconds, and its code.
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
    machine.hold_elsewhere(VOLUME, Holder::Mounts);
    machine.hold_elsewhere(VOLUME, Holder::File);
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
    machine.release_elsewhere(VOLUME);
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
        machine.hold_elsewhere(VOLUME, Holder::Mounts);
        let (seconds, code) = timed(unstage(&node, VOLUME)).await;
        assert_eq!((seconds, code), (0, Code::Ok));
        assert!(!machine.is_used(VOLUME));
    }
}

#[rstest]
#[case::file_system(VolumeMode::Filesystem("xfs"))]
#[case::raw_block(VolumeMode::Block)]
#[tokio::test(start_paused = true)]
async fn small_disk_does_not_block_pod_start(#[case] mode: VolumeMode) {
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

#[rstest]
#[tokio::test(start_paused = true)]
async fn volume_is_found_and_grows_on_each_hardware(
    #[values(
        Hardware::Virtio,
        Hardware::VirtioWithLocalNvme,
        Hardware::NvmeMultipath,
        Hardware::ScsiMultipath
    )]
    hardware: Hardware,
    #[values(VolumeMode::Filesystem("ext4"), VolumeMode::Filesystem("btrfs"), VolumeMode::Block)] mode: VolumeMode,
) {
    let (node, schedule) = node_on(hardware);
    let machine = node.machine();
    machine.plug(VOLUME, Medium::blank(), GIB);
    machine.plug(CLONE, Medium::blank(), GIB);
    stage_as(&node, VOLUME, mode, Some(GIB))
        .await
        .expect("the volume is blank");
    publish(&node, mode).await.expect("it is staged");
    machine.write(Path::new(TARGET), 1).expect("it is writable");
    machine.resize(VOLUME, 2 * GIB);
    let grown = expand(&node, TARGET, mode).await.expect("the disk has grown");
    assert_eq!(u64::try_from(grown), Ok(2 * GIB));
    let (device, filesystem) = machine.sizes(VOLUME);
    assert_eq!(device, Some(2 * GIB));
    assert!(mode == VolumeMode::Block || filesystem == device, "{filesystem:?}");

    let info = node.call(NodeGetInfoRequest::default(), async |mut client, request| {
        client.node_get_info(request).await
    });
    let promised = info.await.expect("the node is known").max_volumes_per_node;
    assert!(
        (20..=i64::try_from(machine.room()).expect("a small number")).contains(&promised),
        "{promised}"
    );

    unpublish(&node).await.expect("it is not open");
    unstage(&node, VOLUME).await.expect("it is not in use");
    remove_directory(machine);
    assert_eq!(machine.leftovers(), Vec::<String>::new());
    assert_eq!(schedule.violated(), None);
}

#[tokio::test(start_paused = true)]
async fn foreign_content_is_never_formatted() {
    let (node, schedule) = node_on(Hardware::Virtio);
    let machine = node.machine();
    machine.set_faults(Faults {
        foreign: 1_000_000,
        ..Faults::default()
    });
    for index in 0..16 {
        let volume = format!("{index:02}{}", &VOLUME[2..]);
        let medium = Medium::blank();
        machine.plug(&volume, medium.clone(), GIB);
        assert!(medium.is_foreign());
        let refused = stage(&node, &volume, "ext4").await.expect_err("it may be data");
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        machine.unplug(&volume);
    }
    assert_eq!(schedule.violated(), None);
}

#[tokio::test(start_paused = true)]
async fn damaged_file_system_is_checked_before_mount() {
    let (node, schedule) = node_on(Hardware::NvmeMultipath);
    let (machine, medium) = (node.machine(), Medium::blank());
    machine.plug(VOLUME, medium.clone(), GIB);
    let mut refusals = 0;
    for _ in 0..12 {
        let staged = stage(&node, VOLUME, "ext4").await;
        if staged.is_err() {
            refusals += 1;
            medium.repair();
            stage(&node, VOLUME, "ext4").await.expect("it was repaired");
        }
        machine.set_faults(Faults {
            damage: 1_000_000,
            ..Faults::default()
        });
        machine.unplug(VOLUME);
        machine.set_faults(Faults::default());
        unstage(&node, VOLUME).await.expect("a dead mount is unmounted");
        machine.plug(VOLUME, medium.clone(), GIB);
    }
    assert!((1..12).contains(&refusals), "{refusals}");
    assert_eq!(schedule.violated(), None);
}

#[tokio::test(start_paused = true)]
async fn raw_device_is_durable_after_unstage() {
    let node = node();
    let (machine, medium, target) = (node.machine(), Medium::blank(), Path::new(TARGET));
    machine.plug(VOLUME, medium.clone(), GIB);
    for key in [1, 2] {
        stage_as(&node, VOLUME, VolumeMode::Block, Some(GIB))
            .await
            .expect("it is attached");
        publish(&node, VolumeMode::Block).await.expect("it is staged");
        assert!(
            machine
                .read(target)
                .expect("it is published")
                .iter()
                .copied()
                .eq(1..key)
        );
        machine.write_cached(target, key).expect("it is writable");
        machine.hold_elsewhere(VOLUME, Holder::Device);
        unpublish(&node).await.expect("no pod has it open");
        unstage(&node, VOLUME).await.expect("an agent does not count");
        machine.unplug(VOLUME);
        machine.plug(VOLUME, medium.clone(), GIB);
    }
}

#[tokio::test(start_paused = true)]
async fn driver_killed_at_any_mount_loses_nothing() {
    let ((node, schedule), mode) = (node_on(Hardware::ScsiMultipath), VolumeMode::Filesystem("xfs"));
    let machine = node.machine();
    machine.plug(VOLUME, Medium::blank(), GIB);
    for moment in Moment::ALL {
        for after in 0..4 {
            let kill = async {
                let stopped = machine.stop_at(moment, after, Duration::from_secs(20)).await;
                node.driver().kill();
                drop(stopped);
                node.start_driver();
            };
            // The call may end before.
            let (staged, ()) = tokio::join!(stage(&node, VOLUME, "xfs"), kill);
            if staged.is_err() {
                stage(&node, VOLUME, "xfs").await.expect("a retry continues");
            }
            publish(&node, mode).await.expect("it is staged");
            machine.write(Path::new(TARGET), after).expect("it is writable");
            unpublish(&node).await.expect("it is not open");
            unstage(&node, VOLUME).await.expect("it is not in use");
        }
    }
    assert_eq!(schedule.violated(), None);
}

/// Removes the staging directory, as the kubelet does.
fn remove_directory(machine: &SimMachine) {
    // The driver may have removed it.
    drop(csi_host::Machine::remove_directory(
        machine,
        Path::new(&staging(VOLUME)),
    ));
}

/// A cancelled call may still take effect.
#[rstest]
#[case("ext4")]
#[case("btrfs")]
#[tokio::test(start_paused = true)]
async fn unstage_waits_for_hung_calls_of_stage(#[case] fs_type: &'static str) {
    let (node, schedule) = node_on(Hardware::Virtio);
    let machine = node.machine();
    machine.plug(VOLUME, Medium::blank(), GIB);
    for after in 0..40 {
        let hang = machine.stop_at(Moment::SystemCall, after, Duration::from_mins(1));
        // If the response does not depend on the hung call, it is OK.
        let (_, hung) = tokio::join!(stage(&node, VOLUME, fs_type), hang);
        let unstaged = unstage(&node, VOLUME).await;
        if unstaged.is_ok() {
            remove_directory(machine);
        }
        drop(hung);
        sleep(Duration::from_mins(15)).await;
        if unstaged.is_err() {
            unstage(&node, VOLUME).await.expect("nothing hangs");
            remove_directory(machine);
        }
        node.check_at_rest();
        assert_eq!(schedule.violated(), None, "after {after} calls");
    }
}

#[tokio::test(start_paused = true)]
async fn own_stale_mount_does_not_block_stage() {
    let ((node, schedule), mode) = (node_on(Hardware::Virtio), VolumeMode::Filesystem("btrfs"));
    let machine = node.machine();
    machine.plug(VOLUME, Medium::blank(), GIB);
    stage(&node, VOLUME, "btrfs").await.expect("it is formatted");
    unstage(&node, VOLUME).await.expect("it is not in use");
    let read_only = || stage_with(&node, VOLUME, mode, [(PUBLISH_READONLY, "true".to_owned())].into_iter());
    machine.set_faults(Faults {
        unmount_busy: 1_000_000,
        ..Faults::default()
    });
    let error = read_only().await.expect_err("the check mount stays");
    assert_eq!(error.code(), Code::Unavailable, "{error:?}");
    machine.set_faults(Faults::default());
    read_only().await.expect("a retry continues");
    let mount = machine.shown_mount(Path::new(&staging(VOLUME))).expect("it is staged");
    assert!(mount.has_option("rescue=nologreplay"), "{mount:?}");
    assert_eq!(schedule.violated(), None);
}

#[rstest]
#[case(Hardware::Virtio)]
#[case(Hardware::NvmeMultipath)]
#[case(Hardware::ScsiMultipath)]
#[tokio::test(start_paused = true)]
async fn other_volume_is_not_unmounted(#[case] hardware: Hardware) {
    let (node, _) = node_on(hardware);
    let machine = node.machine();
    for volume in [VOLUME, CLONE] {
        machine.plug(volume, Medium::blank(), GIB);
        stage(&node, volume, "ext4").await.expect("the volume is blank");
    }
    let request = NodeUnstageVolumeRequest {
        volume_id: VOLUME.to_owned(),
        staging_target_path: staging(CLONE),
    };
    let answer = node.call(request, async |mut client, request| {
        client.node_unstage_volume(request).await
    });
    let refused = answer.await.expect_err("the path has another volume");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert_eq!(machine.places(CLONE), [Path::new(&staging(CLONE))]);
}
