// SPDX-License-Identifier: Apache-2.0
//! The node service on an emulated machine, which consists of files and has the disk of one volume.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use csi_host::{Host, HostPaths};
use csi_kit::metrics::{BuildInfo, Metrics};
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use csi_proto::csi::v1::{
    CapacityRange, NodeExpandVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest,
    NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, VolumeCapability,
};
use rstest::rstest;
use rustix::fs::{CWD, FileType, Mode as Bits, makedev, mknodat};
use tempfile::TempDir;
use tonic::{Code, Request, Status};

use super::*;
use crate::args::Args;
use crate::metrics::DriverMetrics;
use crate::operations::{Limits, Operations};
use crate::parameters;

const VOLUME: &str = "0cf2a1d9-6b1c-4c3e-9d3f-5a8f2f3d7e10";
const OTHER: &str = "7b7c1f60-aaaa-4bbb-8ccc-1234567890ab";

struct Machine {
    dir: TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Self {
            dir: tempfile::tempdir().expect("a temporary directory"),
        };
        let disk = machine.at("sys/block/vda");
        for directory in [&disk, &machine.at("dev"), &machine.at("proc/self"), &machine.at("pod")] {
            fs::create_dir_all(directory).expect("a directory");
        }
        for (file, text) in [("serial", VOLUME), ("size", "2048"), ("dev", "254:0"), ("ro", "0")] {
            fs::write(disk.join(file), text).expect("a file");
        }
        machine.mounted("");
        machine
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().expect("it exists").join(name)
    }

    /// Sets the kernel's list of mounts.
    fn mounted(&self, mountinfo: &str) {
        fs::write(self.at("proc/self/mountinfo"), mountinfo).expect("a file");
    }

    /// Points udev's link of the volume to the disk of another volume. No disk has the serial of this volume.
    fn lose_the_link(&self) {
        fs::write(self.at("sys/block/vda/serial"), "volume-2").expect("a file");
        fs::write(self.at("dev/vda"), "").expect("a file");
        fs::create_dir_all(self.at("dev/disk/by-id")).expect("a directory");
        symlink("../../vda", self.link()).expect("a link");
    }

    fn link(&self) -> PathBuf {
        let serial = VOLUME.get(..20).unwrap_or(VOLUME);
        self.at("dev/disk/by-id").join(format!("virtio-{serial}"))
    }

    fn node(&self) -> NodeService {
        // Unstage refuses while the device is in use.
        let mut config = NodeConfig::default();
        config.args.device_in_use_timeout = Duration::ZERO;
        self.node_with(config)
    }

    fn node_with(&self, config: NodeConfig) -> NodeService {
        let host = Host::new(HostPaths {
            sys: self.at("sys"),
            dev: self.at("dev"),
            proc: self.at("proc"),
        });
        NodeService::new(config, host, Operations::new(Limits::default()))
    }

    /// Adds a device-mapper device that uses the disk.
    fn hold(&self) {
        fs::create_dir_all(self.at("sys/block/vda/holders/dm-0")).expect("a directory");
        fs::create_dir_all(self.at("sys/block/dm-0/dm")).expect("a directory");
        for (file, text) in [("dev", "253:0\n"), ("dm/name", "group-volume\n")] {
            fs::write(self.at("sys/block/dm-0").join(file), text).expect("a file");
        }
    }

    async fn stage(&self) -> Result<(), Status> {
        let request = NodeStageVolumeRequest {
            volume_id: VOLUME.into(),
            staging_target_path: self.at("staging").display().to_string(),
            volume_capability: Some(ext4()),
            volume_context: [(parameters::RESIZE_REQUIRED.into(), "true".into())].into(),
            ..NodeStageVolumeRequest::default()
        };
        self.node().node_stage_volume(Request::new(request)).await.map(drop)
    }

    async fn publish(&self) -> Result<(), Status> {
        let request = NodePublishVolumeRequest {
            volume_id: VOLUME.into(),
            staging_target_path: self.at("staging").display().to_string(),
            target_path: self.at("pod/mount").display().to_string(),
            volume_capability: Some(ext4()),
            ..NodePublishVolumeRequest::default()
        };
        self.node().node_publish_volume(Request::new(request)).await.map(drop)
    }

    async fn unpublish(&self, target: &str) -> Result<(), Status> {
        let request = NodeUnpublishVolumeRequest {
            volume_id: VOLUME.into(),
            target_path: self.at(target).display().to_string(),
        };
        self.node().node_unpublish_volume(Request::new(request)).await.map(drop)
    }

    /// Expands the volume as a raw device with a size of 1 MiB.
    async fn expand(&self, required_bytes: u64) -> Result<i64, Status> {
        let request = NodeExpandVolumeRequest {
            volume_id: VOLUME.into(),
            volume_path: self.at("pod/device").display().to_string(),
            capacity_range: Some(CapacityRange {
                required_bytes: i64::try_from(required_bytes).expect("a small volume"),
                limit_bytes: 0,
            }),
            volume_capability: Some(block()),
            ..NodeExpandVolumeRequest::default()
        };
        let mut request = Request::new(request);
        request.set_timeout(Duration::from_secs(2));
        let answer = self.node().node_expand_volume(request).await?;
        Ok(answer.into_inner().capacity_bytes)
    }

    async fn unstage(&self) -> Result<(), Status> {
        let request = Request::new(self.unstage_request());
        self.node().node_unstage_volume(request).await.map(drop)
    }

    fn unstage_request(&self) -> NodeUnstageVolumeRequest {
        NodeUnstageVolumeRequest {
            volume_id: VOLUME.into(),
            staging_target_path: self.at("staging").display().to_string(),
        }
    }
}

fn ext4() -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode {
            mode: Mode::SingleNodeWriter.into(),
        }),
        access_type: Some(AccessType::Mount(MountVolume {
            fs_type: "ext4".into(),
            ..MountVolume::default()
        })),
    }
}

fn block() -> VolumeCapability {
    VolumeCapability {
        access_type: Some(AccessType::Block(BlockVolume {})),
        ..ext4()
    }
}

#[rstest]
#[case::plain(0)]
#[case::luks1(2 << 20)]
#[case::luks2(16 << 20)]
#[tokio::test]
async fn disk_smaller_by_encryption_header_has_grown(#[case] header: u64) {
    let answered = Machine::new().expand((1 << 20) + header).await;
    assert_eq!(answered.expect("it has grown"), 1 << 20, "what the disk has");
}

#[tokio::test]
async fn expand_waits_for_disk_smaller_than_any_header() {
    let late = Machine::new()
        .expand((33 << 20) + 512)
        .await
        .expect_err("it has not grown");
    assert_eq!(late.code(), Code::DeadlineExceeded, "{late}");
    assert!(late.message().contains("new size"), "{late}");
}

#[tokio::test]
async fn failures_never_deny_existing_mount() {
    let machine = Machine::new();
    // The disk has no device node in /dev, so its superblock cannot be read.
    let before = machine.stage().await.expect_err("it cannot be read");
    assert_eq!(before.code(), Code::Internal, "nothing is mounted: {before}");
    let staging = machine.at("staging");
    machine.mounted(&format!("36 35 254:0 / {} rw - ext4 /dev/vda rw\n", staging.display()));
    let after = machine.stage().await.expect_err("it cannot be seen to have grown");
    assert_eq!(after.code(), Code::Unavailable, "{after}");
    assert!(after.message().contains("/dev/vda"), "{after}");

    let target = machine.at("pod/mount");
    machine.mounted("");
    assert_eq!(
        machine.publish().await.expect_err("it is not staged").code(),
        Code::FailedPrecondition
    );
    machine.mounted(&format!("36 35 254:0 / {} rw - ext4 /dev/vda rw\n", target.display()));
    assert_eq!(
        machine.publish().await.expect_err("it is not staged").code(),
        Code::Unavailable
    );
    // The specification requires these codes for a mount with other properties.
    let mounted = format!("36 35 254:0 / {} rw - xfs /dev/vda rw\n", staging.display());
    machine.mounted(&mounted);
    assert_eq!(
        machine.stage().await.expect_err("it is another type").code(),
        Code::AlreadyExists
    );
    machine.mounted(&format!("36 35 254:9 / {} rw - ext4 /dev/vdz rw\n", staging.display()));
    assert_eq!(
        machine.stage().await.expect_err("it is another disk").code(),
        Code::FailedPrecondition
    );
    // The list of mounts cannot be parsed.
    machine.mounted("not a line of it\n");
    assert_eq!(
        machine.stage().await.expect_err("it may be mounted").code(),
        Code::Unavailable
    );
}

#[tokio::test]
async fn unstage_refuses_while_a_disk_is_unidentified() {
    let machine = Machine::new();
    machine.lose_the_link();
    fs::create_dir_all(machine.at("sys/block/vdb")).expect("a directory");
    let error = machine.unstage().await.expect_err("its disk may be in use");
    assert_eq!(error.code(), Code::FailedPrecondition);
    for part in ["udevadm trigger", "serial of vdb"] {
        assert!(error.message().contains(part), "{error}");
    }
    // A link alone does not prove that a disk exists.
    fs::remove_file(machine.link()).expect("it is ours");
    machine.unstage().await.expect("the disk was unplugged");
}

#[tokio::test]
async fn unstage_ignores_a_stale_link() {
    let machine = Machine::new();
    machine.lose_the_link();
    machine.unstage().await.expect("the disk was unplugged");
}

#[tokio::test]
async fn unstage_refuses_while_device_is_unreadable() {
    let machine = Machine::new();
    let serial = machine.at("sys/block/vda/serial");
    fs::remove_file(&serial).expect("it is ours");
    // The FIFO has no writer, so a read blocks.
    mknodat(CWD, &serial, FileType::Fifo, Bits::RUSR, 0).expect("a named pipe");
    let error = machine.unstage().await.expect_err("nothing is known");
    assert_eq!(error.code(), Code::Unavailable, "{error}");
}

#[tokio::test]
async fn raw_device_below_device_mapper_is_unstaged() {
    let machine = Machine::new();
    machine.hold();
    let build = BuildInfo {
        program: "cinder_csi_driver",
        version: "0.0.0",
        revision: "",
    };
    let registry = Metrics::new(build).expect("a registry");
    let metrics = DriverMetrics::new(&registry, "d").expect("families");
    let node = machine.node().with_metrics(metrics);
    let request = || Request::new(machine.unstage_request());
    node.node_unstage_volume(request()).await.expect("it was never mounted");
    let counted = registry.encode().expect("text");
    let line = r#"cinder_csi_unstaged_in_use_total{holder="device"} 1"#;
    assert!(counted.contains(line), "{counted}");
    // A pod that has the file system of such a device mounted prevents the unstaging.
    let pod = machine.at("pod/mount");
    machine.mounted(&format!("36 35 253:0 / {} rw - ext4 /dev/dm-0 rw\n", pod.display()));
    let error = node.node_unstage_volume(request()).await.expect_err("it is mounted");
    assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
    assert!(error.message().contains("pod/mount"), "{error}");
}

#[tokio::test]
#[ignore = "needs root"]
async fn unstage_refuses_device_visible_to_pod() {
    let machine = Machine::new();
    machine.unstage().await.expect("nobody has it");
    let target = machine.at("pod/device");
    mknodat(CWD, &target, FileType::BlockDevice, Bits::RUSR, makedev(254, 0))
        .expect("THIS TEST NEEDS ROOT: it makes a device node. Run `make test` as root.");
    let shown = format!("36 35 0:6 /vda {} rw - devtmpfs udev rw\n", target.display());
    machine.mounted(&shown);
    let error = machine.unstage().await.expect_err("it is still published");
    assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
    assert!(error.message().contains("pod/device"), "{error}");
    // The name refers to another device now, whose disk is not this volume.
    fs::remove_file(&target).expect("it is ours");
    mknodat(CWD, &target, FileType::BlockDevice, Bits::RUSR, makedev(254, 9)).expect("a device node");
    machine.unstage().await.expect("nobody has it");
}

#[tokio::test]
async fn other_volume_is_not_unmounted() {
    let machine = Machine::new();
    let disk = machine.at("sys/block/vdb");
    fs::create_dir_all(&disk).expect("a directory");
    // virtio truncates the serial.
    for (file, text) in [
        ("serial", &OTHER[..20]),
        ("size", "2048"),
        ("dev", "254:16"),
        ("ro", "0"),
    ] {
        fs::write(disk.join(file), text).expect("a file");
    }
    let (staging, target) = (machine.at("staging"), machine.at("pod/mount"));
    for mounted in [
        format!("36 35 254:16 / {} rw - ext4 /dev/vdb rw\n", target.display()),
        format!("36 35 0:50 / {} rw - btrfs /dev/vdb rw\n", target.display()),
        // Below another mount at the same path.
        format!(
            "36 35 254:16 / {0} rw - ext4 /dev/vdb rw\n37 36 0:70 / {0} rw - tmpfs tmpfs rw\n",
            target.display()
        ),
    ] {
        machine.mounted(&mounted);
        let error = machine.unpublish("pod/mount").await.expect_err("it is another's");
        assert_eq!(error.code(), Code::FailedPrecondition, "{mounted}: {error}");
        assert!(error.message().contains(&OTHER[..20]), "{error}");
    }
    machine.mounted(&format!("36 35 254:16 / {} rw - ext4 /dev/vdb rw\n", staging.display()));
    let error = machine.unstage().await.expect_err("it is another's");
    assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
    assert!(error.message().contains(&OTHER[..20]), "{error}");
    // The disk disappeared, as after a forced detachment, or its name belongs to another disk now. The previous volume
    // is unknown, and the mount must be removed. The list of mounts of this process does not contain it.
    for mounted in [
        format!("36 35 254:32 / {} rw - ext4 /dev/vdc rw\n", target.display()),
        format!("36 35 0:6 /vdb {} rw - devtmpfs udev rw\n", target.display()),
    ] {
        machine.mounted(&mounted);
        let error = machine.unpublish("pod/mount").await.expect_err("the kernel refuses");
        assert_ne!(error.code(), Code::FailedPrecondition, "{mounted}: {error}");
    }
}

#[tokio::test]
async fn only_empty_file_is_removed_as_device_target() {
    let machine = Machine::new();
    let target = machine.at("pod/device");
    fs::write(&target, "").expect("a file");
    machine.unpublish("pod/device").await.expect("it is the driver's");
    assert!(!target.exists());
    let link = machine.at("pod/link");
    fs::write(&target, "data").expect("a file");
    std::os::unix::fs::symlink(&target, &link).expect("a link");
    for place in ["pod/device", "pod/link"] {
        let error = machine.unpublish(place).await.expect_err("it is not the driver's");
        assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
        assert!(error.message().contains(place), "{error}");
    }
    assert_eq!(fs::read_to_string(&link).expect("both are there"), "data");
}

#[tokio::test]
async fn inline_volume_of_older_driver_is_unpublished() {
    let machine = Machine::new();
    let config = NodeConfig {
        kubelet_dir: Some(machine.at("kubelet")),
        ..NodeConfig::default()
    };
    let node = machine.node_with(config);
    let target = machine.at("kubelet/pods/1/volumes/kubernetes.io~csi/data/mount");
    fs::create_dir_all(&target).expect("a directory");
    let request = NodeUnpublishVolumeRequest {
        volume_id: format!("csi-{}", "0123456789abcdef".repeat(4)),
        target_path: target.display().to_string(),
    };
    node.node_unpublish_volume(Request::new(request))
        .await
        .expect("unpublished");
    assert!(!target.exists());
}

#[tokio::test]
async fn malformed_requests_are_refused_before_any_access() {
    let machine = Machine::new();
    let config = NodeConfig {
        kubelet_dir: Some(machine.at("kubelet")),
        ..NodeConfig::default()
    };
    let node = machine.node_with(config);
    let good = machine.at("kubelet/pods/1").display().to_string();
    let below = format!("{VOLUME}/../x");
    for (id, place, field) in [
        (below.as_str(), good.as_str(), "volume_id"),
        ("..", good.as_str(), "volume_id"),
        (VOLUME, "/etc", "target_path"),
        (VOLUME, "/.", "target_path"),
    ] {
        let stage = NodeStageVolumeRequest {
            volume_id: id.into(),
            staging_target_path: place.into(),
            volume_capability: Some(ext4()),
            ..NodeStageVolumeRequest::default()
        };
        let unstage = NodeUnstageVolumeRequest {
            volume_id: id.into(),
            staging_target_path: place.into(),
        };
        let publish = NodePublishVolumeRequest {
            volume_id: id.into(),
            staging_target_path: good.clone(),
            target_path: place.into(),
            volume_capability: Some(ext4()),
            ..NodePublishVolumeRequest::default()
        };
        let unpublish = NodeUnpublishVolumeRequest {
            volume_id: id.into(),
            target_path: place.into(),
        };
        let mut answers = vec![
            node.node_stage_volume(Request::new(stage)).await.map(drop),
            node.node_unstage_volume(Request::new(unstage)).await.map(drop),
            node.node_publish_volume(Request::new(publish)).await.map(drop),
        ];
        if field != "volume_id" {
            answers.push(node.node_unpublish_volume(Request::new(unpublish)).await.map(drop));
        }
        for answer in answers {
            let status = answer.expect_err("it is refused");
            assert_eq!(status.code(), Code::InvalidArgument, "{status}");
            assert!(status.message().contains(field), "{status}");
        }
    }
    let publish = NodePublishVolumeRequest {
        volume_id: VOLUME.into(),
        staging_target_path: "/etc".into(),
        target_path: good,
        volume_capability: Some(ext4()),
        ..NodePublishVolumeRequest::default()
    };
    let status = node
        .node_publish_volume(Request::new(publish))
        .await
        .expect_err("it is refused");
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    assert!(status.message().starts_with("staging_target_path: /etc "), "{status}");
}

#[test]
fn kubelet_directory_limits_mounts_only_with_register_flag() {
    let dir = |flags: &[&str]| {
        let argv = [
            &["driver", "--endpoint=unix:///csi.sock", "--kubelet-dir=/srv/kubelet"],
            flags,
        ]
        .concat();
        NodeConfig::from_args(&Args::from_argv(argv).expect("they are known"), None).kubelet_dir
    };
    assert_eq!(dir(&["--register"]), Some("/srv/kubelet".into()));
    // The operator's driver with node-driver-registrar.
    assert_eq!(dir(&["--unregister"]), Some("/srv/kubelet".into()));
    // The manifests of the Go driver do not set the kubelet's directory.
    assert_eq!(dir(&[]), None);
}
