// SPDX-License-Identifier: Apache-2.0
//! Both drivers in a lab: ours and the Go driver, with both roles and the same cloud.conf.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use csi_proto::csi::v1::ProbeRequest;
use csi_proto::csi::v1::identity_client::IdentityClient;
use harness::wait_for_some;
use rustix::process::Pid;
use tokio::process::Command;
use tonic::transport::{Channel, Endpoint};

use crate::cloud::Cloud;
use crate::lab::Lab;
use crate::life::Life;
use crate::process::Process;
use crate::programs;
use crate::simulator::Simulator;

const START_TIMEOUT: Duration = Duration::from_secs(20);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Services of a process of our driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Identity, Controller and Node.
    Both,
    /// Identity and Controller.
    Controller,
    /// Identity and Node, without credentials.
    Node,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::Both => "driver",
            Self::Controller => "controller",
            Self::Node => "node",
        }
    }
}

/// Configuration of a process of our driver.
#[derive(Debug, Clone)]
pub struct Ours {
    role: Role,
    socket: Option<PathBuf>,
    arguments: Vec<String>,
    programs: Option<PathBuf>,
    program: Option<PathBuf>,
    environment: Vec<(String, String)>,
    json_log: bool,
}

impl Ours {
    /// Uses these services, and the defaults of the Go driver's manifests.
    pub const fn new(role: Role) -> Self {
        Self {
            role,
            socket: None,
            arguments: Vec::new(),
            programs: None,
            program: None,
            environment: Vec::new(),
            json_log: false,
        }
    }

    /// Enables the JSON log, as in a cluster.
    #[must_use]
    pub const fn json_log(mut self) -> Self {
        self.json_log = true;
        self
    }

    #[must_use]
    pub fn flag(mut self, flag: impl Into<String>) -> Self {
        self.arguments.push(flag.into());
        self
    }

    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the CSI socket, which is in the test's directory by default.
    #[must_use]
    pub fn socket(self, path: PathBuf) -> Self {
        Self {
            socket: Some(path),
            ..self
        }
    }

    /// Adds a directory at the start of `PATH`.
    #[must_use]
    pub fn programs(self, directory: PathBuf) -> Self {
        Self {
            programs: Some(directory),
            ..self
        }
    }

    /// Sets another build of the driver.
    #[must_use]
    pub fn program(self, program: PathBuf) -> Self {
        Self {
            program: Some(program),
            ..self
        }
    }

    /// Starts the process and waits until it responds. It reads instance id and zone from the metadata service, as on a
    /// real node.
    pub async fn start(&self, lab: &Lab, cloud: &impl Cloud) -> Result<Driver> {
        let name = self.role.name();
        let socket = self.socket.clone().unwrap_or_else(|| lab.path(&format!("{name}.sock")));
        let program = self.program.clone().map_or_else(programs::driver, Ok)?;
        let mut command = lab.command(program)?;
        command.arg(format!("--endpoint=unix://{}", socket.display())).args([
            "--cluster=suites",
            if self.json_log {
                "--log-format=json"
            } else {
                "--log-format=text"
            },
        ]);
        if self.role != Role::Node {
            command.arg("--cloud-config").arg(cloud.cloud_conf());
        }
        command.arg(format!("--provide-controller-service={}", self.role != Role::Node));
        command.arg(format!("--provide-node-service={}", self.role != Role::Controller));
        command.args(&self.arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.programs {
            let path = std::env::var("PATH").unwrap_or_default();
            command.env("PATH", format!("{}:{path}", directory.display()));
        }
        Driver::start(name, command, socket, &lab.path(&format!("{name}.log"))).await
    }
}

/// Configuration of a process of the Go driver.
#[derive(Debug, Clone, Copy)]
pub struct Go {
    role: Role,
    verbosity: u8,
}

impl Go {
    /// Uses these services, and the log level of its manifests.
    pub const fn new(role: Role) -> Self {
        Self { role, verbosity: 1 }
    }

    /// Sets the log level that the Go driver's authors use for tests.
    #[must_use]
    pub const fn verbose(self) -> Self {
        Self { verbosity: 5, ..self }
    }

    /// Starts the process and waits until it responds. Topology is disabled, as in its own csi-sanity job.
    pub async fn start(self, lab: &Lab, cloud: &impl Cloud) -> Result<Driver> {
        let name = format!("go-{}", self.role.name());
        let socket = lab.path(&format!("{name}.sock"));
        let mut command = lab.command(programs::go_driver()?)?;
        command.arg(format!("--endpoint=unix://{}", socket.display()));
        command.arg("--cloud-config").arg(cloud.cloud_conf());
        command.arg(format!("--provide-controller-service={}", self.role != Role::Node));
        command.arg(format!("--provide-node-service={}", self.role != Role::Controller));
        command.args(["--cluster=suites", "--with-topology=false"]);
        command.arg(format!("-v={}", self.verbosity));
        Driver::start(&name, command, socket, &lab.path(&format!("{name}.log"))).await
    }
}

/// Our controller and node as two processes on the simulator.
#[derive(Debug)]
pub struct Installation {
    pub simulator: Simulator,
    pub controller: Driver,
    pub node: Driver,
}

impl Installation {
    /// Starts both processes.
    pub async fn start(lab: &Lab, simulator: Simulator) -> Result<Self> {
        Self::start_with(lab, simulator, &Ours::new(Role::Controller), &Ours::new(Role::Node)).await
    }

    /// Starts both processes with their configurations.
    pub async fn start_with(lab: &Lab, simulator: Simulator, controller: &Ours, node: &Ours) -> Result<Self> {
        Ok(Self {
            controller: controller.start(lab, &simulator).await?,
            node: node.start(lab, &simulator).await?,
            simulator,
        })
    }

    /// Kills the controller and restarts it.
    pub async fn replace_controller(self, lab: &Lab) -> Result<Self> {
        self.controller.kill().await?;
        let controller = Ours::new(Role::Controller).start(lab, &self.simulator).await?;
        Ok(Self { controller, ..self })
    }

    /// Kills the node and restarts it.
    pub async fn replace_node(self, lab: &Lab) -> Result<Self> {
        self.node.kill().await?;
        let node = Ours::new(Role::Node).start(lab, &self.simulator).await?;
        Ok(Self { node, ..self })
    }

    /// Returns the lifecycle of a volume with a file system.
    pub fn life(&self, lab: &Lab, name: &str, fs_type: &str) -> Result<Life> {
        Life::mounted(lab, self.controller.channel(), self.node.channel(), name, fs_type)
    }

    /// Stops all processes.
    pub async fn stop(self) -> Result<()> {
        self.controller.stop().await?;
        self.node.stop().await?;
        self.simulator.stop().await
    }
}

/// A running driver.
#[derive(Debug)]
pub struct Driver {
    process: Process,
    socket: PathBuf,
    channel: Channel,
}

impl Driver {
    /// Starts the Go driver with all its services.
    pub async fn go(lab: &Lab, cloud: &impl Cloud) -> Result<Self> {
        Go::new(Role::Both).verbose().start(lab, cloud).await
    }

    async fn start(name: &str, command: Command, socket: PathBuf, log: &Path) -> Result<Self> {
        let mut process = Process::spawn(name, command, log)?;
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))
            .context("the path of the socket is no address")?
            .connect_timeout(CONNECT_TIMEOUT)
            // The authority that the sidecars and the kubelet's CSI client send.
            .origin(tonic::codegen::http::Uri::from_static("http://localhost"));
        let channel = wait_for_some(&format!("{name} to answer Probe"), START_TIMEOUT, async || {
            process.check()?;
            let Ok(channel) = endpoint.connect().await else {
                return Ok(None);
            };
            match IdentityClient::new(channel.clone()).probe(ProbeRequest {}).await {
                Ok(answer) if answer.get_ref().ready != Some(false) => Ok(Some(channel)),
                Ok(_starting) => Ok(None),
                // The Go driver removes its socket shortly before it exits.
                Err(status) if status.code() == tonic::Code::Unavailable => Ok(None),
                Err(status) => bail!("Probe failed: {status}"),
            }
        })
        .await
        .with_context(|| process.tail())?;
        Ok(Self {
            process,
            socket,
            channel,
        })
    }

    /// Returns the CSI socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns a connection whose `:authority` is `localhost`.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Returns the process id; fails if the process has ended.
    pub fn pid(&self) -> Result<Pid> {
        self.process.pid()
    }

    /// Returns the whole log.
    pub fn log(&self) -> Result<String> {
        self.process.log()
    }

    /// Returns the last lines of the log.
    pub fn tail(&self) -> String {
        self.process.tail()
    }

    /// Kills the driver with SIGKILL.
    pub async fn kill(self) -> Result<()> {
        self.process.kill().await
    }

    /// Stops the driver with SIGTERM.
    pub async fn stop(self) -> Result<()> {
        self.process.stop().await.map(drop)
    }
}
