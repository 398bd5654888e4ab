// SPDX-License-Identifier: Apache-2.0
//! Kills the driver's processes with SIGKILL at critical points; a retry must finish the work.

use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use csi_proto::csi::v1::Volume;
use harness::wait_for_some;
use suites::drivers::{Installation, Ours, Role};
use suites::expect::{expect_equal, expect_none};
use suites::lab::{Lab, in_lab};
use suites::life::Life;
use suites::mkfs::StoppedMkfs;
use suites::simulator::Simulator;

const NAME: &str = "pvc-killed";
/// Duration of the state in which the process is killed.
const MOMENT: Duration = Duration::from_secs(3);
const REACH_MOMENT: Duration = Duration::from_secs(10);

/// Starts the simulator, a controller and a node.
async fn start(lab: &Lab, node: &Ours) -> Result<Installation> {
    let simulator = Simulator::start(lab, "").await?;
    Installation::start_with(lab, simulator, &Ours::new(Role::Controller), node).await
}

/// Fails unless the cloud has accepted one request of this operation.
async fn accepted_once(installation: &Installation, operation: &str) -> Result<()> {
    let accepted = installation.simulator.accepted(operation).await?;
    expect_equal(operation, &accepted, &1)
}

/// Returns the lifecycle of the same volume over the current processes.
fn resume(installation: &Installation, life: &Life) -> Life {
    life.over(installation.controller.channel(), installation.node.channel())
}

/// Stages and publishes an attached volume, writes and reads a file, and removes everything.
async fn use_and_remove(
    installation: Installation,
    lab: &Lab,
    life: &Life,
    volume: &Volume,
    fs_type: &str,
) -> Result<()> {
    life.bring_up(volume).await?;
    life.write_file(lab).await?;
    life.expect_file(lab).await?;
    let find = "findmnt --noheadings --output FSTYPE --target TARGET/file";
    expect_equal("file system", life.shell(lab, find).await?.trim(), fs_type)?;
    remove(installation, lab, life, volume).await
}

/// Unpublishes, detaches and deletes a volume; checks that nothing remains.
async fn remove(installation: Installation, lab: &Lab, life: &Life, volume: &Volume) -> Result<()> {
    let simulator = &installation.simulator;
    expect_equal("volumes", &simulator.volume_names().await?, &[NAME])?;
    expect_equal("number of loop devices", &lab.loop_devices().await?.len(), &1)?;
    life.unpublish(volume).await?;
    life.unstage(volume).await?;
    expect_none("mounts", &lab.mounts().await?)?;
    life.detach(volume).await?;
    expect_none("loop devices", &lab.loop_devices().await?)?;
    life.delete(volume).await?;
    expect_none("volumes", &simulator.volume_names().await?)?;
    installation.stop().await
}

/// Runs `work` until `moment` is reached, which must be before its end. The call is still running then.
async fn run_until<T, M>(work: impl Future<Output = Result<T>>, moment: impl Future<Output = Result<M>>) -> Result<M> {
    tokio::select! {
        done = pin!(work) => match done {
            Ok(_) => bail!("the work was done before the moment in which it was to be interrupted"),
            Err(error) => Err(error.context("the work failed before the moment in which it was to be interrupted")),
        },
        reached = moment => reached,
    }
}

#[test]
fn controller_killed_during_create_creates_one_volume() {
    in_lab(async |lab| {
        let installation = start(&lab, &Ours::new(Role::Node)).await?;
        let life = installation.life(&lab, NAME, "ext4")?;
        installation.simulator.set_latency("create", MOMENT).await?;
        let reached = installation.simulator.wait_for_request("create_volume", REACH_MOMENT);
        run_until(life.create(), reached).await?;
        let installation = installation.replace_controller(&lab).await?;
        let life = resume(&installation, &life);
        let volume = life.create().await?;
        accepted_once(&installation, "create_volume").await?;
        use_and_remove(installation, &lab, &life, &volume, "ext4").await
    });
}

#[test]
fn controller_killed_before_response_creates_one_volume() {
    in_lab(async |lab| {
        let installation = start(&lab, &Ours::new(Role::Node)).await?;
        let life = installation.life(&lab, NAME, "ext4")?;
        installation.simulator.hold_answer("create_volume", MOMENT).await?;
        let made = wait_for_some("Cinder to have the volume", REACH_MOMENT, async || {
            Ok((!installation.simulator.volume_names().await?.is_empty()).then_some(()))
        });
        run_until(life.create(), made).await?;
        let installation = installation.replace_controller(&lab).await?;
        let life = resume(&installation, &life);
        let volume = life.create().await?;
        use_and_remove(installation, &lab, &life, &volume, "ext4").await
    });
}

#[test]
fn controller_killed_during_attach_attaches_once() {
    in_lab(async |lab| {
        let installation = start(&lab, &Ours::new(Role::Node)).await?;
        let life = installation.life(&lab, NAME, "ext4")?;
        let volume = life.create().await?;
        installation.simulator.set_latency("attach", MOMENT).await?;
        let reached = installation.simulator.wait_for_request("attach_volume", REACH_MOMENT);
        run_until(life.attach(&volume), reached).await?;
        let installation = installation.replace_controller(&lab).await?;
        let life = resume(&installation, &life);
        life.attach(&volume).await?;
        accepted_once(&installation, "attach_volume").await?;
        use_and_remove(installation, &lab, &life, &volume, "ext4").await
    });
}

#[test]
fn controller_killed_during_detach_finishes_it() {
    in_lab(async |lab| {
        let installation = start(&lab, &Ours::new(Role::Node)).await?;
        let life = installation.life(&lab, NAME, "ext4")?;
        let volume = life.create().await?;
        life.attach(&volume).await?;
        installation.simulator.set_latency("detach", MOMENT).await?;
        let reached = installation.simulator.wait_for_request("detach_volume", REACH_MOMENT);
        run_until(life.detach(&volume), reached).await?;
        let installation = installation.replace_controller(&lab).await?;
        let life = resume(&installation, &life);
        life.detach(&volume).await?;
        ensure!(lab.loop_devices().await?.is_empty(), "the volume is still attached");
        installation.simulator.set_latency("detach", Duration::ZERO).await?;
        use_and_remove(installation, &lab, &life, &volume, "ext4").await
    });
}

/// Of about 150 writes of mkfs.ext4 and 65 of mkfs.xfs (1 GiB): sufficient for a visible part, and too few for a
/// mountable file system.
const HALF_AN_EXT4: u32 = 60;
const HALF_AN_XFS: u32 = 20;

#[test]
fn interrupted_ext4_format_is_repeated() {
    in_lab(async |lab| interrupted_mkfs(&lab, "ext4", HALF_AN_EXT4).await);
}

#[test]
fn interrupted_xfs_format_is_repeated() {
    in_lab(async |lab| interrupted_mkfs(&lab, "xfs", HALF_AN_XFS).await);
}

async fn interrupted_mkfs(lab: &Lab, fs_type: &str, writes: u32) -> Result<()> {
    let mkfs = StoppedMkfs::after(writes, lab, fs_type)?;
    let node = Ours::new(Role::Node).programs(mkfs.programs().to_owned());
    let installation = start(lab, &node).await?;
    let life = installation.life(lab, NAME, fs_type)?;
    let volume = life.create().await?;
    let context = life.attach(&volume).await?;
    let caught = run_until(life.stage(&volume, &context), mkfs.caught()).await?;
    let stat = caught.stat()?;
    let is_stopped = ["t", "T"]
        .iter()
        .any(|state| stat.contains(&format!("(mkfs.{fs_type}) {state}")));
    ensure!(is_stopped, "the suspended process is {stat}");
    let devices = lab.loop_devices().await?;
    let device = devices.first().context("the attachment is no loop device")?;
    // Excludes the driver's own mark, which is near the end.
    let written = lab
        .shell(&format!("head --bytes=512M {device} | tr --delete '\\0' | wc --bytes"))
        .await?;
    ensure!(written.trim() != "0", "mkfs has written nothing yet");
    // The new process runs the system's own mkfs.
    let installation = installation.replace_node(lab).await?;
    caught.ended().await?;
    // Otherwise, there would be nothing to repair.
    let refused = format!(
        "mkdir {0}; if mount -t {fs_type} {device} {0}; then exit 1; fi",
        lab.path("probe").display()
    );
    lab.shell(&refused)
        .await
        .context("what the interrupted mkfs left can be mounted")?;
    let life = resume(&installation, &life);
    use_and_remove(installation, lab, &life, &volume, fs_type).await
}

#[test]
fn node_killed_after_stage_publishes_same_data() {
    in_lab(async |lab| {
        let installation = start(&lab, &Ours::new(Role::Node)).await?;
        let life = installation.life(&lab, NAME, "ext4")?;
        let volume = life.create().await?;
        let context = life.attach(&volume).await?;
        life.stage(&volume, &context).await?;
        let staging = life.staging().display();
        let script = format!("echo from-before > {staging}/file; sync {staging}/file");
        lab.shell(&script).await?;
        let installation = installation.replace_node(&lab).await?;
        let life = resume(&installation, &life);
        life.publish(&volume, &context).await?;
        let read = life.shell(&lab, "cat TARGET/file").await?;
        expect_equal("content of the file", read.trim(), "from-before")?;
        remove(installation, &lab, &life, &volume).await
    });
}
