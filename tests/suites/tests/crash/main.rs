//! kill -9 at every OpenStack call and at every host command of a volume's life, and inside mkfs.
//!
//! A call or a command stands still, before it takes effect or after; the driver's process is killed then, started anew, and
//! the RPC is repeated as a sidecar or the kubelet would. Every life must end as an undisturbed one does: one volume, one
//! attachment, the data as it was written, and nothing left at the end. `CRASH_SEED=N` repeats the choice of points in mkfs.

use std::fmt::Write as _;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::Write as _;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use csi_proto::csi::v1::Volume;
use harness::wait_for_some;
use suites::drivers::{Driver, Ours, Role};
use suites::host_commands::{HostCommands, When};
use suites::lab::{Lab, in_lab};
use suites::life::Life;
use suites::mkfs::StoppedMkfs;
use suites::simulator::Simulator;

/// No RPC makes so many calls or runs so many commands.
const MOST_POINTS: usize = 40;
/// For one RPC with nothing in its way.
const RPC_LIMIT: Duration = Duration::from_secs(30);
/// Points in one mkfs, spread over its writes.
const POINTS_IN_MKFS: u32 = 5;

/// Where the process of a step is killed.
#[derive(Debug, Clone, Copy)]
struct Point {
    /// The call or the command, counted from 1 in each step.
    number: usize,
    when: When,
}

/// Both processes on one cloud, and what happened to them.
struct World {
    lab: Rc<Lab>,
    simulator: Simulator,
    commands: HostCommands,
    controller: Option<Driver>,
    node: Option<Driver>,
    points: Vec<String>,
}

impl World {
    async fn start(lab: Rc<Lab>) -> Result<Self> {
        let simulator = Simulator::start(&lab, "").await?;
        let commands = HostCommands::new(&lab)?;
        let mut world = Self {
            lab,
            simulator,
            commands,
            controller: None,
            node: None,
            points: Vec::new(),
        };
        world.start_controller().await?;
        world.start_node().await?;
        Ok(world)
    }

    async fn start_controller(&mut self) -> Result<()> {
        self.controller = Some(Ours::new(Role::Controller).start(&self.lab, &self.simulator).await?);
        Ok(())
    }

    async fn start_node(&mut self) -> Result<()> {
        let node = Ours::new(Role::Node).programs(self.commands.programs().to_owned());
        self.node = Some(node.start(&self.lab, &self.simulator).await?);
        Ok(())
    }

    fn driver(&self, role: Role) -> Result<&Driver> {
        let driver = match role {
            Role::Node => &self.node,
            Role::Controller | Role::Both => &self.controller,
        };
        driver.as_ref().context("the process does not run")
    }

    /// A volume's life over the processes that run now.
    fn life(&self, name: &str, fs_type: &str) -> Result<Life> {
        let (controller, node) = (
            self.driver(Role::Controller)?.channel(),
            self.driver(Role::Node)?.channel(),
        );
        Life::mounted(&self.lab, controller, node, name, fs_type)
    }

    /// Kills the process of a role and starts it anew.
    async fn replace(&mut self, role: Role) -> Result<()> {
        if role == Role::Node {
            self.node.take().context("the node does not run")?.kill().await?;
            self.commands.let_pass()?;
            self.start_node().await
        } else {
            self.controller
                .take()
                .context("the controller does not run")?
                .kill()
                .await?;
            self.simulator.clear_faults().await?;
            self.start_controller().await
        }
    }

    async fn hold(&self, role: Role, point: Point) -> Result<()> {
        if role == Role::Node {
            return self.commands.hold(point.number, point.when);
        }
        self.simulator.hold_request(point.number - 1, point.when).await
    }

    async fn let_pass(&self, role: Role) -> Result<()> {
        if role == Role::Node {
            return self.commands.let_pass();
        }
        self.simulator.clear_faults().await
    }

    async fn held(&self, role: Role) -> Result<()> {
        wait_for_some("the point", 2 * RPC_LIMIT, async || {
            let there = match role {
                Role::Node => self.commands.holds_one(),
                Role::Controller | Role::Both => self.simulator.holds_a_request().await?,
            };
            Ok(there.then_some(()))
        })
        .await
    }

    /// What stands still, for the report. Of requests the number is all there is: they are not answered.
    fn name(&self, role: Role, point: Point) -> String {
        let last = self.commands.log().pop();
        match (role, last) {
            (Role::Node, Some(command)) => format!("command {} ({command})", point.number),
            _ => format!("OpenStack call {}", point.number),
        }
    }

    /// Removes what a test left and ends the processes.
    async fn stop(mut self) -> Result<()> {
        for driver in [self.controller.take(), self.node.take()].into_iter().flatten() {
            driver.stop().await?;
        }
        self.simulator.stop().await
    }
}

/// One life, with a point in each of its steps.
struct Run<'w> {
    world: &'w mut World,
    name: String,
    fs_type: &'static str,
    point: Option<Point>,
    kills: usize,
}

impl Run<'_> {
    fn life(&self) -> Result<Life> {
        self.world.life(&self.name, self.fs_type)
    }

    /// Runs one RPC to its end. Where it comes by the point, its process is killed there and the RPC is repeated.
    async fn step<T>(&mut self, what: &str, role: Role, call: impl AsyncFn(&Life) -> Result<T>) -> Result<T> {
        if let Some(point) = self.point {
            let life = self.life()?;
            self.world.hold(role, point).await?;
            let done = {
                let call = pin!(call(&life));
                tokio::select! {
                    done = call => Some(done),
                    held = self.world.held(role) => held.map(|()| None)?,
                }
            };
            if let Some(done) = done {
                self.world.let_pass(role).await?;
                return done.with_context(|| format!("{what}, undisturbed"));
            }
            let name = self.world.name(role, point);
            self.world.replace(role).await?;
            self.kills += 1;
            let told = format!("{what}: {} {name}", point.when.name());
            let again = call(&self.life()?)
                .await
                .with_context(|| format!("repeated after a kill, {told}"))?;
            self.world.points.push(told);
            return Ok(again);
        }
        call(&self.life()?).await.with_context(|| what.to_owned())
    }

    /// The volume and its loop device are there once.
    async fn one_of_each(&self, attached: bool) -> Result<()> {
        let names = self.world.simulator.volume_names().await?;
        ensure!(names == [self.name.as_str()], "the volumes are {names:?}");
        let devices = self.world.lab.loop_devices().await?;
        ensure!(
            devices.len() == usize::from(attached),
            "the loop devices are {devices:?}"
        );
        let state = self.world.simulator.state().await?;
        for what in ["attachments", "mappings"] {
            let count = state[what].as_array().map(Vec::len);
            ensure!(
                count == Some(usize::from(attached)),
                "the cloud has {what}: {}",
                state[what]
            );
        }
        Ok(())
    }

    async fn bring_up(&mut self, volume: &Volume) -> Result<()> {
        let context = self
            .step("ControllerPublishVolume", Role::Controller, async |life| {
                life.attach(volume).await
            })
            .await?;
        self.one_of_each(true).await?;
        let stage = async |life: &Life| life.stage(volume, &context).await;
        self.step("NodeStageVolume", Role::Node, stage).await?;
        let publish = async |life: &Life| life.publish(volume, &context).await;
        self.step("NodePublishVolume", Role::Node, publish).await
    }

    async fn take_down(&mut self, volume: &Volume) -> Result<()> {
        let unpublish = async |life: &Life| life.unpublish(volume).await;
        self.step("NodeUnpublishVolume", Role::Node, unpublish).await?;
        let unstage = async |life: &Life| life.unstage(volume).await;
        self.step("NodeUnstageVolume", Role::Node, unstage).await?;
        let mounts = self.world.lab.mounts().await?;
        ensure!(mounts.is_empty(), "mounts are left: {mounts:?}");
        let detach = async |life: &Life| life.detach(volume).await;
        self.step("ControllerUnpublishVolume", Role::Controller, detach).await?;
        self.one_of_each(false).await
    }

    async fn data(&self, script: &str) -> Result<()> {
        let file = self.life()?.target().join("file");
        let script = script.replace("FILE", &file.display().to_string());
        self.world.lab.shell(&script).await.map(drop)
    }

    /// A volume is made, used, put away, used again and removed.
    async fn whole(&mut self) -> Result<()> {
        let volume = self
            .step("CreateVolume", Role::Controller, async |life| life.create().await)
            .await?;
        self.one_of_each(false).await?;
        self.bring_up(&volume).await?;
        self.data("echo precious > FILE; sync FILE").await?;
        self.take_down(&volume).await?;
        self.bring_up(&volume).await?;
        self.data("grep -qx precious FILE")
            .await
            .context("the data is not what was written")?;
        self.take_down(&volume).await?;
        let delete = async |life: &Life| life.delete(&volume).await;
        self.step("DeleteVolume", Role::Controller, delete).await?;
        let names = self.world.simulator.volume_names().await?;
        ensure!(names.is_empty(), "volumes are left: {names:?}");
        Ok(())
    }
}

/// Shown even where the output of tests that pass is not.
fn announce(text: &str) {
    // Nobody reads it where standard error is closed.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn report(what: &str, lives: usize, points: &[String], since: Instant) {
    let mut text = format!(
        "crash test, {what}: {} points in {lives} lives, {:.0} s\n",
        points.len(),
        since.elapsed().as_secs_f64()
    );
    for point in points {
        let _ = writeln!(text, "    {point}");
    }
    announce(&text);
}

#[test]
fn a_kill_before_any_call_or_command_takes_effect_changes_nothing_in_the_end() {
    in_lab(async |lab| every_point(lab, When::Before).await);
}

#[test]
fn a_kill_after_any_call_or_command_took_effect_changes_nothing_in_the_end() {
    in_lab(async |lab| every_point(lab, When::After).await);
}

/// Life after life, the first with a kill at the first call or command of every RPC, the next at the second, until no RPC comes
/// by its point any more.
async fn every_point(lab: Rc<Lab>, when: When) -> Result<()> {
    let since = Instant::now();
    let mut world = World::start(lab).await?;
    let mut lives = 0;
    for number in 1.. {
        ensure!(number <= MOST_POINTS, "an RPC makes more than {MOST_POINTS} calls");
        let mut run = Run {
            world: &mut world,
            name: format!("pvc-{}-{number}", when.name()),
            fs_type: "ext4",
            point: Some(Point { number, when }),
            kills: 0,
        };
        run.whole().await.with_context(|| format!("life {number}, {when:?}"))?;
        lives += 1;
        if run.kills == 0 {
            break;
        }
    }
    ensure!(lives > 2, "no RPC makes a second call: the points are not met");
    report(&format!("kill {} each", when.name()), lives, &world.points, since);
    world.stop().await
}

#[test]
fn a_kill_inside_mkfs_changes_nothing_in_the_end() {
    in_lab(async |lab| {
        let since = Instant::now();
        let seed = seed()?;
        let mut world = World::start(lab).await?;
        // Of about 150 and 65 writes.
        for (fs_type, writes) in [("ext4", 150), ("xfs", 65)] {
            for number in 0..POINTS_IN_MKFS {
                let part = writes / POINTS_IN_MKFS;
                let after = (number * part + seed % part).max(1);
                inside_mkfs(&mut world, fs_type, after)
                    .await
                    .with_context(|| format!("mkfs.{fs_type}, write {after}"))?;
            }
        }
        let lives = world.points.len();
        report(
            &format!("kill inside mkfs (CRASH_SEED={seed})"),
            lives,
            &world.points,
            since,
        );
        world.stop().await
    });
}

fn seed() -> Result<u32> {
    match std::env::var("CRASH_SEED") {
        Ok(text) => text.parse().context("CRASH_SEED is no number"),
        // A fresh state is keyed at random.
        Err(_) => Ok(u32::try_from(RandomState::new().build_hasher().finish() % 1_000).unwrap_or_default()),
    }
}

/// A life whose first node is killed when mkfs has made `after` writes.
async fn inside_mkfs(world: &mut World, fs_type: &'static str, after: u32) -> Result<()> {
    let name = format!("pvc-{fs_type}-{after}");
    let mkfs = StoppedMkfs::after(after, &world.lab, fs_type)?;
    world.node.take().context("the node does not run")?.stop().await?;
    let node = Ours::new(Role::Node).programs(mkfs.programs().to_owned());
    world.node = Some(node.start(&world.lab, &world.simulator).await?);
    let life = world.life(&name, fs_type)?;
    let volume = life.create().await?;
    let context = life.attach(&volume).await?;
    let caught = {
        let stage = pin!(life.stage(&volume, &context));
        tokio::select! {
            done = stage => bail!("staged before mkfs was caught: {done:?}"),
            caught = mkfs.caught() => caught?,
        }
    };
    world.replace(Role::Node).await?;
    caught.ended().await?;
    world
        .points
        .push(format!("NodeStageVolume: in mkfs.{fs_type}, after write {after}"));
    let mut run = Run {
        world,
        name,
        fs_type,
        point: None,
        kills: 1,
    };
    run.bring_up(&volume).await?;
    run.data("echo precious > FILE; sync FILE").await?;
    run.take_down(&volume).await?;
    run.bring_up(&volume).await?;
    run.data("grep -qx precious FILE").await?;
    run.take_down(&volume).await?;
    run.life()?.delete(&volume).await
}
