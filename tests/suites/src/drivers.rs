// SPDX-License-Identifier: Apache-2.0
//! The two drivers in a lab: ours and the Go driver, both with both roles and the same cloud.conf.

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
use crate::process::Process;
use crate::programs;

const START_TIMEOUT: Duration = Duration::from_secs(20);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Which services a process of our driver serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Identity, Controller and Node.
    Both,
    /// Identity and Controller.
    Controller,
    /// Identity and Node; this one has no credentials.
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

/// How a process of our driver is started.
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
    /// With these services, and the defaults that the Go driver's manifests rely on.
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

    /// Writes its log as it does in a cluster: an object per line.
    #[must_use]
    pub const fn json_log(mut self) -> Self {
        self.json_log = true;
        self
    }

    /// Adds a flag.
    #[must_use]
    pub fn flag(mut self, flag: impl Into<String>) -> Self {
        self.arguments.push(flag.into());
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Serves CSI here and not in the test's directory.
    #[must_use]
    pub fn socket(self, path: PathBuf) -> Self {
        Self {
            socket: Some(path),
            ..self
        }
    }

    /// Programs in this directory are found before the system's.
    #[must_use]
    pub fn programs(self, directory: PathBuf) -> Self {
        Self {
            programs: Some(directory),
            ..self
        }
    }

    /// Runs this build of the driver and not the one that belongs to the tests.
    #[must_use]
    pub fn program(self, program: PathBuf) -> Self {
        Self {
            program: Some(program),
            ..self
        }
    }

    /// Starts the process and waits until it answers. Instance id and zone come from the metadata service, as they do on a
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

/// How a process of the Go driver is started.
#[derive(Debug, Clone, Copy)]
pub struct Go {
    role: Role,
    verbosity: u8,
}

impl Go {
    /// With these services, as talkative as its manifests make it.
    pub const fn new(role: Role) -> Self {
        Self { role, verbosity: 1 }
    }

    /// Logs what its authors want to see of a failed test.
    #[must_use]
    pub const fn verbose(self) -> Self {
        Self { verbosity: 5, ..self }
    }

    /// Starts the process and waits until it answers. Without topology, as its own csi-sanity job does.
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
            // What the sidecars and the kubelet's CSI client send.
            .origin(tonic::codegen::http::Uri::from_static("http://localhost"));
        let channel = wait_for_some(&format!("{name} to answer Probe"), START_TIMEOUT, async || {
            process.check()?;
            let Ok(channel) = endpoint.connect().await else {
                return Ok(None);
            };
            match IdentityClient::new(channel.clone()).probe(ProbeRequest {}).await {
                Ok(answer) if answer.get_ref().ready != Some(false) => Ok(Some(channel)),
                Ok(_starting) => Ok(None),
                // The Go driver removes its socket a moment before it ends.
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

    /// The CSI socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// A connection whose `:authority` is `localhost`.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Its process; an error once it has ended.
    pub fn pid(&self) -> Result<Pid> {
        self.process.pid()
    }

    /// The whole log.
    pub fn log(&self) -> Result<String> {
        self.process.log()
    }

    /// The last lines of the log.
    pub fn tail(&self) -> String {
        self.process.tail()
    }

    /// Ends the driver with SIGKILL.
    pub async fn kill(self) -> Result<()> {
        self.process.kill().await
    }

    /// Ends the driver with SIGTERM.
    pub async fn stop(self) -> Result<()> {
        self.process.stop().await.map(drop)
    }
}
