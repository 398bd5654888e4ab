// SPDX-License-Identifier: Apache-2.0
//! A cluster: nodes, control plane and simulator.

mod containers;
pub(crate) mod control_plane;
mod daemon;
mod network;
mod node;
pub(crate) mod pki;

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;

pub use containers::Container;
pub(crate) use containers::PAUSE_IMAGE;
pub(crate) use daemon::Daemon;
use network::METADATA_ADDRESS;
pub use node::Node;
use node::Site;

use crate::forward::{self, Forward};
use crate::run::{DetachedRun, Run, cache_directory, ensure_seen_by_nodes};
use crate::simulator::{self, Simulator, SimulatorConfig};
use crate::{Command, Image, Progress, Tools, images, programs, wait_for};
use pki::Pki;

const READY_TIMEOUT: Duration = Duration::from_mins(1);
/// The directory on a node that contains the links to the devices of its server.
const BY_ID: &str = "/dev/disk/by-id";

/// Configuration of a node.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Name in Kubernetes.
    pub name: String,
    /// Id of its server in OpenStack.
    pub server_id: String,
    /// Availability zone.
    pub zone: String,
    /// Directory on this machine with the links to the devices of a real server. The simulator creates the links on the
    /// node itself.
    pub by_id: Option<PathBuf>,
}

/// The OpenStack whose servers are the nodes of a cluster.
#[derive(Debug, Clone)]
pub enum CloudConfig {
    /// No cloud, for tests that need only Kubernetes.
    None,
    /// The simulator, started with the cluster.
    Simulator(SimulatorConfig),
    /// Real services on this machine, which another program starts and stops. The cluster runs the nodes' metadata
    /// services. The caller connects the cluster with the services through [`Cluster::listen`].
    Real,
}

/// Configuration of a cluster.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// Nodes; the first one also runs the control plane and the simulator.
    pub nodes: Vec<NodeConfig>,
    pub cloud: CloudConfig,
    /// Additional arguments of the API server.
    pub api_server_args: Vec<String>,
    /// Additional arguments of the controller manager.
    pub controller_manager_args: Vec<String>,
    /// Receives messages about the progress.
    pub progress: Progress,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self::with_nodes(1)
    }
}

impl ClusterConfig {
    /// Returns a configuration with `count` nodes named `node1` and so on, in zone `nova`, and the default simulator.
    pub fn with_nodes(count: u8) -> Self {
        let node = |number| NodeConfig {
            name: format!("node{number}"),
            server_id: uuid::Uuid::new_v4().to_string(),
            zone: "nova".to_owned(),
            by_id: None,
        };
        Self {
            nodes: (1..=count).map(node).collect(),
            cloud: CloudConfig::Simulator(SimulatorConfig::default()),
            api_server_args: Vec::new(),
            controller_manager_args: Vec::new(),
            progress: Progress::default(),
        }
    }
}

/// A running cluster. Dropping it removes it; [`Cluster::stop`] does the same and reports remains.
#[derive(Debug)]
pub struct Cluster {
    // The order matters. Connections close before their targets end, and the run, which removes everything, is dropped
    // before the daemons are reaped.
    forwards: Vec<Forward>,
    simulator: Option<Simulator>,
    run: Option<Run>,
    daemons: Vec<Daemon>,
    /// Programs with a shorter lifetime than the cluster: metadata services by node, simulators of further clouds,
    /// Prometheus.
    services: Mutex<BTreeMap<String, Daemon>>,
    nodes: Vec<Node>,
    tools: Tools,
    progress: Progress,
}

impl Cluster {
    /// Starts a cluster and waits until its nodes are Ready. If this fails or is cancelled, all started processes are
    /// removed; the error names the logs.
    pub async fn start(config: ClusterConfig) -> Result<Self> {
        ensure!(!config.nodes.is_empty(), "a cluster needs a node");
        let tools = Tools::locate().await?;
        let run = Run::begin()?;
        let logs = run.logs().to_owned();
        let mut cluster = Self {
            forwards: Vec::new(),
            simulator: None,
            run: Some(run),
            daemons: Vec::new(),
            services: Mutex::default(),
            nodes: Vec::new(),
            tools,
            progress: config.progress.clone(),
        };
        cluster
            .bring_up(&config)
            .await
            .with_context(|| format!("the cluster did not start; logs: {}", logs.display()))?;
        Ok(cluster)
    }

    async fn bring_up(&mut self, config: &ClusterConfig) -> Result<()> {
        let directory = self.directory()?.to_owned();
        self.link_programs(&directory)?;
        let init = images::compiled_init(&cache_directory()).await?;
        self.progress.say("making namespaces");
        self.make_nodes(config, &directory, &init).await?;

        let names: Vec<_> = config.nodes.iter().map(|node| node.name.clone()).collect();
        let addresses = [Ipv4Addr::LOCALHOST, *network::API_SERVER.ip(), network::SERVICE_ADDRESS];
        let pki = Pki::make(&directory.join("pki"), &addresses, &names)?;
        let first = self.nodes.first().context("a cluster needs a node")?;
        pki.write_kubeconfig(
            &first.admin_kubeconfig(),
            &format!("https://{}", network::API_SERVER),
            None,
        )?;
        self.progress.say("starting etcd and the API server");
        control_plane::start(first, &pki, config, &mut self.daemons).await?;

        self.progress.say("starting containerd and kubelets");
        for node in &self.nodes {
            node.start_containerd(&mut self.daemons).await?;
            node.start_kubelet(&pki, &mut self.daemons).await?;
        }
        let basics = [images::pause(&init), images::busybox(images::BUSYBOX_IMAGE).await?];
        for image in &basics {
            self.import(image).await?;
        }
        if let CloudConfig::Simulator(simulator) = &config.cloud {
            self.progress.say("starting the OpenStack simulator");
            let first = self.nodes.first().context("a cluster needs a node")?;
            let place = ("openstack-sim", simulator::PORT);
            let (simulator, daemon) = Simulator::start(simulator, place, first, &self.nodes, &self.progress).await?;
            self.simulator = Some(simulator);
            self.daemons.push(daemon);
        }
        if !matches!(config.cloud, CloudConfig::None) {
            for node in &config.nodes {
                self.start_metadata_service(node).await?;
            }
        }
        self.wait_until_ready().await
    }

    fn link_programs(&self, directory: &Path) -> Result<()> {
        for folder in ["bin", "cni"] {
            fs::create_dir(directory.join(folder)).with_context(|| format!("cannot make {folder} of the run"))?;
        }
        for (name, path) in self.tools.iter() {
            ensure_seen_by_nodes(path).context("set XDG_CACHE_HOME to a directory elsewhere")?;
            let link = match name.strip_prefix("cni-") {
                Some(plugin) => directory.join("cni").join(plugin),
                None => directory.join("bin").join(name),
            };
            symlink(path, &link).with_context(|| format!("cannot make {}", link.display()))?;
        }
        Ok(())
    }

    async fn make_nodes(&mut self, config: &ClusterConfig, directory: &Path, init: &Path) -> Result<()> {
        let run = self.run.as_ref().context("the cluster has ended")?;
        let (id, logs) = (run.id(), run.logs().to_owned());
        let site = Site {
            id: &id,
            directory,
            logs: &logs,
            init,
        };
        for (number, node) in (1..).zip(&config.nodes) {
            let first = self.nodes.first().map(Node::pid);
            let made = Node::make(number, node, &site, first, &mut self.daemons).await?;
            match first {
                None => network::join_first(made.pid()).await?,
                Some(first) => network::join(number, made.pid(), first).await?,
            }
            show_devices(&made, node).await?;
            self.nodes.push(made);
        }
        let all: Vec<_> = self.nodes.iter().map(|node| (node.number(), node.pid())).collect();
        network::add_pod_routes(&all).await
    }

    async fn wait_until_ready(&mut self) -> Result<()> {
        let Self { nodes, daemons, .. } = self;
        let first = nodes.first().context("a cluster needs a node")?;
        let ready = wait_for("all nodes Ready", READY_TIMEOUT, async || {
            let condition = "{range .items[*]}{.status.conditions[?(@.type==\"Ready\")].status} {end}";
            let list = first
                .kubectl()
                .args(["get", "nodes", "-o", &format!("jsonpath={condition}")]);
            let states = list.timeout(Duration::from_secs(5)).output().await?;
            let ready = states.split_whitespace().filter(|state| *state == "True").count();
            ensure!(ready == nodes.len(), "{ready} of {} nodes are Ready", nodes.len());
            // The API server rejects pods until the controller manager has created this account.
            first
                .kubectl()
                .args(["get", "serviceaccount", "default"])
                .timeout(Duration::from_secs(5))
                .output()
                .await
        })
        .await;
        for daemon in daemons {
            daemon.check()?;
        }
        ready?;
        self.progress.say(format!(
            "{} Ready",
            if self.nodes.len() == 1 {
                "the node is"
            } else {
                "the nodes are"
            }
        ));
        Ok(())
    }

    /// Returns the nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the first node, which also runs the control plane and the simulator.
    pub fn first_node(&self) -> Result<&Node> {
        self.nodes.first().context("a cluster needs a node")
    }

    /// Returns a node by name.
    pub fn node(&self, name: &str) -> Result<&Node> {
        self.nodes
            .iter()
            .find(|node| node.name() == name)
            .with_context(|| format!("there is no node {name}"))
    }

    /// Returns the simulator. Fails if the cluster was started without one.
    pub fn simulator(&self) -> Result<&Simulator> {
        self.simulator
            .as_ref()
            .context("this cluster was started without a simulator")
    }

    /// Starts the simulator of a further cloud without servers. `number` is its position after the cluster's own
    /// simulator.
    pub async fn start_simulator(&self, name: &str, number: u16, config: &SimulatorConfig) -> Result<Simulator> {
        let place = (name, simulator::PORT + number);
        let (simulator, daemon) = Simulator::start(config, place, self.first_node()?, &[], &self.progress).await?;
        self.keep_service(name, daemon);
        Ok(simulator)
    }

    /// Stops the simulator of a further cloud.
    pub fn end_simulator(&self, name: &str) -> Result<()> {
        self.end_service(name)
    }

    /// Adds a program with a shorter lifetime than the cluster.
    pub(crate) fn keep_service(&self, name: &str, daemon: Daemon) {
        let mut services = self.services.lock();
        services.insert(name.to_owned(), daemon);
    }

    /// Stops one of these programs.
    pub(crate) fn end_service(&self, name: &str) -> Result<()> {
        let mut services = self.services.lock();
        services
            .remove(name)
            .with_context(|| format!("{name} does not run beside the cluster"))?
            .end()
    }

    /// Replaces the server of a node: the metadata service reports the new server, and its devices appear. Programs on
    /// the node notice at their next start, and Kubernetes when they report it.
    pub async fn replace_server(&self, config: &NodeConfig) -> Result<()> {
        let node = self.node(&config.name)?;
        if config.by_id.is_some() {
            node.exec(&["umount", "--lazy", BY_ID]).await?;
            show_devices(node, config).await?;
        }
        self.start_metadata_service(config).await
    }

    /// Starts or replaces the metadata service of a node's server.
    async fn start_metadata_service(&self, config: &NodeConfig) -> Result<()> {
        let node = self.node(&config.name)?;
        let program = programs::simulator(&self.progress).await?;
        ensure_seen_by_nodes(&program).context("set CARGO_TARGET_DIR to a directory elsewhere")?;
        let mut services = self.services.lock();
        if let Some(before) = services.remove(node.name()) {
            before.end()?;
        }
        let listen = SocketAddrV4::new(METADATA_ADDRESS, 80).to_string();
        let mut command = node.command(&program);
        command.args(["metadata", "--listen", &listen, "--instance-id", &config.server_id]);
        command.args(["--zone", &config.zone, "--name", node.name()]);
        let service = Daemon::start("metadata", node.logs(), &mut command)?;
        services.insert(node.name().to_owned(), service);
        Ok(())
    }

    /// Returns the programs of the cluster.
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Returns the receiver of progress messages.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Returns the directory of all logs. Container logs are in it after [`Cluster::collect_logs`].
    pub fn logs(&self) -> Result<&Path> {
        Ok(self.run.as_ref().context("the cluster has ended")?.logs())
    }

    /// Returns the directory of the running cluster, which is deleted with it.
    pub fn directory(&self) -> Result<&Path> {
        Ok(self.run.as_ref().context("the cluster has ended")?.directory())
    }

    /// Returns the administrator's kubeconfig for use in the cluster's network (`nsenter --net`).
    pub fn kubeconfig(&self) -> Result<PathBuf> {
        Ok(self.first_node()?.admin_kubeconfig())
    }

    /// Returns instructions for the use of the cluster from a terminal.
    pub fn how_to_reach(&self) -> Result<String> {
        let pid = self.first_node()?.pid();
        let mut lines = vec![
            format!("export KUBECONFIG={}", self.kubeconfig()?.display()),
            format!(
                "alias kubectl='nsenter --target {pid} --net -- {}'",
                self.tools.path("kubectl")?.display()
            ),
        ];
        for node in &self.nodes {
            let (name, pid) = (node.name(), node.pid());
            lines.push(format!(
                "# a shell on {name}: nsenter --target {pid} --net --mount --pid"
            ));
        }
        lines.push(format!("# logs: {}", self.logs()?.display()));
        lines.push("# to remove it: cargo run -p harness -- down".to_owned());
        Ok(lines.join("\n"))
    }

    /// Returns a command that runs `program` in the cluster's network namespace, for example a client of its services.
    pub fn command_in_network(&self, program: &str) -> Result<Command> {
        let pid = self.first_node()?.pid().to_string();
        Ok(Command::new("nsenter")
            .args(["--target", &pid, "--net", "--", program])
            .env("KUBECONFIG", self.kubeconfig()?))
    }

    /// Forwards a port of this machine's loopback interface to an address in the cluster's network, until the cluster
    /// ends.
    pub async fn forward(&mut self, address: SocketAddr) -> Result<SocketAddr> {
        let forward = Forward::start(self.first_node()?.pid(), address).await?;
        let local = forward.local();
        self.forwards.push(forward);
        Ok(local)
    }

    /// Listens on the loopback interface of the first node, where the API server runs, for services that the API server
    /// calls.
    pub async fn listen_beside_the_api_server(&self) -> Result<tokio::net::TcpListener> {
        let listener =
            forward::listen_inside(self.first_node()?.pid(), SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).await?;
        tokio::net::TcpListener::from_std(listener).context("cannot take the listener over")
    }

    /// Listens on a port of the first node's address, which is reachable from all nodes and pods.
    pub async fn listen(&self, port: u16) -> Result<std::net::TcpListener> {
        let first = self.first_node()?;
        forward::listen_inside(first.pid(), SocketAddrV4::new(first.address(), port)).await
    }

    /// Runs kubectl as the administrator and returns its output. The error contains its standard error.
    pub async fn kubectl(&self, words: &[&str]) -> Result<String> {
        self.first_node()?.kubectl().args(words).output().await
    }

    /// Like [`Cluster::kubectl`], with a timeout.
    pub async fn kubectl_within(&self, timeout: Duration, words: &[&str]) -> Result<String> {
        self.first_node()?.kubectl().args(words).timeout(timeout).output().await
    }

    /// Runs `kubectl get -o json` with these arguments.
    pub async fn get(&self, words: &[&str]) -> Result<serde_json::Value> {
        let mut all = vec!["get", "-o", "json"];
        all.extend(words);
        serde_json::from_str(&self.kubectl(&all).await?).context("kubectl printed something that is not JSON")
    }

    /// Applies manifests (YAML or JSON, several documents allowed).
    pub async fn apply(&self, manifests: &str) -> Result<String> {
        self.first_node()?
            .kubectl()
            .args(["apply", "-f", "-"])
            .stdin(manifests)
            .output()
            .await
    }

    /// Imports an image on every node.
    pub async fn import(&self, image: &Image) -> Result<()> {
        let archive = image.pack(&cache_directory().join("images")).await?;
        for node in &self.nodes {
            node.import_image(&archive).await?;
        }
        Ok(())
    }

    /// Copies the container logs, events and all objects of the product to the log directory, and returns the
    /// directory.
    pub async fn collect_logs(&self) -> Result<PathBuf> {
        let logs = self.logs()?.to_owned();
        for node in &self.nodes {
            let target = logs.join(node.name()).join("pods");
            // Pods may start or end during the copy, so a partial copy is not an error.
            let copied = Command::new("cp")
                .args(["-rL", "--no-preserve=mode"])
                .arg(node.pod_logs())
                .arg(&target)
                .output()
                .await;
            if let Err(error) = copied {
                self.progress
                    .say(format!("some logs of {} could not be copied: {error:#}", node.name()));
            }
        }
        for (file, words) in [
            ("events.txt", &["get", "events", "-A", "--sort-by=.lastTimestamp"][..]),
            (
                "objects.yaml",
                &[
                    "get",
                    "pods,pvc,pv,volumeattachments,csinodes,csidrivers,deployments,daemonsets",
                    "-A",
                    "-o",
                    "yaml",
                ],
            ),
            ("product.yaml", &["get", "cindercsidrivers", "-o", "yaml"]),
        ] {
            let text = self.kubectl(words).await.unwrap_or_else(|error| format!("{error:#}\n"));
            fs::write(logs.join(file), text).with_context(|| format!("cannot write {file}"))?;
        }
        Ok(logs)
    }

    /// Removes the cluster. Fails if a process, mount, loop device, cgroup or file of it remains.
    pub async fn stop(mut self) -> Result<()> {
        let run = self.run.take().context("the cluster has ended")?;
        self.forwards.clear();
        let ended = tokio::task::spawn_blocking(move || run.end())
            .await
            .context("the removal was cancelled")?;
        self.reap();
        ended
    }

    /// Reaps the daemons whose namespaces have ended.
    fn reap(&mut self) {
        let services = self.services();
        self.daemons.drain(..).chain(services).for_each(Daemon::reap);
    }

    fn services(&mut self) -> impl Iterator<Item = Daemon> + use<> {
        let services = self.services.get_mut();
        std::mem::take(services).into_values()
    }

    /// Detaches the cluster from this process, so that it continues to run. `harness down` removes it.
    pub fn detach_run(mut self) -> Result<DetachedRun> {
        let detached = self.run.take().context("the cluster has ended")?.detach_run();
        // The daemons continue to run, so they must not be reaped.
        self.daemons.drain(..).for_each(std::mem::forget);
        self.services().for_each(std::mem::forget);
        detached
    }
}

/// Shows the devices of a real server on its node.
async fn show_devices(node: &Node, config: &NodeConfig) -> Result<()> {
    let Some(by_id) = &config.by_id else {
        return Ok(());
    };
    ensure_seen_by_nodes(by_id).context("set XDG_CACHE_HOME to a directory elsewhere")?;
    let place = by_id.to_str().context("the path of a server's devices is not UTF-8")?;
    node.exec(&["mount", "--bind", place, BY_ID]).await.map(drop)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.forwards.clear();
        drop(self.run.take());
        self.reap();
    }
}
