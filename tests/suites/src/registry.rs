// SPDX-License-Identifier: Apache-2.0
//! A registry of images on the loopback of every node: containerd pulls from there without TLS.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use harness::{Cluster, Command, Node, wait_for, workspace_root};

use crate::process::Process;
use crate::programs;

/// Where each node finds its own. The usual port of registries is Keystone's, too, and the simulator is on the first node.
pub const ADDRESS: &str = "127.0.0.1:5050";
/// How long a registry may take to start, and an image to be pushed.
const PATIENCE: Duration = Duration::from_mins(1);

/// The registries; they keep images in memory and are ended when the value is dropped.
#[derive(Debug)]
pub struct Registry {
    crane: PathBuf,
    processes: Vec<Process>,
}

impl Registry {
    /// Starts one on each node, with nothing in it.
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
        // Somebody else may have answered in its place.
        registry.processes.iter_mut().try_for_each(Process::check)?;
        Ok(registry)
    }

    /// Makes an archive's image known on every node as `image`.
    pub async fn push(&self, cluster: &Cluster, archive: &Path, image: &str) -> Result<()> {
        let archive = archive.to_str().context("the path of an image is not UTF-8")?;
        let name = format!("{ADDRESS}/{image}");
        for node in cluster.nodes() {
            self.crane(node, &["push", archive, &name]).await?;
        }
        Ok(())
    }

    /// Ends them.
    pub async fn stop(self) -> Result<()> {
        for process in self.processes {
            process.stop().await?;
        }
        Ok(())
    }

    /// Fills them with a release, and makes containerd take them for the registry that the release names.
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

/// The arguments with which `nsenter` runs a program in the network of a node.
fn inside(node: &Node) -> [String; 4] {
    ["--target".into(), node.pid().to_string(), "--net".into(), "--".into()]
}
