// SPDX-License-Identifier: Apache-2.0
//! A cluster with one of the drivers, and the processes of that driver.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use harness::{CloudConfig, Cluster, ClusterConfig, Container, Progress, SimulatorConfig};
use rustix::process::Pid;
use serde_json::json;
use suites::cluster::{DRIVER, DRIVER_CONTAINER, NAMESPACE, USERS, World};
use suites::go_manifests as go;
use suites::simulator::REAL_LATENCIES;

use crate::Kind;
use crate::measure::Roles;
use crate::process::{Memory, Processor, memory, processor_time, processor_time_of_threads};
use crate::run::{MINUTE, REST};

/// Name of the StorageClass in both clusters.
pub(super) const CLASS: &str = "bench";

/// The driver under measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DriverKind {
    /// Our driver, installed by the operator.
    Ours,
    /// The Go driver, installed from its own manifests.
    Go,
}

impl DriverKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ours => "our driver",
            Self::Go => "the Go driver",
        }
    }

    /// Returns the namespace and the name of the driver's containers.
    const fn containers(self) -> (&'static str, &'static str) {
        match self {
            Self::Ours => (NAMESPACE, DRIVER_CONTAINER),
            Self::Go => (go::NAMESPACE, "cinder-csi-plugin"),
        }
    }
}

/// Starts a cluster of two nodes on a cloud, and installs a driver in it as documented.
pub(super) async fn start(kind: Kind, who: DriverKind) -> Result<World> {
    let progress = Progress::loud();
    let world = if kind == Kind::Real {
        World::bare_on_real_services(progress).await?
    } else {
        let latency = (kind == Kind::Simulated).then_some(["--latency", REAL_LATENCIES]);
        let args = latency.into_iter().flatten().map(str::to_owned).collect();
        let config = ClusterConfig {
            cloud: CloudConfig::Simulator(SimulatorConfig { args }),
            progress,
            ..ClusterConfig::with_nodes(2)
        };
        World::bare(Cluster::start(config).await?)
    };
    let world = match who {
        DriverKind::Ours => world.with_product().await?,
        DriverKind::Go => {
            go::install(&world.cluster, &go::cloud_conf(&world)?).await?;
            world
        }
    };
    // Bind immediately, and in the zone of the first node, to exclude the scheduler from the measurement.
    let zone = json!([{"key": format!("topology.{DRIVER}/zone"), "values": [world.cluster.first_node()?.zone()]}]);
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": USERS}},
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS}, "provisioner": DRIVER,
            "volumeBindingMode": "Immediate", "allowedTopologies": [{"matchLabelExpressions": zone}],
            "parameters": {"type": "fast", "csi.storage.k8s.io/fstype": "ext4"}},
    ]});
    world.cluster.apply(&objects.to_string()).await?;
    Ok(world)
}

/// The main processes of the driver's containers, with their ids in the PID namespace of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Processes(Roles<Vec<Pid>>);

impl Processes {
    /// Finds the driver's processes in a cluster.
    pub(super) async fn find(world: &World, who: DriverKind) -> Result<Self> {
        let (namespace, name) = who.containers();
        let mut processes = Roles::<Vec<Pid>>::default();
        for node in world.cluster.nodes() {
            for container in node.containers(namespace, name).await? {
                let role = if container.pod.contains("controller") {
                    &mut processes.controller
                } else {
                    &mut processes.node
                };
                role.push(on_this_machine(&container)?);
            }
        }
        ensure!(
            !processes.controller.is_empty() && !processes.node.is_empty(),
            "{} has the processes {processes:?}",
            who.name()
        );
        for pids in [&mut processes.controller, &mut processes.node] {
            pids.sort_by_key(|pid| pid.as_raw_nonzero());
        }
        Ok(Self(processes))
    }

    /// Returns the number of processes per role.
    pub(super) const fn counts(&self) -> Roles<usize> {
        Roles {
            controller: self.0.controller.len(),
            node: self.0.node.len(),
        }
    }

    /// Returns the memory of the largest process per role.
    pub(super) fn memory(&self) -> Result<Roles<Memory>> {
        let largest = |pids: &[Pid]| -> Result<Memory> {
            let all = pids.iter().map(|pid| memory(*pid)).collect::<Result<Vec<_>>>()?;
            let largest = all.into_iter().max_by_key(|memory| memory.now);
            largest.context("a role without a process")
        };
        Ok(Roles {
            controller: largest(&self.0.controller)?,
            node: largest(&self.0.node)?,
        })
    }

    /// Returns the total processor time per role.
    pub(super) fn processor(&self) -> Result<Roles<Processor>> {
        let sum = |pids: &[Pid]| -> Result<Processor> {
            let mut sum = Processor::default();
            for pid in pids {
                let one = processor_time(*pid)?;
                sum.own += one.own;
                sum.programs += one.programs;
            }
            Ok(sum)
        };
        Ok(Roles {
            controller: sum(&self.0.controller)?,
            node: sum(&self.0.node)?,
        })
    }

    /// Returns the processor time per role for an idle minute, extrapolated from a shorter observation.
    pub(super) async fn minute(&self, watched: Duration) -> Result<Option<Roles<Duration>>> {
        if watched.is_zero() {
            return Ok(None);
        }
        let now = || -> Result<Roles<Duration>> {
            let sum = |pids: &[Pid]| {
                pids.iter()
                    .map(|pid| processor_time_of_threads(*pid))
                    .sum::<Result<_>>()
            };
            Ok(Roles {
                controller: sum(&self.0.controller)?,
                node: sum(&self.0.node)?,
            })
        };
        tokio::time::sleep(REST).await;
        let (since, before) = (Instant::now(), now()?);
        tokio::time::sleep(watched).await;
        let after = now()?;
        let share = MINUTE.as_secs_f64() / since.elapsed().as_secs_f64();
        Ok(Some(Roles {
            controller: after.controller.saturating_sub(before.controller).mul_f64(share),
            node: after.node.saturating_sub(before.node).mul_f64(share),
        }))
    }
}

/// Finds the main process of a container on this machine. The id in the node's PID namespace differs; the cgroup
/// contains the container id.
fn on_this_machine(container: &Container) -> Result<Pid> {
    let inner = container.pid.to_string();
    for entry in fs::read_dir("/proc").context("cannot list /proc")? {
        let path = entry.context("cannot list /proc")?.path();
        let Some(pid) = path.file_name().and_then(|name| name.to_str()?.parse().ok()) else {
            continue;
        };
        // Processes may exit during the scan.
        let (Ok(groups), Ok(status)) = (
            fs::read_to_string(path.join("cgroup")),
            fs::read_to_string(path.join("status")),
        ) else {
            continue;
        };
        let mut ids = status.lines().filter_map(|line| line.strip_prefix("NSpid:"));
        let is_first = ids.any(|ids| ids.split_whitespace().any(|id| id == inner));
        if groups.contains(&container.id) && is_first {
            return Pid::from_raw(pid).context("a process without a number");
        }
    }
    bail!(
        "no process of container {} of {} was found",
        container.name,
        container.pod
    )
}
