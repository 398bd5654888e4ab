// SPDX-License-Identifier: Apache-2.0
//! The OpenStack simulator in a lab.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use harness::{wait_for, wait_for_some};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::cloud::{Cloud, client, metadata_service};
use crate::host_commands::When;
use crate::lab::{BY_ID, Lab};
use crate::process::Process;
use crate::programs;

/// Id of the server that the lab represents.
pub const SERVER_ID: &str = "6f1c2f3a-52c0-4a4e-9d59-0c7a3f1be001";
/// Availability zone of the server.
pub const ZONE: &str = "nova";
/// Latencies of real services, in the format of `--latency`.
pub const REAL_LATENCIES: &str = "create=800ms,attach=1100ms,detach=600ms,delete=300ms,extend=300ms,snapshot=500ms,\
     backup=1500ms,retype=1s,group=300ms,members=300ms";

const START_TIMEOUT: Duration = Duration::from_secs(15);
const FOR_EVER: Duration = Duration::from_hours(1);

/// Content of the simulator's ready file.
#[derive(Debug, Clone, Deserialize)]
struct Ready {
    auth_url: String,
    base_url: String,
    username: String,
    password: String,
    project_name: String,
    domain_name: String,
    region: String,
}

/// A request in the simulator's log.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Request {
    pub method: String,
    /// `keystone`, `cinder` or `nova`.
    pub service: String,
    /// Operation name, such as `create_volume`.
    pub operation: String,
    /// HTTP status; 0 if the connection was cut.
    pub status: u16,
    /// Value of `x-openstack-request-id`.
    #[serde(default)]
    pub request_id: String,
}

/// A cloud with one server, whose devices are in the lab's `/dev/disk/by-id`, and the metadata service of that server.
#[derive(Debug)]
pub struct Simulator {
    cloud: Process,
    metadata: Process,
    ready: Ready,
    http: reqwest::Client,
    cloud_conf: PathBuf,
}

impl Simulator {
    /// Starts both, with latencies in the format of `--latency`; empty means none.
    pub async fn start(lab: &Lab, latencies: &str) -> Result<Self> {
        let volumes = lab.path("volumes");
        let latency = ["--latency", latencies];
        let latency = if latencies.is_empty() { &[][..] } else { &latency };
        Self::start_with(lab, |command| command.arg("--backing").arg(volumes).args(latency)).await
    }

    /// Starts both, with this number of volumes in the cloud. The volumes have no data, so they cannot be attached.
    pub async fn start_with_volumes(lab: &Lab, volumes: u32) -> Result<Self> {
        let volumes = volumes.to_string();
        Self::start_with(lab, |command| command.args(["--volumes", &volumes])).await
    }

    /// Starts both, with volume types in the format of `--volume-type`; the first is the default.
    pub async fn start_with_types(lab: &Lab, types: &[&str]) -> Result<Self> {
        let volumes = lab.path("volumes");
        let types = types.iter().flat_map(|text| ["--volume-type", text]);
        Self::start_with(lab, |command| command.arg("--backing").arg(volumes).args(types)).await
    }

    /// Starts both, with the cloud at a loopback port. The catalog contains `url`, which clients use.
    pub async fn start_behind(lab: &Lab, port: u16, url: &str, arguments: &[&str]) -> Result<Self> {
        let starting = Self::start_at(lab, port, |command| command.args(["--public-url", url]).args(arguments));
        let mut simulator = starting.await?;
        // The test itself uses no name resolution.
        simulator.ready.base_url = format!("http://127.0.0.1:{port}");
        Ok(simulator)
    }

    async fn start_with(lab: &Lab, add: impl FnOnce(&mut Command) -> &mut Command) -> Result<Self> {
        Self::start_at(lab, 0, add).await
    }

    async fn start_at(lab: &Lab, port: u16, add: impl FnOnce(&mut Command) -> &mut Command) -> Result<Self> {
        let program = programs::simulator()?;
        let ready_file = lab.path("simulator-ready.json");
        let mut cloud = lab.command_ended_by("TERM", &program)?;
        cloud
            .args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--server"])
            .arg(format!("{SERVER_ID},name=node-0,zone={ZONE},by-id={BY_ID}"))
            .arg("--ready-file")
            .arg(&ready_file);
        add(&mut cloud);
        let mut cloud = Process::spawn("openstack-sim serve", cloud, &lab.path("simulator.log"))?;
        let text = wait_for_some("the simulator", START_TIMEOUT, async || {
            cloud.check()?;
            Ok(std::fs::read_to_string(&ready_file).ok())
        })
        .await?;
        let ready: Ready = serde_json::from_str(&text).context("the simulator's ready file is not what was agreed")?;

        let metadata = metadata_service(lab, SERVER_ID, "node-0", ZONE).await?;
        let http = client()?;
        let cloud_conf = lab.path("cloud.conf");
        std::fs::write(&cloud_conf, ready.cloud_conf()).context("cannot write cloud.conf")?;
        Ok(Self {
            cloud,
            metadata,
            ready,
            http,
            cloud_conf,
        })
    }

    /// Returns the state: volumes, attachments, loop devices.
    pub async fn state(&self) -> Result<Value> {
        self.get("state").await
    }

    /// Returns the names of the existing volumes.
    pub async fn volume_names(&self) -> Result<Vec<String>> {
        let state = self.state().await?;
        let volumes = state["volumes"]
            .as_array()
            .context("the simulator's state has no list of volumes")?;
        Ok(volumes
            .iter()
            .filter_map(|volume| volume["name"].as_str())
            .map(str::to_owned)
            .collect())
    }

    /// Returns the requests so far, oldest first.
    pub async fn log(&self) -> Result<Vec<Request>> {
        serde_json::from_value(self.get("log").await?).context("the simulator's log is not what was agreed")
    }

    /// Returns the number of accepted requests of this operation.
    pub async fn accepted(&self, operation: &str) -> Result<usize> {
        let accepted = |request: &&Request| request.operation == operation && (200..300).contains(&request.status);
        Ok(self.log().await?.iter().filter(accepted).count())
    }

    /// Waits until a request of this operation was accepted.
    pub async fn wait_for_request(&self, operation: &str, limit: Duration) -> Result<()> {
        wait_for(&format!("a request {operation}"), limit, async || {
            ensure!(self.accepted(operation).await? > 0, "none was accepted");
            Ok(())
        })
        .await
    }

    /// Sets one latency, also of work in progress.
    pub async fn set_latency(&self, name: &str, latency: Duration) -> Result<()> {
        self.post("latency", &json!({ name: latency.as_millis() })).await
    }

    /// Sets latencies in the format of `--latency`, also of work in progress.
    pub async fn set_latencies(&self, latencies: &str) -> Result<()> {
        let pairs = latencies.split(',').filter_map(|pair| pair.split_once('='));
        let pairs: BTreeMap<&str, &str> = pairs.collect();
        self.post("latency", &json!(pairs)).await
    }

    /// Returns the latencies by name.
    pub async fn latencies(&self) -> Result<BTreeMap<String, Duration>> {
        let millis: BTreeMap<String, u64> = serde_json::from_value(self.get("latency").await?)
            .context("the simulator's latencies are not what was agreed")?;
        let latencies = millis.into_iter();
        Ok(latencies
            .map(|(name, millis)| (name, Duration::from_millis(millis)))
            .collect())
    }

    /// Delays the response of the next request of this operation. The request takes effect immediately.
    pub async fn hold_answer(&self, operation: &str, by: Duration) -> Result<()> {
        let effect = json!({ "delay": { "millis": by.as_millis(), "when": "after" } });
        self.post(
            "faults",
            &json!({ "operation": operation, "times": 1, "effect": effect }),
        )
        .await
    }

    /// Skips `after` requests of an operation and suspends the next one, for longer than any test.
    pub async fn hold_request(&self, operation: &str, after: usize, when: When) -> Result<()> {
        let effect = json!({ "delay": { "millis": FOR_EVER.as_millis(), "when": when.name() } });
        let fault = json!({ "operation": operation, "skip": after, "times": 1, "effect": effect });
        self.post("faults", &fault).await
    }

    /// Returns method and path of the request of [`Simulator::hold_request`], once it has arrived.
    pub async fn held_request(&self) -> Result<Option<String>> {
        let held = self.get("held").await?;
        let held = held.as_array().context("what the simulator holds is no list")?;
        let word = |request: &Value, name: &str| request[name].as_str().unwrap_or_default().to_owned();
        Ok(held
            .last()
            .map(|request| format!("{} {}", word(request, "method"), word(request, "path"))))
    }

    /// Removes all fault rules; a suspended request stays so.
    pub async fn clear_faults(&self) -> Result<()> {
        let url = format!("{}/_sim/faults", self.ready.base_url);
        let answer = self.http.delete(&url).send().await;
        answer
            .and_then(reqwest::Response::error_for_status)
            .with_context(|| format!("{url} does not forget"))
            .map(drop)
    }

    /// Stops both programs; the cloud releases its loop devices.
    pub async fn stop(self) -> Result<()> {
        self.metadata.stop().await?;
        self.cloud.stop().await?;
        Ok(())
    }

    async fn get(&self, what: &str) -> Result<Value> {
        let url = format!("{}/_sim/{what}", self.ready.base_url);
        let answer = self
            .http
            .get(&url)
            .send()
            .await
            .and_then(reqwest::Response::error_for_status);
        let answer = answer.with_context(|| format!("the simulator does not answer; {}", self.cloud.tail()))?;
        answer.json().await.with_context(|| format!("{url} is no JSON"))
    }

    async fn post(&self, what: &str, body: &Value) -> Result<()> {
        let url = format!("{}/_sim/{what}", self.ready.base_url);
        let answer = self
            .http
            .post(&url)
            .json(body)
            .send()
            .await
            .with_context(|| format!("{url} does not answer"))?;
        if !answer.status().is_success() {
            bail!(
                "{url} refuses {body}: {} {}",
                answer.status(),
                answer.text().await.unwrap_or_default()
            );
        }
        Ok(())
    }
}

impl Cloud for Simulator {
    fn cloud_conf(&self) -> &Path {
        &self.cloud_conf
    }
}

impl Ready {
    fn cloud_conf(&self) -> String {
        let Self {
            auth_url,
            username,
            password,
            project_name,
            domain_name,
            region,
            ..
        } = self;
        format!(
            "[Global]\nauth-url = \"{auth_url}\"\nusername = \"{username}\"\npassword = \"{password}\"\n\
             tenant-name = \"{project_name}\"\ndomain-name = \"{domain_name}\"\nregion = \"{region}\"\n\n\
             [Metadata]\nsearch-order = metadataService\n"
        )
    }
}
