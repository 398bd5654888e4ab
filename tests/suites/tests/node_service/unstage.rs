// SPDX-License-Identifier: Apache-2.0
//! Volumes that are unstaged while something else has their device.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use tonic::Code;

use crate::lab::{self, OTHER, VOLUME, claim, run};
use crate::{Kubelet, block, disk, ext4, mount};

/// How long the node waits here for a device that stays in use.
const PATIENCE: Duration = Duration::from_secs(1);

/// An agent with a mount namespace of its own, which keeps what was mounted when it began.
struct Agent(Child);

impl Agent {
    fn start() -> Self {
        let mut agent = Command::new("unshare")
            .args([
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-c",
                "echo ready; exec sleep infinity",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare (util-linux) is installed");
        let mut line = String::new();
        let stdout = agent.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it says so");
        assert_eq!(line, "ready\n");
        Self(agent)
    }

    fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_mount_of_another_namespace_is_passed_over_and_what_was_written_is_durable() {
    run(
        "unstage::a_mount_of_another_namespace_is_passed_over_and_what_was_written_is_durable",
        |lab| async move {
            let device = disk(&lab).await;
            let (kubelet, metrics) = Kubelet::with_patience(&lab, PATIENCE);
            kubelet.stage(VOLUME, ext4()).await.expect("it is staged");
            let agent = Agent::start();
            fs::write(lab.at("staging/data"), "precious").expect("it can be written");
            kubelet.unstage(VOLUME).await.expect("nothing is mounted here");
            let counted = metrics.encode().expect("text");
            let line = r#"cinder_csi_unstaged_in_use_total{holder="mount"} 1"#;
            assert!(counted.contains(line), "{counted}");

            // What another node would find.
            let copy = lab.at("copy.img");
            fs::copy(lab.at(&format!("{VOLUME}.img")), &copy).expect("a copy");
            lab.attach(&copy, OTHER).await;
            kubelet.stage(OTHER, ext4()).await.expect("it is staged");
            assert_eq!(
                fs::read_to_string(lab.at("staging/data")).expect("it is there"),
                "precious"
            );
            kubelet.unstage(OTHER).await.expect("it goes");
            drop(agent);
            kubelet.unstage(VOLUME).await.expect("it went before");
            drop(device);
        },
    );
}

#[test]
fn a_mount_of_another_namespace_is_named_for_as_long_as_the_flag_refuses_it() {
    run(
        "unstage::a_mount_of_another_namespace_is_named_for_as_long_as_the_flag_refuses_it",
        |lab| async move {
            disk(&lab).await;
            let (kubelet, metrics) = Kubelet::with_patience(&lab, Duration::ZERO);
            kubelet.stage(VOLUME, ext4()).await.expect("it is staged");
            let agent = Agent::start();
            // As a call leaves it that is repeated.
            lab.host()
                .unmount(&lab.at("staging"))
                .await
                .expect("nobody uses it here");
            let error = kubelet.unstage(VOLUME).await.expect_err("it is mounted there");
            assert_eq!(error.code(), Code::Unavailable, "{error}");
            let named = format!("process {} (sleep)", agent.id());
            assert!(error.message().contains(&named), "{error}");
            drop(agent);
            kubelet.unstage(VOLUME).await.expect("nothing has it");
            assert!(
                !metrics
                    .encode()
                    .expect("text")
                    .contains("cinder_csi_unstaged_in_use_total{")
            );
        },
    );
}

#[test]
fn a_mount_that_the_driver_sees_is_never_passed_over() {
    run(
        "unstage::a_mount_that_the_driver_sees_is_never_passed_over",
        |lab| async move {
            let device = disk(&lab).await;
            let (kubelet, _) = Kubelet::with_patience(&lab, PATIENCE);
            let wanted = mount("xfs", Mode::SingleNodeWriter);
            lab::output(
                Command::new("truncate")
                    .args(["--size=320M"])
                    .arg(lab.at(&format!("{VOLUME}.img"))),
            );
            lab::output(Command::new("losetup").arg("--set-capacity").arg(&device.path));
            kubelet.stage(VOLUME, wanted).await.expect("it is staged");
            lab.directory("elsewhere");
            lab::output(
                Command::new("mount")
                    .arg("--bind")
                    .arg(lab.at("staging"))
                    .arg(lab.at("elsewhere")),
            );
            for _ in 0..2 {
                let error = kubelet.unstage(VOLUME).await.expect_err("it is mounted");
                assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
                assert!(error.message().contains("elsewhere"), "{error}");
            }
            lab::output(Command::new("umount").arg(lab.at("elsewhere")));
            kubelet.unstage(VOLUME).await.expect("it goes");
        },
    );
}

#[test]
fn a_raw_device_is_flushed_and_not_waited_for_whoever_has_it() {
    run(
        "unstage::a_raw_device_is_flushed_and_not_waited_for_whoever_has_it",
        |lab| async move {
            let device = disk(&lab).await;
            // With the flag that refuses what is in use.
            let (kubelet, _) = Kubelet::with_patience(&lab, Duration::ZERO);
            kubelet.stage(VOLUME, block()).await.expect("it is staged");
            let claimed = claim(&device);
            claimed.write_all_at(b"precious", 0).expect("it can be written");
            kubelet.unstage(VOLUME).await.expect("nothing is mounted here");
            let mut written = [0; 8];
            let image = File::open(lab.at(&format!("{VOLUME}.img"))).expect("the backing file");
            image.read_exact_at(&mut written, 0).expect("it can be read");
            assert_eq!(&written, b"precious");
        },
    );
}
