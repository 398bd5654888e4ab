// SPDX-License-Identifier: Apache-2.0
//! Tests of NodeStageVolume while another process uses the file system.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use cinder_csi_driver::node::NodeService;
use csi_host::{Device, Tools};
use csi_proto::csi::v1::node_server::Node;
use csi_proto::csi::v1::volume_capability::AccessType;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use tonic::{Code, Request, Status};

use crate::agent::Agent;
use crate::lab::{self, Lab, MIB, OTHER, VOLUME, run};
use crate::{Kubelet, counting_node_on, expect_content, ext4, mount};

/// Time for which the node waits for a device in use.
const PATIENCE: Duration = Duration::from_millis(200);
/// Shorter than NodeStageVolume waits for a device that another program has opened exclusively.
const SHORT: Duration = Duration::from_secs(20);

/// Returns a node service with programs that refuse to format or check.
fn mounting_node(lab: &Lab) -> NodeService {
    let refusal = lab.script("refusal", "echo \"$0 $*\" >> $(dirname \"$0\")/refused; exit 99");
    let tools = Tools {
        mkfs_ext4: refusal.clone(),
        mkfs_xfs: refusal.clone(),
        mkfs_btrfs: refusal.clone(),
        e2fsck: refusal,
        ..Tools::default()
    };
    counting_node_on(lab.host_with(tools), PATIENCE).0
}

async fn large_disk(lab: &Lab) -> Device {
    lab.volume(VOLUME, 320 * MIB).await
}

/// Unstages a volume while `agent` uses its file system.
async fn unstage_in_use(lab: &Lab, fs_type: &str, agent: impl FnOnce(&Lab) -> Agent) -> Agent {
    let (kubelet, _) = Kubelet::with_patience(lab, PATIENCE);
    let capability = mount(fs_type, Mode::SingleNodeWriter);
    kubelet.must_stage(capability).await;
    fs::write(lab.at("staging/data"), "precious").expect("it can be written");
    let agent = agent(lab);
    kubelet.must_unstage().await;
    agent
}

fn open_file(lab: &Lab) -> Agent {
    Agent::with_file(&lab.at("staging/data"))
}

fn working_directory(lab: &Lab) -> Agent {
    Agent::with_directory(&lab.at("staging"))
}

fn private_mount(lab: &Lab) -> Agent {
    let private: PathBuf = lab.directory("private");
    Agent::with_bind(&lab.at("staging"), &private)
}

fn is_mounted_again(name: &str, fs_type: &'static str, agent: fn(&Lab) -> Agent) {
    run(name, |lab| async move {
        large_disk(&lab).await;
        let agent = unstage_in_use(&lab, fs_type, agent).await;
        let kubelet = Kubelet {
            lab: &lab,
            node: mounting_node(&lab),
        };
        let capability = mount(fs_type, Mode::SingleNodeWriter);
        for round in 0..3 {
            let start = Instant::now();
            kubelet.must_stage(capability.clone()).await;
            kubelet.must_stage(capability.clone()).await;
            assert!(start.elapsed() < SHORT, "{:?}", start.elapsed());
            kubelet.must_publish("pod/mount", false, capability.clone()).await;
            expect_content(&lab.at("pod/mount/data"), "precious");
            fs::write(lab.at(&format!("pod/mount/{round}")), "new").expect("it can be written");
            kubelet.must_unpublish("pod/mount").await;
            kubelet.must_unstage().await;
        }
        assert!(!lab.at("refused").exists(), "nothing is formatted or checked");
        drop(agent);
        let kubelet = Kubelet::new(&lab);
        kubelet.must_stage(capability).await;
        expect_content(&lab.at("staging/2"), "new");
        kubelet.must_unstage().await;
    });
}

#[test]
fn ext4_with_open_file_is_mounted_again() {
    is_mounted_again("in_use::ext4_with_open_file_is_mounted_again", "ext4", open_file);
}

#[test]
fn ext3_with_open_file_is_mounted_again() {
    is_mounted_again("in_use::ext3_with_open_file_is_mounted_again", "ext3", open_file);
}

#[test]
fn xfs_with_open_file_is_mounted_again() {
    is_mounted_again("in_use::xfs_with_open_file_is_mounted_again", "xfs", open_file);
}

#[test]
fn btrfs_with_open_file_is_mounted_again() {
    is_mounted_again("in_use::btrfs_with_open_file_is_mounted_again", "btrfs", open_file);
}

#[test]
fn working_directory_does_not_prevent_mount() {
    is_mounted_again(
        "in_use::working_directory_does_not_prevent_mount",
        "ext4",
        working_directory,
    );
}

#[test]
fn private_bind_does_not_prevent_mount() {
    is_mounted_again("in_use::private_bind_does_not_prevent_mount", "xfs", private_mount);
}

/// Checks a read-only mount of a file system that an agent has open, and a writable one after it.
fn is_shared_read_only(name: &str, fs_type: &'static str) {
    run(name, |lab| async move {
        large_disk(&lab).await;
        let _agent = unstage_in_use(&lab, fs_type, open_file).await;
        let (kubelet, _) = Kubelet::with_patience(&lab, PATIENCE);
        let writable = mount(fs_type, Mode::SingleNodeWriter);
        let mut read_only = writable.clone();
        if let Some(AccessType::Mount(mount)) = &mut read_only.access_type {
            mount.mount_flags = vec!["ro".into(), "nosuid".into()];
        }
        for _ in 0..2 {
            kubelet.must_stage(read_only.clone()).await;
        }
        assert_eq!(kubelet.mounts_at("staging").await, 1);
        assert!(!lab.at("staging.preparing").exists());
        assert!(fs::write(lab.at("staging/more"), "more").is_err());
        expect_content(&lab.at("staging/data"), "precious");
        let error = kubelet
            .stage(VOLUME, writable.clone())
            .await
            .expect_err("it is staged read-only");
        assert_eq!(error.code(), Code::AlreadyExists, "{error}");
        kubelet.must_unstage().await;
        kubelet.must_stage(writable.clone()).await;
        fs::write(lab.at("staging/more"), "more").expect("it can be written");
    });
}

#[test]
fn read_only_stage_shares_writable_ext4() {
    is_shared_read_only("in_use::read_only_stage_shares_writable_ext4", "ext4");
}

#[test]
fn read_only_stage_shares_writable_xfs() {
    is_shared_read_only("in_use::read_only_stage_shares_writable_xfs", "xfs");
}

#[test]
fn read_only_stage_shares_writable_btrfs() {
    is_shared_read_only("in_use::read_only_stage_shares_writable_btrfs", "btrfs");
}

#[test]
fn writable_stage_refuses_read_only_superblock() {
    run(
        "in_use::writable_stage_refuses_read_only_superblock",
        |lab| async move {
            large_disk(&lab).await;
            drop(unstage_in_use(&lab, "xfs", open_file).await);
            let (kubelet, _) = Kubelet::with_patience(&lab, PATIENCE);
            let reader = mount("xfs", Mode::SingleNodeReaderOnly);
            kubelet.must_stage(reader.clone()).await;
            let agent = open_file(&lab);
            kubelet.must_unstage().await;
            let writer = mount("xfs", Mode::SingleNodeWriter);
            let start = Instant::now();
            let error = kubelet
                .stage(VOLUME, writer.clone())
                .await
                .expect_err("the kernel refuses");
            assert!(start.elapsed() < SHORT, "{:?}", start.elapsed());
            assert_eq!(error.code(), Code::Unavailable, "{error}");
            assert!(
                error
                    .message()
                    .contains("writable: the file system is in use elsewhere"),
                "{error}"
            );
            kubelet.must_stage(reader).await;
            kubelet.must_unstage().await;
            drop(agent);
            kubelet.must_stage(writer).await;
        },
    );
}

#[test]
fn other_type_is_refused_while_in_use() {
    run("in_use::other_type_is_refused_while_in_use", |lab| async move {
        large_disk(&lab).await;
        let _agent = unstage_in_use(&lab, "ext4", open_file).await;
        let kubelet = Kubelet {
            lab: &lab,
            node: mounting_node(&lab),
        };
        let error = kubelet.stage(VOLUME, mount("xfs", Mode::SingleNodeWriter)).await;
        let error = error.expect_err("it holds ext4");
        assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
        assert!(!lab.at("refused").exists());
    });
}

#[test]
fn copy_grows_while_in_use() {
    run("in_use::copy_grows_while_in_use", |lab| async move {
        let device = large_disk(&lab).await;
        let _agent = unstage_in_use(&lab, "xfs", open_file).await;
        crate::growth::extend(&lab, &device, 640);
        let kubelet = Kubelet {
            lab: &lab,
            node: mounting_node(&lab),
        };
        let mut request = kubelet.stage_request(VOLUME, mount("xfs", Mode::SingleNodeWriter));
        request
            .volume_context
            .insert("cinder.csi.openstack.org/resizeRequired".into(), "true".into());
        kubelet
            .node
            .node_stage_volume(Request::new(request))
            .await
            .expect("it is mounted once more");
        let usage = kubelet.usage("staging").await;
        assert!(usage.first().is_some_and(|bytes| bytes.total > 560 << 20), "{usage:?}");
        kubelet.must_unstage().await;
    });
}

#[test]
fn clone_is_staged_while_source_is_in_use() {
    run("in_use::clone_is_staged_while_source_is_in_use", |lab| async move {
        large_disk(&lab).await;
        let _agent = unstage_in_use(&lab, "xfs", open_file).await;
        let image = lab.at("clone.img");
        fs::copy(lab.at(&format!("{VOLUME}.img")), &image).expect("a copy");
        lab.attach(&image, OTHER).await;
        let (kubelet, _) = Kubelet::with_patience(&lab, PATIENCE);
        let capability = mount("xfs", Mode::SingleNodeWriter);
        kubelet
            .stage(OTHER, capability.clone())
            .await
            .expect("it has the UUID of its source");
        fs::write(lab.at("staging/data"), "changed").expect("it can be written");
        kubelet.unstage(OTHER).await.expect("nothing uses it");
        kubelet.must_stage(capability).await;
        expect_content(&lab.at("staging/data"), "precious");
    });
}

#[test]
fn open_device_is_not_a_mount() {
    run("in_use::open_device_is_not_a_mount", |lab| async move {
        let device = large_disk(&lab).await;
        let kubelet = Kubelet::new(&lab);
        // Simulates a mkfs of an earlier call: it has opened the device exclusively, and nothing is mounted.
        let program = Agent::with_input(lab::open_exclusively(&device));
        let mut request = Request::new(kubelet.stage_request(VOLUME, ext4()));
        request.set_timeout(Duration::from_secs(2));
        let error: Status = kubelet.node.node_stage_volume(request).await.expect_err("it is busy");
        assert_eq!(error.code(), Code::DeadlineExceeded, "{error}");
        let holders = lab.host().holders(&device).await.expect("procfs answers");
        assert!(!holders.has_filesystem(), "{holders}");
        assert!(holders.to_string().contains("has the device open"), "{holders}");
        assert!(lab::read_device(&device).iter().all(|byte| *byte == 0));
        drop(program);
        kubelet.must_stage(ext4()).await;
        kubelet.must_unstage().await;
    });
}

/// Checks that the commands of the runbook name the process, by its mounts and by its open files.
fn is_named_by_runbook(name: &str, agent: fn(&Lab) -> Agent) {
    run(name, |lab| async move {
        let device = large_disk(&lab).await;
        let agent = unstage_in_use(&lab, "ext4", agent).await;
        let runbooks = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/runbooks.md");
        let page = fs::read_to_string(runbooks).expect("the page");
        let (_, section) = page
            .split_once("### The device of a volume stays in use")
            .expect("the section");
        let (_, block) = section.split_once("```sh\n").expect("a block of commands");
        let (commands, _) = block.split_once("```").expect("its end");
        let node = format!("/dev/{}", device.name);
        let commands = commands.lines().map(str::trim_start).collect::<Vec<_>>().join("\n");
        assert!(commands.contains("DEVICE=/dev/vdb"), "{commands}");
        let commands = commands.replace("DEVICE=/dev/vdb", &format!("DEVICE={node}"));
        // The last command fails if it prints nothing.
        let printed = lab::output(Command::new("sh").args(["-c", &format!("{commands}\ntrue")]));
        let holder = format!("/proc/{}/", agent.id());
        assert!(printed.contains(&holder), "{commands}\n{printed}");
    });
}

#[test]
fn runbook_finds_open_file() {
    is_named_by_runbook("in_use::runbook_finds_open_file", open_file);
}

#[test]
fn runbook_finds_working_directory() {
    is_named_by_runbook("in_use::runbook_finds_working_directory", working_directory);
}

#[test]
fn runbook_finds_private_mount() {
    is_named_by_runbook("in_use::runbook_finds_private_mount", private_mount);
}
