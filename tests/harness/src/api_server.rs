// SPDX-License-Identifier: Apache-2.0
//! etcd and the API server without nodes and controllers, for tests that need only the API.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;

use crate::cluster::Daemon;
use crate::cluster::control_plane::{START_TIMEOUT, api_server_arguments, etcd_arguments};
use crate::cluster::pki::Pki;
use crate::{Command, Tools, wait_for};

const ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 6443);

/// etcd and the API server with RBAC, on the loopback interface of the thread that starts them. That thread must be in
/// its own network namespace. Both processes end when this value is dropped, or when the thread ends.
#[derive(Debug)]
pub struct ApiServer {
    daemons: Vec<Daemon>,
    pki: Pki,
    directory: PathBuf,
    kubectl: PathBuf,
}

impl ApiServer {
    /// Starts both with their files in `directory`, and waits until the API server is ready.
    pub async fn start(directory: &Path, further_arguments: &[String]) -> Result<Self> {
        let tools = Tools::modules(&["etcd", "kubernetes"]).await?;
        let pki = Pki::make(&directory.join("pki"), &[Ipv4Addr::LOCALHOST], &[])?;
        let mut server = Self {
            daemons: Vec::new(),
            pki,
            directory: directory.to_owned(),
            kubectl: tools.path("kubectl")?.to_owned(),
        };
        server.pki.write_kubeconfig(&server.kubeconfig(), &server.url(), None)?;

        let mut etcd = with_this_thread(tools.path("etcd")?);
        etcd_arguments(&mut etcd, &directory.join("etcd"));
        server.daemons.push(Daemon::start("etcd", directory, &mut etcd)?);
        let mut api_server = with_this_thread(tools.path("kube-apiserver")?);
        api_server_arguments(&mut api_server, &server.pki, ADDRESS);
        api_server.arg("--authorization-mode=RBAC").args(further_arguments);
        server
            .daemons
            .push(Daemon::start("kube-apiserver", directory, &mut api_server)?);

        let ready = wait_for("the API server's readiness", START_TIMEOUT, async || {
            let ask = server.kubectl().args(["get", "--raw", "/readyz"]);
            ask.timeout(Duration::from_secs(5)).output().await
        })
        .await;
        for daemon in &mut server.daemons {
            daemon.check()?;
        }
        ready?;
        Ok(server)
    }

    /// Stops the API server process for some time. Its connections stay open, as those of a frozen machine.
    pub async fn freeze(&self, time: Duration) -> Result<()> {
        let api_server = self.daemons.last().context("there is no API server")?;
        api_server.signal(Signal::STOP)?;
        tokio::time::sleep(time).await;
        api_server.signal(Signal::CONT)
    }

    /// Returns the URL of the API server.
    pub fn url(&self) -> String {
        format!("https://{ADDRESS}")
    }

    /// Returns the path of the CA certificate of the API server.
    pub fn ca_certificate(&self) -> PathBuf {
        self.pki.file("ca.crt")
    }

    /// Returns the path of the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.join("admin.kubeconfig")
    }

    /// Returns the administrator's token.
    pub fn token(&self) -> &str {
        self.pki.admin_token()
    }

    /// Writes a kubeconfig that authenticates with this token.
    pub fn write_kubeconfig(&self, path: &Path, token: &str) -> Result<()> {
        self.pki.write_kubeconfig_of(path, &self.url(), token)
    }

    /// Returns a kubectl command with the administrator's kubeconfig.
    pub fn kubectl(&self) -> Command {
        Command::new(&self.kubectl)
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .arg("--cache-dir")
            .arg(self.directory.join("kubectl-cache"))
            .known_as("kubectl")
    }

    /// Applies manifests (YAML or JSON, several documents allowed).
    pub async fn apply(&self, manifests: &str) -> Result<()> {
        let kubectl = self
            .kubectl()
            .args(["apply", "--server-side", "-f", "-"])
            .stdin(manifests);
        kubectl.output().await.map(drop).context("cannot apply")
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        // Stops the API server first, because it would log errors without etcd.
        self.daemons.drain(..).rev().for_each(Daemon::reap);
    }
}

/// Returns a command whose process ends with this thread.
fn with_this_thread(program: &Path) -> std::process::Command {
    let mut command = std::process::Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}
