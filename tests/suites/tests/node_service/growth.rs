// SPDX-License-Identifier: Apache-2.0
//! Tests of expansion, clones, and read-only volumes.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use cinder_csi_driver::parameters::PUBLISH_SIZE;
use csi_host::Device;
use csi_proto::csi::v1::node_server::Node;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use tonic::{Code, Request};

use crate::lab::{self, Lab, MIB, OTHER, VOLUME, read_at, run, write_at};
use crate::{Kubelet, block, code, expect_content, expect_refusal, has_kernel, mount};

/// Time for which a call waits for a missing disk.
const SHORT: Duration = Duration::from_secs(2);
/// Limit of a call that does not hang.
const LONG: Duration = Duration::from_secs(80);

/// Enlarges the disk, as Cinder and the hypervisor do.
pub(crate) fn extend(lab: &Lab, device: &Device, mib: u64) {
    let file = File::options().write(true).open(lab.at(&format!("{VOLUME}.img")));
    file.and_then(|file| file.set_len(mib * MIB)).expect("a sparse file");
    lab::output(
        Command::new("losetup")
            .arg("--set-capacity")
            .arg(Path::new("/dev").join(&device.name)),
    );
}

#[test]
fn published_file_system_grows_with_volume() {
    run("growth::published_file_system_grows_with_volume", |lab| async move {
        for fs_type in ["xfs", "btrfs"] {
            let device = lab.volume(VOLUME, 320 * MIB).await;
            let kubelet = Kubelet::new(&lab);
            let capability = mount(fs_type, Mode::SingleNodeWriter);
            for _ in 0..2 {
                kubelet.must_stage(capability.clone()).await;
                kubelet.must_publish("pod/mount", false, capability.clone()).await;
            }
            kubelet.must_publish("pod/read-only", true, capability.clone()).await;
            assert_eq!(kubelet.mounts_at("pod/mount").await, 1, "{fs_type}");
            let size = |usage: Vec<csi_proto::csi::v1::VolumeUsage>| usage.first().map_or(0, |bytes| bytes.total);
            let before = kubelet.usage("pod/mount").await;
            extend(&lab, &device, 640);
            // The kubelet may use any of the paths and repeat the call.
            for path in ["pod/mount", "pod/read-only", "staging", "staging"] {
                let grown = kubelet.expand(path, 640 * MIB).await.expect("it grows");
                assert_eq!(grown, 640 << 20, "{fs_type} at {path}");
            }
            let after = kubelet.usage("pod/mount").await;
            assert!(size(after.clone()) > size(before) + (300 << 20), "{fs_type}: {after:?}");
            for target in ["pod/mount", "pod/read-only"] {
                kubelet.must_unpublish(target).await;
            }
            kubelet.must_unstage().await;
            lab.detach(&device);
            fs::remove_file(lab.at(&format!("{VOLUME}.img"))).expect("the backing file");
        }
    });
}

#[test]
fn raw_volume_expansion_ignores_file_system_issue_2694() {
    run(
        "growth::raw_volume_expansion_ignores_file_system_issue_2694",
        |lab| async move {
            let device = lab.volume(VOLUME, 64 * MIB).await;
            lab::output(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&device.path));
            let superblock = read_at(&device, 1024, 1024);
            let kubelet = Kubelet::new(&lab);
            kubelet.must_stage(block()).await;
            kubelet.must_publish("pod/device", false, block()).await;
            extend(&lab, &device, 128);
            assert_eq!(
                kubelet.expand("pod/device", 128 * MIB).await.expect("it has grown"),
                128 << 20
            );
            assert!(read_at(&device, 1024, 1024) == superblock, "nothing was written");
            // For a directory without a mount, the driver must not query the parent's file system.
            for path in ["staging", "pod", "elsewhere"] {
                assert_eq!(code(kubelet.expand(path, 0).await.map(drop)), Code::NotFound, "{path}");
            }
            kubelet.must_unpublish("pod/device").await;
            kubelet.must_unstage().await;
        },
    );
}

#[test]
fn stage_grows_file_system_of_larger_copy() {
    run("growth::stage_grows_file_system_of_larger_copy", |lab| async move {
        for fs_type in ["ext4", "xfs", "btrfs"] {
            let device = lab.volume(VOLUME, 320 * MIB).await;
            let kubelet = Kubelet::new(&lab);
            let capability = mount(fs_type, Mode::SingleNodeWriter);
            kubelet.must_stage(capability.clone()).await;
            fs::write(lab.at("staging/data"), "data").expect("it can be written");
            kubelet.must_unstage().await;
            extend(&lab, &device, 640);
            let mut request = kubelet.stage_request(VOLUME, capability.clone());
            let size = async || {
                let usage = kubelet.usage("staging").await;
                usage.first().map_or(0, |bytes| bytes.total)
            };
            kubelet.must_stage(capability).await;
            assert!(
                size().await < 330 << 20,
                "{fs_type} grows only where the volume's source says so"
            );
            kubelet.must_unstage().await;
            request
                .volume_context
                .insert("cinder.csi.openstack.org/resizeRequired".into(), "true".into());
            for _ in 0..2 {
                let request = Request::new(request.clone());
                kubelet.node.node_stage_volume(request).await.expect("it is staged");
                assert!(size().await > 560 << 20, "{fs_type} has {}", size().await);
            }
            expect_content(&lab.at("staging/data"), "data");
            kubelet.must_unstage().await;
            lab.detach(&device);
            fs::remove_file(lab.at(&format!("{VOLUME}.img"))).expect("the backing file");
        }
    });
}

#[test]
fn expansion_before_publish_fails_immediately() {
    run("growth::expansion_before_publish_fails_immediately", |lab| async move {
        let device = lab.volume(VOLUME, 320 * MIB).await;
        let kubelet = Kubelet::new(&lab);
        let capability = mount("xfs", Mode::SingleNodeWriter);
        kubelet.must_stage(capability.clone()).await;
        let start = Instant::now();
        let error = kubelet
            .expand("staging", 640 * MIB)
            .await
            .expect_err("the disk is small");
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        expect_refusal(&error, Code::FailedPrecondition, &["starts with the existing size"]);
        kubelet.must_publish("pod/mount", false, capability).await;
        fs::write(lab.at("pod/mount/data"), "data").expect("it can be written");
        extend(&lab, &device, 640);
        let grown = kubelet
            .expand("pod/mount", 640 * MIB)
            .await
            .expect("the disk has grown");
        assert_eq!(grown, 640 << 20);
        kubelet.must_unpublish("pod/mount").await;
        kubelet.must_unstage().await;
    });
}

#[test]
fn clone_and_source_share_a_node() {
    run("growth::clone_and_source_share_a_node", |lab| async move {
        for fs_type in ["ext4", "xfs", "btrfs"] {
            let device = lab.volume(VOLUME, 320 * MIB).await;
            let kubelet = Kubelet::new(&lab);
            let capability = mount(fs_type, Mode::SingleNodeWriter);
            kubelet.must_stage(capability.clone()).await;
            fs::write(lab.at("staging/data"), "data").expect("it can be written");
            kubelet.must_unstage().await;
            let image = lab.at(&format!("{fs_type}-clone.img"));
            fs::copy(lab.at(&format!("{VOLUME}.img")), &image).expect("a copy");
            let clone = lab.attach(&image, OTHER).await;
            kubelet.must_stage(capability.clone()).await;
            let request = csi_proto::csi::v1::NodeStageVolumeRequest {
                staging_target_path: kubelet.path("staging-of-clone"),
                ..kubelet.stage_request(OTHER, capability)
            };
            // The kernel may temporarily have an entry of another file system with the same UUID. The kubelet
            // repeats the call.
            let mut staged = kubelet.node.node_stage_volume(Request::new(request.clone())).await;
            for _ in 0..4 {
                if staged
                    .as_ref()
                    .is_err_and(|refusal| refusal.code() == tonic::Code::Internal)
                {
                    staged = kubelet.node.node_stage_volume(Request::new(request.clone())).await;
                }
            }
            if fs_type == "btrfs" && !has_kernel(6, 7) {
                let refusal = staged.expect_err("the kernel mounts one of them");
                let message = refusal.message();
                assert!(message.contains("kernels from 6.7 on mount both"), "{refusal}");
                kubelet.must_unstage().await;
                continue;
            }
            staged.expect("the clone is staged beside it");
            fs::write(lab.at("staging-of-clone/data"), "other").expect("it can be written");
            expect_content(&lab.at("staging/data"), "data");
            let options = |place: &str| {
                let table = fs::read_to_string("/proc/self/mountinfo").expect("it can be read");
                let target = lab.at(place).display().to_string();
                let line = table.lines().find(|line| line.contains(&format!(" {target} ")));
                line.map(str::to_owned).expect("it is mounted")
            };
            assert!(!options("staging").contains("nouuid"), "only where it is needed");
            if fs_type == "xfs" {
                assert!(options("staging-of-clone").contains("nouuid"));
            }
            lab.host()
                .unmount(&lab.at("staging-of-clone"))
                .await
                .expect("nobody uses it");
            kubelet.must_unstage().await;
            lab.detach(&clone);
            lab.detach(&device);
            fs::remove_file(lab.at(&format!("{VOLUME}.img"))).expect("the backing file");
        }
    });
}

#[test]
fn read_only_block_publish_refuses_writes_issue_1169() {
    run(
        "growth::read_only_block_publish_refuses_writes_issue_1169",
        |lab| async move {
            let device = lab.volume(VOLUME, 64 * MIB).await;
            write_at(&device, 0, b"raw data");
            let kubelet = Kubelet::new(&lab);
            // Opening succeeds; only writes are refused.
            let writes = |target: &str| {
                let device = OpenOptions::new().write(true).open(lab.at(target)).expect("it opens");
                device.write_all_at(b"new data", 4096).is_ok()
            };
            kubelet.must_stage(block()).await;
            for _ in 0..2 {
                kubelet.must_publish("pod/read-only", true, block()).await;
                assert!(!writes("pod/read-only"), "the kernel refuses it");
            }
            assert_eq!(read_at(&device, 0, 8), b"raw data");
            kubelet.must_unpublish("pod/read-only").await;
            // A later writable publish clears the read-only flag.
            kubelet.must_publish("pod/device", false, block()).await;
            assert!(writes("pod/device"));
            // The flag belongs to the device, so it is not set while another pod writes.
            kubelet.must_publish("pod/read-only", true, block()).await;
            assert!(writes("pod/device"));
            for target in ["pod/device", "pod/read-only"] {
                kubelet.must_unpublish(target).await;
            }
            kubelet.must_unstage().await;
        },
    );
}

#[test]
fn read_only_attachment_is_never_written() {
    run("growth::read_only_attachment_is_never_written", |lab| async move {
        let device = lab.volume(VOLUME, 64 * MIB).await;
        let kubelet = Kubelet::new(&lab);
        let capability = mount("ext4", Mode::SingleNodeWriter);
        let mut request = kubelet.stage_request(VOLUME, capability.clone());
        request.publish_context.insert("readonly".into(), "true".into());
        let error = kubelet
            .node
            .node_stage_volume(Request::new(request.clone()))
            .await
            .expect_err("it is empty");
        assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
        assert!(lab::read_device(&device).iter().all(|byte| *byte == 0));
        kubelet.must_stage(capability).await;
        kubelet.must_unstage().await;
        kubelet
            .node
            .node_stage_volume(Request::new(request))
            .await
            .expect("now it can be read");
        assert!(fs::write(lab.at("staging/data"), "data").is_err());
        kubelet.must_unstage().await;
    });
}

#[test]
fn mkfs_options_apply_or_are_refused_issue_3084() {
    run(
        "growth::mkfs_options_apply_or_are_refused_issue_3084",
        |lab| async move {
            let device = lab.volume(VOLUME, 64 * MIB).await;
            let kubelet = Kubelet::new(&lab);
            let mut request = kubelet.stage_request(VOLUME, mount("ext4", Mode::SingleNodeWriter));
            let mut stage = async |key: &str, options: &str| {
                request.volume_context = [(key.to_owned(), options.to_owned())].into();
                let staged = kubelet.node.node_stage_volume(Request::new(request.clone())).await;
                code(staged.map(drop))
            };
            assert_eq!(stage("mkfsOptions", "-d /etc").await, Code::InvalidArgument);
            assert_eq!(stage("mkfs-options", "-d /etc").await, Code::InvalidArgument);
            assert_eq!(stage("mkfs-options", "-E nodiscard -b 4096").await, Code::Ok);
            let superblock = lab::output(Command::new("dumpe2fs").arg("-h").arg(&device.path));
            assert!(superblock.contains("4096"), "{superblock}");
            kubelet.must_unstage().await;
        },
    );
}

#[test]
fn waits_for_small_disk_without_writing() {
    run("growth::waits_for_small_disk_without_writing", |lab| async move {
        let device = lab.volume(VOLUME, 64 * MIB).await;
        let kubelet = Kubelet::new(&lab);
        let stage = async |size: String, patience: Duration| {
            let mut request = kubelet.stage_request(VOLUME, mount("ext4", Mode::SingleNodeWriter));
            request.publish_context.insert(PUBLISH_SIZE.into(), size);
            let mut request = Request::new(request);
            request.set_timeout(patience);
            kubelet.node.node_stage_volume(request).await.map(drop)
        };
        assert_eq!(code(stage("much".into(), LONG).await), Code::InvalidArgument);
        // The operation continues and waits.
        let late = stage((128 * MIB).to_string(), SHORT)
            .await
            .expect_err("it is too small");
        assert_eq!(late.code(), Code::DeadlineExceeded, "{late}");
        assert!(late.message().contains("waiting for the device"), "{late}");
        assert!(
            lab::read_device(&device).iter().all(|byte| *byte == 0),
            "nothing was written"
        );
        extend(&lab, &device, 128);
        stage((128 * MIB).to_string(), LONG)
            .await
            .expect("now it is the volume");
        let superblock = lab::output(Command::new("dumpe2fs").arg("-h").arg(&device.path));
        assert!(superblock.contains("Filesystem volume name"), "{superblock}");
        kubelet.must_unstage().await;
    });
}
