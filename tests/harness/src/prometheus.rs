// SPDX-License-Identifier: Apache-2.0
//! Prometheus in the cluster's network.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cluster::Daemon;
use crate::forward::Forward;
use crate::run::ensure_seen_by_nodes;
use crate::{Cluster, Command, wait_for, workspace_root};

/// Name among the services of a cluster.
const NAME: &str = "prometheus";
/// Listen address, on the loopback interface of the first node.
const ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9090);
const START_TIMEOUT: Duration = Duration::from_secs(30);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit for the download of the package.
const FETCH_TIMEOUT: Duration = Duration::from_mins(15);

#[derive(Debug)]
pub struct Prometheus {
    client: reqwest::Client,
    forward: Forward,
}

impl Cluster {
    /// Starts Prometheus on the first node. It runs until [`Cluster::end_prometheus`] or the end of the cluster.
    pub async fn start_prometheus(&self, config: &Value) -> Result<Prometheus> {
        let program = Command::new(workspace_root().join("tests/tools/prometheus"));
        let program = PathBuf::from(program.timeout(FETCH_TIMEOUT).output().await?.trim());
        ensure_seen_by_nodes(&program).context("set XDG_CACHE_HOME to a directory elsewhere")?;
        let directory = self.prometheus_directory()?;
        let file = directory.join("config.json");
        std::fs::write(&file, config.to_string()).context("cannot write the configuration of Prometheus")?;
        let first = self.first_node()?;
        let mut command = first.command(&program);
        command
            .arg(argument("--config.file=", &file))
            .arg(argument("--storage.tsdb.path=", &directory.join("data")))
            .arg(format!("--web.listen-address={ADDRESS}"))
            .arg("--log.level=warn");
        let mut daemon = Daemon::start(NAME, first.logs(), &mut command)?;
        let prometheus = Prometheus {
            client: reqwest::Client::builder()
                .timeout(REQUEST_TIMEOUT)
                .no_proxy()
                .build()
                .context("no HTTP client")?,
            forward: Forward::start(first.pid(), SocketAddr::V4(ADDRESS)).await?,
        };
        let ready = wait_for("the readiness of Prometheus", START_TIMEOUT, async || {
            daemon.check()?;
            prometheus.get("-/ready", &[]).await
        })
        .await;
        self.keep_service(NAME, daemon);
        ready.map(|_| prometheus)
    }

    /// Stops Prometheus.
    pub fn end_prometheus(&self) -> Result<()> {
        self.end_service(NAME)
    }

    /// Returns the directory for files that Prometheus reads, which is deleted with the cluster.
    pub fn prometheus_directory(&self) -> Result<PathBuf> {
        let directory = self.first_node()?.run_directory().join(NAME);
        std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(directory)
    }
}

fn argument(flag: &str, path: &Path) -> std::ffi::OsString {
    let mut argument = std::ffi::OsString::from(flag);
    argument.push(path);
    argument
}

impl Prometheus {
    /// Returns the `data` of a response of its API: `query`, `targets` and so on.
    pub async fn api(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value> {
        let text = self.get(&format!("api/v1/{path}"), parameters).await?;
        let mut answer: Value = serde_json::from_str(&text).with_context(|| format!("{path} did not answer JSON"))?;
        Ok(answer["data"].take())
    }

    /// Returns the current series of an expression.
    pub async fn query(&self, expression: &str) -> Result<Vec<Value>> {
        let data = self.api("query", &[("query", expression)]).await?;
        series(data)
    }

    /// Returns the series of an expression for each second between two times, in seconds since 1970.
    pub async fn query_range(&self, expression: &str, from: f64, to: f64) -> Result<Vec<Value>> {
        let (from, to) = (from.to_string(), to.to_string());
        let parameters = [("query", expression), ("start", &from), ("end", &to), ("step", "1")];
        let data = self.api("query_range", &parameters).await?;
        series(data)
    }

    async fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Result<String> {
        let url = format!("http://{}/{path}", self.forward.local());
        let url = reqwest::Url::parse_with_params(&url, parameters).context("a malformed address")?;
        let answer = self
            .client
            .get(url)
            .send()
            .await
            .context("Prometheus does not answer")?;
        let status = answer.status();
        let text = answer.text().await.context("the answer of Prometheus ended early")?;
        ensure!(status.is_success(), "Prometheus answered {path} with {status}: {text}");
        Ok(text)
    }
}

fn series(mut data: Value) -> Result<Vec<Value>> {
    match data["result"].take() {
        Value::Array(series) => Ok(series),
        other => anyhow::bail!("Prometheus answered {other} and no series"),
    }
}
