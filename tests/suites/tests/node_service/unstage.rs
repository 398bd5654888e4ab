// SPDX-License-Identifier: Apache-2.0
//! Tests of NodeUnstageVolume while another process uses the device.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, Instant};

use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use tonic::Code;

use crate::agent::Agent;
use crate::lab::{self, OTHER, VOLUME, open_exclusively, run};
use crate::{Kubelet, block, disk, expect_content, expect_refusal, ext4, mount};

/// Time for which the node waits for a device in use.
const PATIENCE: Duration = Duration::from_secs(1);
/// Timeout that no test reaches.
const LONG: Duration = Duration::from_mins(1);

#[test]
fn private_mount_ends_with_staging_directory() {
    run("unstage::private_mount_ends_with_staging_directory", |lab| async move {
        let device = disk(&lab).await;
        let (kubelet, metrics) = Kubelet::with_patience(&lab, LONG);
        for _ in 0..2 {
            kubelet.must_stage(ext4()).await;
            let agent = Agent::with_mounts();
            assert!(agent.sees(&lab.at("staging")));
            let start = Instant::now();
            kubelet.must_unstage().await;
            assert!(start.elapsed() < LONG / 2, "{:?}", start.elapsed());
            assert!(!agent.sees(&lab.at("staging")));
            assert!(!lab.at("staging").exists(), "the kubelet accepts that");
            drop(open_exclusively(&device));
        }
        kubelet.must_unstage().await;
        let counted = metrics.encode().expect("text");
        assert!(!counted.contains("cinder_csi_unstaged_in_use_total{"), "{counted}");
    });
}

#[test]
fn raw_volume_retains_staging_directory() {
    run("unstage::raw_volume_retains_staging_directory", |lab| async move {
        disk(&lab).await;
        let kubelet = Kubelet::new(&lab);
        lab.directory("staging");
        kubelet.must_stage(block()).await;
        kubelet.must_unstage().await;
        // Without the directory, the kubelet would make no further call for a raw volume.
        assert!(lab.at("staging").exists());
    });
}

#[test]
fn staging_directory_with_content_remains() {
    run("unstage::staging_directory_with_content_remains", |lab| async move {
        disk(&lab).await;
        let kubelet = Kubelet::new(&lab);
        lab.directory("staging");
        fs::write(lab.at("staging/below"), "of the node").expect("a file");
        kubelet.must_stage(ext4()).await;
        kubelet.must_unstage().await;
        assert!(lab.at("staging/below").exists());
    });
}

#[test]
fn open_file_does_not_block_unstage() {
    run("unstage::open_file_does_not_block_unstage", |lab| async move {
        let device = disk(&lab).await;
        let (kubelet, metrics) = Kubelet::with_patience(&lab, PATIENCE);
        kubelet.must_stage(ext4()).await;
        fs::write(lab.at("staging/data"), "precious").expect("it can be written");
        let agent = Agent::with_file(&lab.at("staging/data"));
        kubelet.must_unstage().await;
        let counted = metrics.encode().expect("text");
        let line = r#"cinder_csi_unstaged_in_use_total{holder="file"} 1"#;
        assert!(counted.contains(line), "{counted}");
        let holders = lab.host().holders(&device).await.expect("procfs answers");
        let named = format!("process {} (sleep) has /data of its file system open", agent.id());
        assert_eq!(holders.to_string(), named);
        assert!(holders.has_filesystem());

        // The content that another node would read.
        let copy = lab.at("copy.img");
        fs::copy(lab.at(&format!("{VOLUME}.img")), &copy).expect("a copy");
        lab.attach(&copy, OTHER).await;
        kubelet.stage(OTHER, ext4()).await.expect("it is staged");
        expect_content(&lab.at("staging/data"), "precious");
        kubelet.unstage(OTHER).await.expect("it goes");
        drop(agent);
        kubelet.must_unstage().await;
    });
}

#[test]
fn private_bind_does_not_block_unstage() {
    run("unstage::private_bind_does_not_block_unstage", |lab| async move {
        disk(&lab).await;
        let (kubelet, metrics) = Kubelet::with_patience(&lab, PATIENCE);
        kubelet.must_stage(ext4()).await;
        let _agent = Agent::with_bind(&lab.at("staging"), &lab.directory("private"));
        kubelet.must_unstage().await;
        let counted = metrics.encode().expect("text");
        let line = r#"cinder_csi_unstaged_in_use_total{holder="mount"} 1"#;
        assert!(counted.contains(line), "{counted}");
    });
}

#[test]
fn repeated_call_ends_a_private_mount() {
    run("unstage::repeated_call_ends_a_private_mount", |lab| async move {
        disk(&lab).await;
        let (kubelet, _) = Kubelet::with_patience(&lab, LONG);
        kubelet.must_stage(ext4()).await;
        let agent = Agent::with_mounts();
        // Simulates a driver that was killed between the unmount and the removal.
        lab.host().unmount(&lab.at("staging")).await.expect("it is idle here");
        let start = Instant::now();
        kubelet.must_unstage().await;
        assert!(start.elapsed() < LONG / 2, "{:?}", start.elapsed());
        assert!(!agent.sees(&lab.at("staging")));
    });
}

#[test]
fn flag_lets_private_mount_block_unstage() {
    run("unstage::flag_lets_private_mount_block_unstage", |lab| async move {
        disk(&lab).await;
        let (kubelet, metrics) = Kubelet::with_patience(&lab, Duration::ZERO);
        kubelet.must_stage(ext4()).await;
        let agent = Agent::with_mounts();
        // Simulates a call that was interrupted and is repeated.
        lab.host()
            .unmount(&lab.at("staging"))
            .await
            .expect("nobody uses it here");
        let error = kubelet.unstage(VOLUME).await.expect_err("it is mounted there");
        assert_eq!(error.code(), Code::Unavailable, "{error}");
        let named = format!("process {} (sleep)", agent.id());
        assert!(error.message().contains(&named), "{error}");
        drop(agent);
        kubelet.must_unstage().await;
        assert!(
            !metrics
                .encode()
                .expect("text")
                .contains("cinder_csi_unstaged_in_use_total{")
        );
    });
}

#[test]
fn visible_mount_blocks_unstage() {
    run("unstage::visible_mount_blocks_unstage", |lab| async move {
        let device = disk(&lab).await;
        let (kubelet, _) = Kubelet::with_patience(&lab, PATIENCE);
        let capability = mount("xfs", Mode::SingleNodeWriter);
        lab::output(
            Command::new("truncate")
                .args(["--size=320M"])
                .arg(lab.at(&format!("{VOLUME}.img"))),
        );
        lab::output(Command::new("losetup").arg("--set-capacity").arg(&device.path));
        kubelet.must_stage(capability).await;
        lab.directory("elsewhere");
        lab::output(
            Command::new("mount")
                .arg("--bind")
                .arg(lab.at("staging"))
                .arg(lab.at("elsewhere")),
        );
        for _ in 0..2 {
            let error = kubelet.unstage(VOLUME).await.expect_err("it is mounted");
            expect_refusal(&error, Code::FailedPrecondition, &["elsewhere"]);
        }
        lab::output(Command::new("umount").arg(lab.at("elsewhere")));
        kubelet.must_unstage().await;
    });
}

#[test]
fn claimed_raw_device_is_flushed_without_wait() {
    run(
        "unstage::claimed_raw_device_is_flushed_without_wait",
        |lab| async move {
            let device = disk(&lab).await;
            // With the flag value that refuses devices in use immediately.
            let (kubelet, _) = Kubelet::with_patience(&lab, Duration::ZERO);
            kubelet.must_stage(block()).await;
            let claimed = open_exclusively(&device);
            claimed.write_all_at(b"precious", 0).expect("it can be written");
            kubelet.must_unstage().await;
            let mut written = [0; 8];
            let image = File::open(lab.at(&format!("{VOLUME}.img"))).expect("the backing file");
            image.read_exact_at(&mut written, 0).expect("it can be read");
            assert_eq!(&written, b"precious");
        },
    );
}

#[test]
fn open_raw_device_is_unstaged_without_wait() {
    run("unstage::open_raw_device_is_unstaged_without_wait", |lab| async move {
        let device = disk(&lab).await;
        let (kubelet, metrics) = Kubelet::with_patience(&lab, LONG);
        kubelet.must_stage(block()).await;
        let _program = Agent::with_input(open_exclusively(&device));
        let start = Instant::now();
        kubelet.must_unstage().await;
        assert!(start.elapsed() < LONG / 2, "{:?}", start.elapsed());
        let counted = metrics.encode().expect("text");
        assert!(!counted.contains("cinder_csi_unstaged_in_use_total{"), "{counted}");
    });
}
