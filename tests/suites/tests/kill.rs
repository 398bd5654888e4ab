// SPDX-License-Identifier: Apache-2.0
//! Kills the driver's processes with SIGKILL at critical points; a retry must finish the work.

use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use csi_proto::csi::v1::Volume;
use harness::wait_for_some;
use suites::drivers::{Driver, Ours, Role};
use suites::lab::{Lab, in_lab};
use suites::life::Life;
use suites::mkfs::StoppedMkfs;
use suites::simulator::Simulator;

const NAME: &str = "pvc-killed";
/// Duration of the state in which the process is killed.
const MOMENT: Duration = Duration::from_secs(3);
const REACH_MOMENT: Duration = Duration::from_secs(10);

/// A controller process and a node process.
struct Cluster {
    simulator: Simulator,
    controller: Driver,
    node: Driver,
}

impl Cluster {
    async fn start(lab: &Lab, node: &Ours) -> Result<Self> {
        let simulator = Simulator::start(lab, "").await?;
        let controller = Ours::new(Role::Controller).start(lab, &simulator).await?;
        let node = node.start(lab, &simulator).await?;
        Ok(Self {
            simulator,
            controller,
            node,
        })
    }

    fn life(&self, lab: &Lab, fs_type: &str) -> Result<Life> {
        Life::mounted(lab, self.controller.channel(), self.node.channel(), NAME, fs_type)
    }

    /// Returns the lifecycle of the same volume over the current processes.
    fn resume(&self, life: &Life) -> Life {
        life.over(self.controller.channel(), self.node.channel())
    }

    /// Kills the controller and restarts it.
    async fn replace_controller(self, lab: &Lab) -> Result<Self> {
        self.controller.kill().await?;
        let controller = Ours::new(Role::Controller).start(lab, &self.simulator).await?;
        Ok(Self { controller, ..self })
    }

    /// Kills the node and restarts it.
    async fn replace_node(self, lab: &Lab) -> Result<Self> {
        self.node.kill().await?;
        let node = Ours::new(Role::Node).start(lab, &self.simulator).await?;
        Ok(Self { node, ..self })
    }

    /// Stages and publishes an attached volume, writes and reads a file, and removes everything.
    async fn use_and_remove(self, lab: &Lab, life: &Life, volume: &Volume, fs_type: &str) -> Result<()> {
        let context = life.attach(volume).await?;
        life.stage(volume, &context).await?;
        life.publish(volume, &context).await?;
        let target = life.target().display();
        lab.shell(&format!(
            "echo precious > {target}/file; sync {target}/file; grep -q precious {target}/file"
        ))
        .await?;
        let kind = lab
            .shell(&format!("findmnt --noheadings --output FSTYPE --target {target}/file"))
            .await?;
        ensure!(kind.trim() == fs_type, "the file is on {kind}");
        self.remove(lab, life, volume).await
    }

    /// Unpublishes, detaches and deletes a volume; checks that nothing remains.
    async fn remove(self, lab: &Lab, life: &Life, volume: &Volume) -> Result<()> {
        let names = self.simulator.volume_names().await?;
        ensure!(names == [NAME], "the volumes are {names:?}");
        let devices = lab.loop_devices().await?;
        ensure!(devices.len() == 1, "the loop devices are {devices:?}");
        life.unpublish(volume).await?;
        life.unstage(volume).await?;
        let mounts = lab.mounts().await?;
        ensure!(mounts.is_empty(), "mounts are left: {mounts:?}");
        life.detach(volume).await?;
        let devices = lab.loop_devices().await?;
        ensure!(devices.is_empty(), "loop devices are left: {devices:?}");
        life.delete(volume).await?;
        let names = self.simulator.volume_names().await?;
        ensure!(names.is_empty(), "volumes are left: {names:?}");
        self.controller.stop().await?;
        self.node.stop().await?;
        self.simulator.stop().await
    }
}

/// Runs `work` until `moment` is reached, which must be before its end. The call is still running then.
async fn run_until<T>(work: impl Future<Output = Result<T>>, moment: impl Future<Output = Result<()>>) -> Result<()> {
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
        let cluster = Cluster::start(&lab, &Ours::new(Role::Node)).await?;
        let life = cluster.life(&lab, "ext4")?;
        cluster.simulator.set_latency("create", MOMENT).await?;
        run_until(
            life.create(),
            cluster.simulator.wait_for_request("create_volume", REACH_MOMENT),
        )
        .await?;
        let cluster = cluster.replace_controller(&lab).await?;
        let life = cluster.resume(&life);
        let volume = life.create().await?;
        ensure!(
            cluster.simulator.accepted("create_volume").await? == 1,
            "the volume was created twice"
        );
        cluster.use_and_remove(&lab, &life, &volume, "ext4").await
    });
}

#[test]
fn controller_killed_before_response_creates_one_volume() {
    in_lab(async |lab| {
        let cluster = Cluster::start(&lab, &Ours::new(Role::Node)).await?;
        let life = cluster.life(&lab, "ext4")?;
        cluster.simulator.hold_answer("create_volume", MOMENT).await?;
        let made = wait_for_some("Cinder to have the volume", REACH_MOMENT, async || {
            Ok((!cluster.simulator.volume_names().await?.is_empty()).then_some(()))
        });
        run_until(life.create(), made).await?;
        let cluster = cluster.replace_controller(&lab).await?;
        let life = cluster.resume(&life);
        let volume = life.create().await?;
        cluster.use_and_remove(&lab, &life, &volume, "ext4").await
    });
}

#[test]
fn controller_killed_during_attach_attaches_once() {
    in_lab(async |lab| {
        let cluster = Cluster::start(&lab, &Ours::new(Role::Node)).await?;
        let life = cluster.life(&lab, "ext4")?;
        let volume = life.create().await?;
        cluster.simulator.set_latency("attach", MOMENT).await?;
        run_until(
            life.attach(&volume),
            cluster.simulator.wait_for_request("attach_volume", REACH_MOMENT),
        )
        .await?;
        let cluster = cluster.replace_controller(&lab).await?;
        let life = cluster.resume(&life);
        life.attach(&volume).await?;
        ensure!(
            cluster.simulator.accepted("attach_volume").await? == 1,
            "Nova attached it twice"
        );
        cluster.use_and_remove(&lab, &life, &volume, "ext4").await
    });
}

#[test]
fn controller_killed_during_detach_finishes_it() {
    in_lab(async |lab| {
        let cluster = Cluster::start(&lab, &Ours::new(Role::Node)).await?;
        let life = cluster.life(&lab, "ext4")?;
        let volume = life.create().await?;
        life.attach(&volume).await?;
        cluster.simulator.set_latency("detach", MOMENT).await?;
        run_until(
            life.detach(&volume),
            cluster.simulator.wait_for_request("detach_volume", REACH_MOMENT),
        )
        .await?;
        let cluster = cluster.replace_controller(&lab).await?;
        let life = cluster.resume(&life);
        life.detach(&volume).await?;
        ensure!(lab.loop_devices().await?.is_empty(), "the volume is still attached");
        cluster.simulator.set_latency("detach", Duration::ZERO).await?;
        cluster.use_and_remove(&lab, &life, &volume, "ext4").await
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
    let cluster = Cluster::start(lab, &node).await?;
    let life = cluster.life(lab, fs_type)?;
    let volume = life.create().await?;
    let context = life.attach(&volume).await?;
    let mut caught = None;
    let in_the_middle = async {
        caught = Some(mkfs.caught().await?);
        Ok(())
    };
    run_until(life.stage(&volume, &context), in_the_middle).await?;
    let caught = caught.context("no mkfs was caught")?;
    let stat = caught.stat()?;
    ensure!(
        stat.contains(&format!("(mkfs.{fs_type}) t")) || stat.contains(&format!("(mkfs.{fs_type}) T")),
        "what stands still is {stat}"
    );
    let devices = lab.loop_devices().await?;
    let device = devices.first().context("the attachment is no loop device")?;
    // Excludes the driver's own mark, which is near the end.
    let written = lab
        .shell(&format!("head --bytes=512M {device} | tr --delete '\\0' | wc --bytes"))
        .await?;
    ensure!(written.trim() != "0", "mkfs has written nothing yet");
    // The new process runs the system's own mkfs.
    let cluster = cluster.replace_node(lab).await?;
    caught.ended().await?;
    // Otherwise, there would be nothing to repair.
    let refused = format!(
        "mkdir {0}; if mount -t {fs_type} {device} {0}; then exit 1; fi",
        lab.path("probe").display()
    );
    lab.shell(&refused)
        .await
        .context("what the interrupted mkfs left can be mounted")?;
    let life = cluster.resume(&life);
    cluster.use_and_remove(lab, &life, &volume, fs_type).await
}

#[test]
fn node_killed_after_stage_publishes_same_data() {
    in_lab(async |lab| {
        let cluster = Cluster::start(&lab, &Ours::new(Role::Node)).await?;
        let life = cluster.life(&lab, "ext4")?;
        let volume = life.create().await?;
        let context = life.attach(&volume).await?;
        life.stage(&volume, &context).await?;
        let (staging, target) = (life.staging().display(), life.target().display());
        lab.shell(&format!("echo from-before > {staging}/file; sync {staging}/file"))
            .await?;
        let cluster = cluster.replace_node(&lab).await?;
        let life = cluster.resume(&life);
        life.publish(&volume, &context).await?;
        let read = lab.shell(&format!("cat {target}/file")).await?;
        ensure!(read.trim() == "from-before", "the file holds {read:?}");
        cluster.remove(&lab, &life, &volume).await
    });
}
