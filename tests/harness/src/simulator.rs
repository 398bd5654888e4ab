// SPDX-License-Identifier: Apache-2.0
//! The OpenStack simulator of a cluster.

use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::cluster::{Daemon, Node};
use crate::forward::Forward;
use crate::run::ensure_seen_by_nodes;
use crate::{Progress, programs, wait_for};

/// Port of a cluster's simulator; simulators of further clouds use the following ports.
pub(crate) const PORT: u16 = 5000;
const START_TIMEOUT: Duration = Duration::from_secs(20);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Configuration of the simulator.
#[derive(Debug, Clone, Default)]
pub struct SimulatorConfig {
    /// Additional arguments of `openstack-sim serve`, for example `--latency create=800ms,attach=1100ms`.
    pub args: Vec<String>,
}

/// Addresses and credentials of the simulated cloud, from the simulator's ready file.
#[derive(Debug, Clone, Deserialize)]
pub struct Access {
    pub auth_url: String,
    pub username: String,
    pub password: String,
    pub project_name: String,
    pub domain_name: String,
    pub region: String,
    pub application_credential_id: String,
    pub application_credential_secret: String,
}

/// A running simulator.
#[derive(Debug)]
pub struct Simulator {
    access: Access,
    client: reqwest::Client,
    forward: Forward,
}

impl Simulator {
    /// Starts the simulator on the first node, for a cloud whose servers are `nodes`. It runs until the cluster ends.
    pub(crate) async fn start(
        config: &SimulatorConfig,
        (name, port): (&str, u16),
        first: &Node,
        nodes: &[Node],
        progress: &Progress,
    ) -> Result<(Self, Daemon)> {
        let program = programs::simulator(progress).await?;
        ensure_seen_by_nodes(&program).context("set CARGO_TARGET_DIR to a directory elsewhere")?;
        let address = SocketAddrV4::new(first.address(), port);
        let directory = first.run_directory();
        let ready_file = directory.join(format!("{name}.json"));
        let mut command = first.command(&program);
        command
            .args([
                "serve",
                "--listen",
                &format!("0.0.0.0:{port}"),
                "--public-url",
                &format!("http://{address}"),
            ])
            .arg("--ready-file")
            .arg(&ready_file)
            .arg("--backing")
            .arg(directory.join(format!("{name}-volumes")));
        for node in nodes {
            let by_id = format!("/proc/{}/root/dev/disk/by-id", node.inner_pid()?);
            let server = format!(
                "{},name={},zone={},by-id={by_id}",
                node.server_id(),
                node.name(),
                node.zone()
            );
            command.args(["--server", &server]);
        }
        command.args(&config.args);
        let mut daemon = Daemon::start(name, first.logs(), &mut command)?;
        let text = wait_for("the simulator's readiness", START_TIMEOUT, async || {
            daemon.check()?;
            std::fs::read_to_string(&ready_file).context("it has not reported")
        })
        .await;
        let access = serde_json::from_str(&text?).context("the simulator's report is not as expected")?;

        let client = reqwest::Client::builder()
            .timeout(REQUEST_TIMEOUT)
            .no_proxy()
            .build()
            .context("no HTTP client")?;
        let forward = Forward::start(first.pid(), SocketAddr::V4(address)).await?;
        let simulator = Self {
            access,
            client,
            forward,
        };
        Ok((simulator, daemon))
    }

    /// Returns the addresses and credentials for pods.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Returns the simulator's URL for this machine.
    pub fn url(&self) -> String {
        format!("http://{}", self.forward.local())
    }

    /// Returns a `cloud.conf` with the user's password.
    pub fn cloud_conf(&self) -> String {
        let access = &self.access;
        format!(
            "[Global]\nauth-url = {}\nusername = {}\npassword = {}\ntenant-name = {}\ndomain-name = {}\nregion = {}\n",
            access.auth_url, access.username, access.password, access.project_name, access.domain_name, access.region
        )
    }

    /// Returns the requests so far, oldest first, as recorded by `openstack-sim`.
    pub async fn log(&self) -> Result<Vec<serde_json::Value>> {
        serde_json::from_value(self.admin(reqwest::Method::GET, "log", None).await?).context("the log is not a list")
    }

    /// Clears the request log.
    pub async fn clear_log(&self) -> Result<()> {
        self.admin(reqwest::Method::DELETE, "log", None).await.map(drop)
    }

    /// Returns volumes, attachments and loop devices.
    pub async fn state(&self) -> Result<serde_json::Value> {
        self.admin(reqwest::Method::GET, "state", None).await
    }

    /// Adds a fault rule (`openstack_sim::Fault`).
    pub async fn add_fault(&self, fault: &impl Serialize) -> Result<()> {
        let fault = serde_json::to_value(fault).context("a fault that is not JSON")?;
        self.admin(reqwest::Method::POST, "faults", Some(fault)).await.map(drop)
    }

    /// Removes all fault rules.
    pub async fn clear_faults(&self) -> Result<()> {
        self.admin(reqwest::Method::DELETE, "faults", None).await.map(drop)
    }

    /// Calls the simulator's admin interface. Returns null if the response has no body.
    pub async fn admin(
        &self,
        method: reqwest::Method,
        what: &str,
        body: Option<serde_json::Value>,
    ) -> Result<serde_json::Value> {
        let url = format!("{}/_sim/{what}", self.url());
        let mut request = self.client.request(method, &url);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request
            .send()
            .await
            .with_context(|| format!("the simulator does not answer at {url}"))?;
        let status = answer.status();
        let text = answer
            .text()
            .await
            .with_context(|| format!("the answer of {url} ended early"))?;
        anyhow::ensure!(status.is_success(), "{url} answered {status}: {text}");
        if text.is_empty() {
            return Ok(serde_json::Value::Null);
        }
        serde_json::from_str(&text).with_context(|| format!("the answer of {url} is not JSON"))
    }
}
