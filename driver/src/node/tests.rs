//! A machine that is laid out in files, with one disk that is `volume-1`.

use std::fs;
use std::path::PathBuf;

use csi_host::HostPaths;
use csi_proto::csi::v1::VolumeCapability;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::volume_capability::{AccessMode, AccessType, MountVolume};
use rustix::fs::{CWD, FileType, Mode as Bits, makedev, mknodat};
use tempfile::TempDir;
use tonic::Code;

use super::*;
use crate::operations::Limits;
use crate::parameters;

const VOLUME: &str = "volume-1";

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

    /// What the kernel says is mounted.
    fn mounted(&self, mountinfo: &str) {
        fs::write(self.at("proc/self/mountinfo"), mountinfo).expect("a file");
    }

    fn node(&self) -> NodeService {
        let host = Host::new(HostPaths {
            sys: self.at("sys"),
            dev: self.at("dev"),
            proc: self.at("proc"),
        });
        NodeService::new(NodeConfig::default(), host, Operations::new(Limits::default()))
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

    async fn unstage(&self) -> Result<(), Status> {
        let request = NodeUnstageVolumeRequest {
            volume_id: VOLUME.into(),
            staging_target_path: self.at("staging").display().to_string(),
        };
        self.node().node_unstage_volume(Request::new(request)).await.map(drop)
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

#[tokio::test]
async fn no_answer_says_that_nothing_was_mounted_where_something_is() {
    let machine = Machine::new();
    // The disk has no node in /dev, so that its superblock cannot be read.
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
    // The specification wants these answers of what is mounted otherwise.
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
    // Nobody knows.
    machine.mounted("not a line of it\n");
    assert_eq!(
        machine.stage().await.expect_err("it may be mounted").code(),
        Code::Unavailable
    );
}

#[tokio::test]
async fn a_device_that_is_still_shown_to_a_pod_is_not_unstaged() {
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
    // The name is another's by now, and its disk is not this volume.
    fs::remove_file(&target).expect("it is ours");
    mknodat(CWD, &target, FileType::BlockDevice, Bits::RUSR, makedev(254, 9)).expect("a device node");
    machine.unstage().await.expect("nobody has it");
}
