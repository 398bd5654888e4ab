//! The two drivers in a lab: ours and the Go driver, both with both roles and the same cloud.conf.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use csi_proto::csi::v1::ProbeRequest;
use csi_proto::csi::v1::identity_client::IdentityClient;
use tokio::process::Command;
use tonic::transport::{Channel, Endpoint};

use crate::lab::{Lab, wait_for};
use crate::process::Process;
use crate::programs;
use crate::simulator::Simulator;

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

/// A running driver.
#[derive(Debug)]
pub struct Driver {
    process: Process,
    socket: PathBuf,
    channel: Channel,
}

impl Driver {
    /// Starts our driver. Instance id and zone come from the metadata service, as they do on a real node.
    pub async fn ours(lab: &Lab, simulator: &Simulator, role: Role, arguments: &[&str]) -> Result<Self> {
        let name = role.name();
        let socket = lab.path(&format!("{name}.sock"));
        let mut command = lab.command(programs::driver()?)?;
        command
            .arg(format!("--endpoint=unix://{}", socket.display()))
            .args(["--cluster=suites", "--log-format=text"]);
        if role != Role::Node {
            command.arg("--cloud-config").arg(simulator.cloud_conf());
        }
        command.arg(format!("--provide-controller-service={}", role != Role::Node));
        command.arg(format!("--provide-node-service={}", role != Role::Controller));
        command.args(arguments);
        Self::start(name, command, socket, &lab.path(&format!("{name}.log"))).await
    }

    /// Starts the Go driver, without topology as its own csi-sanity job does.
    pub async fn go(lab: &Lab, simulator: &Simulator) -> Result<Self> {
        let socket = lab.path("go-driver.sock");
        let mut command = lab.command(programs::go_driver()?)?;
        command.arg(format!("--endpoint=unix://{}", socket.display()));
        command.arg("--cloud-config").arg(simulator.cloud_conf());
        command.args(["--cluster=suites", "--with-topology=false", "-v=5"]);
        Self::start("go-driver", command, socket, &lab.path("go-driver.log")).await
    }

    async fn start(name: &str, command: Command, socket: PathBuf, log: &Path) -> Result<Self> {
        let mut process = Process::spawn(name, command, log)?;
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))
            .context("the path of the socket is no address")?
            .connect_timeout(CONNECT_TIMEOUT)
            // What the sidecars and the kubelet's CSI client send.
            .origin(tonic::codegen::http::Uri::from_static("http://localhost"));
        let channel = wait_for(&format!("{name} to answer Probe"), START_TIMEOUT, async || {
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
