// SPDX-License-Identifier: Apache-2.0
//! The driver's processes, and the tools that suspend them at a point.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use harness::wait_for_some;
use suites::drivers::{Driver, Ours, Role};
use suites::host_commands::{HostCommands, When};
use suites::lab::Lab;
use suites::life::Life;
use suites::simulator::{Request, Simulator};
use suites::syscalls::Traced;

/// Limit of an undisturbed RPC.
pub(crate) const RPC_LIMIT: Duration = Duration::from_secs(30);
/// Limit of waits for the kernel and the simulator.
const SOON: Duration = Duration::from_secs(10);

/// A point in a step at which the process can be killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KillPoint {
    /// A request to OpenStack: the first one of its operation in the step, or a later one.
    Request {
        operation: String,
        earlier: usize,
        /// Whether the request is read-only.
        look: bool,
    },
    /// A host command, counted from 1.
    Command(usize),
    /// A system call that changes the volume's paths on the node, counted from 1. A kill before a call equals one after
    /// the previous call.
    SystemCall(usize),
}

/// Both processes on one cloud.
pub(crate) struct World {
    pub(crate) lab: Rc<Lab>,
    pub(crate) simulator: Simulator,
    commands: HostCommands,
    controller: Option<Driver>,
    node: Option<Driver>,
    traced: Option<Traced>,
}

impl KillPoint {
    /// Whether the step may succeed without it: the number of polls depends on timing.
    pub(crate) fn is_of_chance(&self) -> bool {
        matches!(self, Self::Request { look: true, .. })
    }
}

impl World {
    pub(crate) async fn start(lab: Rc<Lab>) -> Result<Self> {
        let simulator = Simulator::start(&lab, "").await?;
        let commands = HostCommands::new(&lab)?;
        let mut world = Self {
            lab,
            simulator,
            commands,
            controller: None,
            node: None,
            traced: None,
        };
        world.start_controller().await?;
        world.start_node().await?;
        Ok(world)
    }

    /// Waits for the login at the start, which is independent of the steps.
    async fn start_controller(&mut self) -> Result<()> {
        let since = self.simulator.log().await?.len();
        self.controller = Some(Ours::new(Role::Controller).start(&self.lab, &self.simulator).await?);
        wait_for_some("the controller to log in", SOON, async || {
            let log = self.simulator.log().await?;
            let login = log.iter().skip(since).any(|request| request.operation == "issue_token");
            Ok(login.then_some(()))
        })
        .await
    }

    async fn start_node(&mut self) -> Result<()> {
        let node = Ours::new(Role::Node).programs(self.commands.programs().to_owned());
        self.node = Some(node.start(&self.lab, &self.simulator).await?);
        Ok(())
    }

    /// Restarts the node with other programs in its `PATH`, until it is replaced.
    pub(crate) async fn start_node_with(&mut self, programs: &std::path::Path) -> Result<()> {
        self.node.take().context("the node does not run")?.stop().await?;
        let node = Ours::new(Role::Node).programs(programs.to_owned());
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

    /// Returns the lifecycle of a volume over the current processes.
    pub(crate) fn life(&self, name: &str, fs_type: Option<&str>) -> Result<Life> {
        let (controller, node) = (
            self.driver(Role::Controller)?.channel(),
            self.driver(Role::Node)?.channel(),
        );
        match fs_type {
            Some(fs_type) => Life::mounted(&self.lab, controller, node, name, fs_type),
            None => Life::block(&self.lab, controller, node, name),
        }
    }

    /// Kills the process of a role and restarts it.
    pub(crate) async fn replace(&mut self, role: Role) -> Result<()> {
        if role == Role::Node {
            self.node.take().context("the node does not run")?.kill().await?;
            self.let_pass().await?;
            self.start_node().await
        } else {
            let controller = self.controller.take().context("the controller does not run")?;
            controller.kill().await?;
            self.simulator.clear_faults().await?;
            wait_for_some("the held request to end with its client", SOON, async || {
                Ok(self.simulator.held_request().await?.is_none().then_some(()))
            })
            .await?;
            self.start_controller().await
        }
    }

    /// Suspends the process when it reaches this point.
    pub(crate) async fn hold(&mut self, place: &KillPoint, when: When, life: &Life) -> Result<()> {
        match place {
            KillPoint::SystemCall(_) => self.trace(life, true).await,
            KillPoint::Command(number) => self.commands.hold(*number, when),
            KillPoint::Request { operation, earlier, .. } => {
                self.simulator.hold_request(operation, *earlier, when).await
            }
        }
    }

    /// Starts to record the points of a process.
    pub(crate) async fn watch(&mut self, role: Role, life: &Life) -> Result<usize> {
        if role == Role::Node {
            self.commands.let_pass()?;
            self.trace(life, false).await?;
            return Ok(0);
        }
        Ok(self.simulator.log().await?.len())
    }

    async fn trace(&mut self, life: &Life, stop: bool) -> Result<()> {
        let places = [life.staging(), life.target()];
        self.traced = Some(Traced::attach(&self.lab, self.driver(Role::Node)?, &places, stop).await?);
        Ok(())
    }

    /// Returns the recorded points. Of consecutive equal polls, only the first one counts, because their number depends
    /// on timing.
    pub(crate) async fn watched(&mut self, role: Role, since: usize) -> Result<Vec<KillPoint>> {
        if role == Role::Node {
            let traced = self.traced.take().context("nobody follows the node")?;
            // The trace is complete after strace has detached.
            let calls = traced.detach().await?.len();
            let commands = (1..=self.commands.log().len()).map(KillPoint::Command);
            return Ok(commands.chain((1..=calls).map(KillPoint::SystemCall)).collect());
        }
        let log = self.simulator.log().await?;
        let log: Vec<_> = log.into_iter().skip(since).collect();
        let mut places = Vec::new();
        for (index, request) in log.iter().enumerate() {
            let same = |other: &&Request| other.operation == request.operation;
            let before = log.get(..index).unwrap_or_default();
            if request.method != "GET" || !before.last().is_some_and(|last| same(&last)) {
                places.push(KillPoint::Request {
                    operation: request.operation.clone(),
                    earlier: before.iter().filter(same).count(),
                    look: request.method == "GET",
                });
            }
        }
        Ok(places)
    }

    /// Suspends nothing from now on.
    pub(crate) async fn let_pass(&mut self) -> Result<()> {
        if let Some(traced) = self.traced.take() {
            traced.detach().await?;
        }
        self.commands.let_pass()?;
        self.simulator.clear_faults().await
    }

    /// Waits until the process is suspended at the point, and returns the name of the request, command or call.
    pub(crate) async fn wait_until_suspended(&self, place: &KillPoint) -> Result<String> {
        if let KillPoint::SystemCall(number) = place {
            let traced = self.traced.as_ref().context("nobody follows the node")?;
            return traced.stopped_after(*number, 2 * RPC_LIMIT).await;
        }
        wait_for_some("the point", 2 * RPC_LIMIT, async || {
            if let KillPoint::Request { .. } = place {
                let held = self.simulator.held_request().await?;
                return Ok(held.as_deref().map(short));
            }
            if !self.commands.holds_one() {
                return Ok(None);
            }
            Ok(self.commands.log().pop())
        })
        .await
    }

    /// Removes remains of a test and stops the processes.
    pub(crate) async fn stop(mut self) -> Result<()> {
        for driver in [self.controller.take(), self.node.take()].into_iter().flatten() {
            driver.stop().await?;
        }
        self.simulator.stop().await
    }
}

/// Returns a request without ids: `GET /volume/v3/PROJECT/volumes/ID`.
fn short(request: &str) -> String {
    let is_id = |part: &str| part.len() >= 32 && part.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    let path = request.split('?').next().unwrap_or_default();
    let parts = path.split('/').map(|part| if is_id(part) { "ID" } else { part });
    parts.collect::<Vec<_>>().join("/")
}
