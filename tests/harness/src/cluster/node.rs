// SPDX-License-Identifier: Apache-2.0
//! A node: its namespaces and its kubelet.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::containers::CONTAINERD_SOCKET;
use super::daemon::Daemon;
use super::network::{API_SERVER, node_address};
use super::pki::Pki;
use super::{NodeConfig, control_plane};
use crate::{Command, wait_for};

const NODE_SCRIPT: &str = include_str!("../scripts/node.sh");
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const NAMESPACES_TIMEOUT: Duration = Duration::from_secs(15);
/// The feature gate of the setting that shortens the pauses between restarts.
const RESTART_GATE: &str = "KubeletCrashLoopBackOffMax";

/// A node of the cluster.
#[derive(Debug)]
pub struct Node {
    name: String,
    number: u8,
    server_id: String,
    zone: String,
    pid: u32,
    directory: PathBuf,
    run_directory: PathBuf,
    logs: PathBuf,
    cgroup: String,
}

/// Parameters that all nodes of a run share.
#[derive(Debug)]
pub(crate) struct Site<'a> {
    /// Name of the run.
    pub(crate) id: &'a str,
    /// Directory of the run.
    pub(crate) directory: &'a Path,
    /// Directory of its logs.
    pub(crate) logs: &'a Path,
    /// The init program of the namespaces.
    pub(crate) init: &'a Path,
}

impl Node {
    /// Creates the namespaces. The PID namespaces of the other nodes are children of the first node's, whose init
    /// process is `first_pid`, so they end with it.
    pub(crate) async fn make(
        number: u8,
        config: &NodeConfig,
        site: &Site<'_>,
        first_pid: Option<u32>,
        daemons: &mut Vec<Daemon>,
    ) -> Result<Self> {
        let directory = site.directory.join(&config.name);
        let logs = site.logs.join(&config.name);
        fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
        let mut command = match first_pid {
            None => std::process::Command::new("unshare"),
            Some(pid) => {
                let mut command = std::process::Command::new("nsenter");
                command.args(["--target", &pid.to_string(), "--pid", "--", "unshare"]);
                command
            }
        };
        command.args([
            "--pid",
            "--fork",
            "--kill-child=KILL",
            "--net",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            NODE_SCRIPT,
            "node",
        ]);
        command.arg(&directory).arg(site.init).env("PATH", SYSTEM_PATH);
        let mut holder = Daemon::start("namespaces", &logs, &mut command)?;
        let pid_file = directory.join("init");
        let pid = wait_for("the namespaces of a node", NAMESPACES_TIMEOUT, async || {
            let text = fs::read_to_string(&pid_file).context("its first process has not reported")?;
            text.split(' ')
                .next()
                .and_then(|pid| pid.parse::<u32>().ok())
                .context("its report is not a process id")
        })
        .await;
        let ended = holder.check();
        daemons.push(holder);
        ended?;
        Ok(Self {
            name: config.name.clone(),
            number,
            server_id: config.server_id.clone(),
            zone: config.zone.clone(),
            pid: pid?,
            cgroup: format!("{}-{}", site.id, config.name),
            directory,
            run_directory: site.directory.to_owned(),
            logs,
        })
    }

    /// Returns the name in Kubernetes.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the id of its server in OpenStack, which is its CSI node id.
    pub fn server_id(&self) -> &str {
        &self.server_id
    }

    /// Returns the availability zone.
    pub fn zone(&self) -> &str {
        &self.zone
    }

    /// Returns the address in the cluster's network.
    pub fn address(&self) -> Ipv4Addr {
        node_address(self.number)
    }

    /// Returns the init process of its namespaces, as an id of this machine.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the log directory.
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// Returns the `/dev/disk/by-id` of this node as a path on this machine.
    pub fn by_id_directory(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root/dev/disk/by-id", self.pid))
    }

    /// Returns the kubelet's directory of this node as a path on this machine, without the mounts in it.
    pub fn kubelet_directory(&self) -> PathBuf {
        self.directory.join("var/lib/kubelet")
    }

    pub(crate) fn number(&self) -> u8 {
        self.number
    }

    /// Returns the id of its init process in the PID namespace of the first node.
    pub(crate) fn inner_pid(&self) -> Result<u32> {
        let path = format!("/proc/{}/status", self.pid);
        let status = fs::read_to_string(&path).with_context(|| format!("{} is gone", self.name))?;
        let ids = status
            .lines()
            .find_map(|line| line.strip_prefix("NSpid:"))
            .with_context(|| format!("{path}: no NSpid"))?;
        // NSpid lists the ids on this machine, in the first node's namespace, and in the namespace of a further node
        // (1).
        let inner = ids.split_whitespace().nth(1).and_then(|id| id.parse().ok());
        inner.with_context(|| format!("{path}: NSpid is not a list of numbers"))
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn run_directory(&self) -> &Path {
        &self.run_directory
    }

    pub(crate) fn pod_logs(&self) -> PathBuf {
        self.directory.join("var/log/pods")
    }

    pub(crate) fn admin_kubeconfig(&self) -> PathBuf {
        self.run_directory.join("admin.kubeconfig")
    }

    /// Returns the path of a program of `Tools`.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.run_directory.join("bin").join(name)
    }

    pub(crate) fn kubectl(&self) -> Command {
        control_plane::kubectl(self)
    }

    fn search_path(&self) -> String {
        format!("{}:{SYSTEM_PATH}", self.run_directory.join("bin").display())
    }

    fn nsenter(&self) -> [String; 6] {
        [
            "--target".into(),
            self.pid.to_string(),
            "--net".into(),
            "--mount".into(),
            "--pid".into(),
            "--".into(),
        ]
    }

    /// Returns a command in the node's namespaces, for a program that runs as long as the cluster.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> std::process::Command {
        let mut command = std::process::Command::new("nsenter");
        command
            .args(self.nsenter())
            .arg("env")
            .arg(format!("PATH={}", self.search_path()))
            .arg(program);
        command
    }

    /// Runs a program in this node's namespaces, with its /dev/disk, /run and /var, and returns its output. The program
    /// is killed after `timeout`.
    pub async fn exec_within(&self, timeout: Duration, words: &[&str]) -> Result<String> {
        // nsenter is outside of the namespaces: a kill of nsenter alone would not stop the program.
        let limit = timeout.as_secs().max(1).to_string();
        Command::new("nsenter")
            .args(self.nsenter())
            .args([
                "env",
                &format!("PATH={}", self.search_path()),
                "timeout",
                "--kill-after=2",
                &limit,
            ])
            .known_as(&format!("{}:", self.name))
            .args(words)
            .timeout(timeout + Duration::from_secs(5))
            .output()
            .await
    }

    /// Runs [`Node::exec_within`] with a timeout of 30 s.
    pub async fn exec(&self, words: &[&str]) -> Result<String> {
        self.exec_within(Duration::from_secs(30), words).await
    }

    pub(crate) async fn start_kubelet(&self, pki: &Pki, daemons: &mut Vec<Daemon>) -> Result<()> {
        make_cgroups(&self.cgroup)?;
        // Kubernetes 1.32 to 1.34 reject the setting without this gate. Older versions ignore the setting and reject the
        // gate.
        let gates = self.exec(&["kubelet", "--help"]).await?;
        let gates = gates.contains(RESTART_GATE).then_some((RESTART_GATE, true));
        let config = serde_json::json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "failCgroupV1": false, "cgroupDriver": "cgroupfs", "cgroupRoot": format!("/{}", self.cgroup),
            "cgroupsPerQOS": true, "enforceNodeAllocatable": ["pods"],
            "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
            "failSwapOn": false, "oomScoreAdj": 0, "resolvConf": "", "clusterDomain": "cluster.local",
            "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
            "authorization": {"mode": "AlwaysAllow"},
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%", "nodefs.inodesFree": "0%"},
            "imageGCHighThresholdPercent": 100,
            // A volume is detached only after the node status no longer lists it as in use.
            "nodeStatusUpdateFrequency": "1s",
            "syncFrequency": "10s", "volumeStatsAggPeriod": "10s",
            // Tests kill the same container repeatedly and must not wait minutes for its next start.
            "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
            "featureGates": gates.into_iter().collect::<BTreeMap<_, _>>(),
        });
        let config = self.write("kubelet.yaml", &config.to_string())?;
        let kubeconfig = self.directory.join("kubelet.kubeconfig");
        pki.write_kubeconfig(&kubeconfig, &format!("https://{API_SERVER}"), Some(&self.name))?;
        let mut command = self.command("kubelet");
        command.arg("--config").arg(config).arg("--kubeconfig").arg(kubeconfig);
        command.args(["--root-dir", "/var/lib/kubelet", "--cert-dir", "/var/lib/kubelet/pki"]);
        command.args([
            "--hostname-override",
            &self.name,
            "--node-ip",
            &self.address().to_string(),
            "-v",
            "2",
        ]);
        daemons.push(Daemon::start("kubelet", &self.logs, &mut command)?);
        Ok(())
    }

    pub(super) fn write(&self, name: &str, content: &str) -> Result<PathBuf> {
        let path = self.directory.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// Creates the cgroup of a node's pods in every hierarchy of the machine.
fn make_cgroups(name: &str) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo")?;
    for line in mounts.lines() {
        let Some((left, right)) = line.split_once(" - ") else {
            continue;
        };
        let kind = right.split(' ').next().unwrap_or_default();
        if kind != "cgroup" && kind != "cgroup2" {
            continue;
        }
        let Some(hierarchy) = left.split(' ').nth(4).map(Path::new) else {
            continue;
        };
        let group = hierarchy.join(name);
        fs::create_dir_all(&group).with_context(|| format!("cannot make the cgroup {}", group.display()))?;
        // A new cpuset of cgroup v1 is empty and must be filled before use.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if kind == "cgroup" && group.join(file).exists() {
                let value = fs::read(hierarchy.join(file)).with_context(|| format!("cannot read {file}"))?;
                fs::write(group.join(file), value).with_context(|| format!("cannot set {file} of {name}"))?;
            }
        }
    }
    Ok(())
}
