// SPDX-License-Identifier: Apache-2.0
//! A registry of images on the loopback interface of every node, from which containerd pulls without TLS.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use harness::{Cluster, Command, Node, wait_for, workspace_root};

use crate::process::Process;
use crate::programs;

/// Address of the registry on each node. The common port 5000 is used by the simulator's Keystone on the first node.
pub const ADDRESS: &str = "127.0.0.1:5050";
/// Limit of a start and of a push.
const PATIENCE: Duration = Duration::from_mins(1);

/// The registries, which store images in memory and are stopped on drop.
#[derive(Debug)]
pub struct Registry {
    crane: PathBuf,
    processes: Vec<Process>,
}

impl Registry {
    /// Starts an empty registry on each node.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let crane = programs::crane()?;
        let mut processes = Vec::new();
        for node in cluster.nodes() {
            let mut command = tokio::process::Command::new("nsenter");
            command
                .args(inside(node))
                .arg(&crane)
                .args(["registry", "serve", "--address", ADDRESS]);
            processes.push(Process::spawn("registry", command, &node.logs().join("registry.log"))?);
        }
        let mut registry = Self { crane, processes };
        for node in cluster.nodes() {
            wait_for("the registry to answer", PATIENCE, || {
                registry.crane(node, &["catalog", ADDRESS])
            })
            .await?;
        }
        // Another program may have responded on the port.
        registry.processes.iter_mut().try_for_each(Process::check)?;
        Ok(registry)
    }

    /// Pushes the image of an archive to every node's registry as `image`.
    pub async fn push(&self, cluster: &Cluster, archive: &Path, image: &str) -> Result<()> {
        let archive = archive.to_str().context("the path of an image is not UTF-8")?;
        let name = format!("{ADDRESS}/{image}");
        for node in cluster.nodes() {
            self.crane(node, &["push", archive, &name]).await?;
        }
        Ok(())
    }

    /// Stops the registries.
    pub async fn stop(self) -> Result<()> {
        for process in self.processes {
            process.stop().await?;
        }
        Ok(())
    }

    /// Pushes a release, and configures containerd to use the registries as mirrors of the release's registry.
    pub async fn publish(&self, cluster: &Cluster, release: &Path) -> Result<()> {
        for node in cluster.nodes() {
            let publish = Command::new("nsenter")
                .args(inside(node))
                .arg(workspace_root().join("config/release/publish"))
                .env("CRANE", &self.crane)
                .arg("--insecure")
                .arg(release)
                .arg(format!("{ADDRESS}/cinder-csi"));
            publish.timeout(PATIENCE).output().await?;
            node.mirror("ghcr.io", &format!("http://{ADDRESS}"))?;
        }
        Ok(())
    }

    async fn crane(&self, node: &Node, words: &[&str]) -> Result<String> {
        let command = Command::new("nsenter").args(inside(node)).arg(&self.crane);
        command.args(words).timeout(PATIENCE).output().await
    }
}

/// Returns the arguments with which `nsenter` runs a program in the network of a node.
fn inside(node: &Node) -> [String; 4] {
    ["--target".into(), node.pid().to_string(), "--net".into(), "--".into()]
}
