// SPDX-License-Identifier: Apache-2.0
//! containerd on a node: start, images, and running containers.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Node;
use super::daemon::Daemon;
use super::network::pod_range;
use crate::wait_for;

/// The socket of containerd in the node's own /run.
pub(super) const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
/// The image of pod sandboxes.
pub(crate) const PAUSE_IMAGE: &str = "registry.k8s.io/pause:3.10.2";
const CONTAINERD_TIMEOUT: Duration = Duration::from_secs(30);
const IMPORT_TIMEOUT: Duration = Duration::from_mins(3);

/// A running container of a node.
#[derive(Debug, Clone)]
pub struct Container {
    /// Id in containerd.
    pub id: String,
    /// Name of its pod.
    pub pod: String,
    /// Name in the pod.
    pub name: String,
    /// Main process, in the PID namespace of the node.
    pub pid: u32,
}

impl Node {
    /// Starts containerd and waits until it is ready.
    pub(crate) async fn start_containerd(&self, daemons: &mut Vec<Daemon>) -> Result<()> {
        let network = serde_json::json!({
            "cniVersion": "1.0.0", "name": "harness",
            "plugins": [
                {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "ipam": {
                    "type": "host-local", "ranges": [[{"subnet": pod_range(self.number())}]],
                    "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "/run/cni-addresses"}},
            ],
        });
        let networks = self.directory().join("cni");
        fs::create_dir_all(&networks).with_context(|| format!("cannot make {}", networks.display()))?;
        self.write("cni/10-harness.conflist", &network.to_string())?;
        let runc = self
            .exec(&["sh", "-c", "command -v runc"])
            .await
            .context("runc is not installed")?;
        let config = format!(
            r#"version = 3
root = "{root}"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "{snapshotter}"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{PAUSE_IMAGE}"
  [plugins.'io.containerd.cri.v1.images'.registry]
    config_path = "{registries}"
[plugins.'io.containerd.cri.v1.runtime']
  # A machine may lack what lowering the scores takes (CAP_SYS_RESOURCE).
  restrict_oom_score_adj = true
  disable_apparmor = true
  enable_unprivileged_ports = false
  enable_unprivileged_icmp = false
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        SystemdCgroup = false
        BinaryName = "{runc}"
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{plugins}"]
    conf_dir = "{networks}"
"#,
            root = self.directory().join("containerd").display(),
            registries = self.registries().display(),
            snapshotter = snapshotter(self.directory())?,
            runc = runc.trim(),
            plugins = self.run_directory().join("cni").display(),
            networks = networks.display(),
        );
        let config = self.write("containerd.toml", &config)?;
        let mut command = self.command("containerd");
        command.arg("--config").arg(config);
        daemons.push(Daemon::start("containerd", self.logs(), &mut command)?);
        wait_for("containerd's answer", CONTAINERD_TIMEOUT, async || {
            self.ctr(&["version"]).await
        })
        .await?;
        Ok(())
    }

    /// Returns the registry configuration directory (`config_path` of containerd).
    fn registries(&self) -> PathBuf {
        self.directory().join("registries")
    }

    /// Configures containerd to pull images of `registry` from a mirror such as `http://127.0.0.1:5050`.
    pub fn mirror(&self, registry: &str, address: &str) -> Result<()> {
        let folder = self.registries().join(registry);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let hosts = format!("[host.\"{address}\"]\n  capabilities = [\"pull\", \"resolve\"]\n");
        let path = folder.join("hosts.toml");
        fs::write(&path, hosts).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Imports an image archive into containerd under the names in the archive.
    pub async fn import_image(&self, archive: &Path) -> Result<()> {
        let archive = archive.to_str().context("the path of an image is not UTF-8")?;
        self.exec_within(
            IMPORT_TIMEOUT,
            &[
                "ctr",
                "-a",
                CONTAINERD_SOCKET,
                "-n",
                "k8s.io",
                "images",
                "import",
                archive,
            ],
        )
        .await
        .with_context(|| format!("cannot import {archive}"))?;
        Ok(())
    }

    /// Runs `ctr` in containerd's namespace of Kubernetes.
    async fn ctr(&self, words: &[&str]) -> Result<String> {
        let mut all = vec!["ctr", "-a", CONTAINERD_SOCKET, "-n", "k8s.io"];
        all.extend(words);
        self.exec(&all).await
    }

    /// Returns the running containers with this name in pods of a namespace.
    pub async fn containers(&self, namespace: &str, name: &str) -> Result<Vec<Container>> {
        let filter = format!(
            "labels.\"io.kubernetes.pod.namespace\"=={namespace},labels.\"io.kubernetes.container.name\"=={name}"
        );
        let ids = self.ctr(&["containers", "list", "-q", &filter]).await?;
        let tasks = self.ctr(&["tasks", "list"]).await?;
        let mut containers = Vec::new();
        for id in ids.split_whitespace() {
            // TASK PID STATUS
            let Some(task) = tasks.lines().find(|line| line.split_whitespace().next() == Some(id)) else {
                continue;
            };
            let mut fields = task.split_whitespace().skip(1);
            let pid = fields
                .next()
                .and_then(|pid| pid.parse().ok())
                .context("ctr printed a task without its process")?;
            if fields.next() != Some("RUNNING") {
                continue;
            }
            let info: serde_json::Value = serde_json::from_str(&self.ctr(&["containers", "info", id]).await?)
                .with_context(|| format!("ctr's description of container {id} is not JSON"))?;
            let pod = info["Labels"]["io.kubernetes.pod.name"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            containers.push(Container {
                id: id.to_owned(),
                pod,
                name: name.to_owned(),
                pid,
            });
        }
        Ok(containers)
    }

    /// Sends a signal (`SIGKILL`, `SIGSTOP` …) to the main process of a container.
    pub async fn signal(&self, container: &Container, signal: &str) -> Result<()> {
        self.ctr(&["tasks", "kill", "--signal", signal, &container.id])
            .await
            .map(drop)
    }

    /// Kills the containers with this name. Fails if there are none.
    pub async fn kill_container(&self, namespace: &str, name: &str) -> Result<()> {
        let containers = self.containers(namespace, name).await?;
        ensure!(
            !containers.is_empty(),
            "no container {name} of namespace {namespace} runs on {}",
            self.name()
        );
        for container in containers {
            self.signal(&container, "SIGKILL").await?;
        }
        Ok(())
    }
}

/// Selects containerd's snapshotter: overlayfs, unless the directory itself is on overlayfs, as in a container.
fn snapshotter(directory: &Path) -> Result<&'static str> {
    /// OVERLAYFS_SUPER_MAGIC of linux/magic.h.
    const OVERLAY: u64 = 0x794c_7630;
    let file_system =
        rustix::fs::statfs(directory).with_context(|| format!("cannot look at {}", directory.display()))?;
    let overlay = u64::try_from(file_system.f_type).is_ok_and(|kind| kind == OVERLAY);
    Ok(if overlay { "native" } else { "overlayfs" })
}
