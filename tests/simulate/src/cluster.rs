// SPDX-License-Identifier: Apache-2.0
//! What all callers share: the drivers, the sidecars' leaders, and what they know.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use csi_proto::csi::v1::VolumeCapability;
use csi_proto::csi::v1::controller_client::ControllerClient;
use csi_proto::csi::v1::group_controller_client::GroupControllerClient;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use openstack_sim::Sim;
use parking_lot::{Mutex, MutexGuard};
use tonic::{Code, Request, Response, Status};

use crate::backend::Backend;
use crate::judge::Judge;
use crate::ledger::Ledger;
use crate::machine::Violations;
use crate::network::Network;
use crate::node::{Node, Trace};
use crate::process::{Channel, Driver, within};
use crate::schedule::Schedule;
use crate::watched::Watched;

/// A client of the Controller service.
pub type Controller = ControllerClient<Channel>;
/// A client of the GroupController service.
pub type GroupController = GroupControllerClient<Channel>;

/// What came of a call: the answer, or the code and the message of a refusal.
pub type Answer<T> = Result<T, (Code, String)>;

/// GiB in bytes.
pub const GIB: i64 = 1 << 30;
/// The volume type whose volumes are encrypted.
pub const ENCRYPTED: &str = "encrypted";
/// A new leader holds its Lease no sooner than the old one's has run out.
const LEASE: Duration = Duration::from_secs(15);

/// The sidecars that call the Controller service. Each has a leader of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sidecar {
    /// external-provisioner
    Provisioner,
    /// external-attacher
    Attacher,
    /// external-resizer
    Resizer,
    /// external-snapshotter
    Snapshotter,
}

impl Sidecar {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Provisioner, Self::Attacher, Self::Resizer, Self::Snapshotter];
}

/// One cluster.
#[derive(Debug)]
pub struct Cluster {
    /// Steps and chance.
    pub schedule: Schedule,
    /// What callers know.
    pub ledger: Ledger,
    /// What must hold.
    pub judge: Judge,
    /// The cloud.
    pub sim: Arc<Sim>,
    /// The way to it.
    pub network: Network,
    /// Two controller processes, each with sidecars beside it.
    pub controllers: [Driver; 2],
    /// What volumes hold.
    pub backend: Backend,
    violations: Violations,
    /// By server, those that are gone among them.
    nodes: Mutex<BTreeMap<String, Node>>,
    leaders: [Watched<usize>; 4],
    /// How many pods have come, and the volume of the last one.
    pub pods: Watched<(u64, String)>,
    /// Set while all workloads are scaled to zero.
    pub scaled_down: Watched<bool>,
    /// Set when no new claims are made.
    pub closing: Watched<bool>,
}

impl Cluster {
    /// A cluster whose drivers do not run yet.
    pub fn new(schedule: Schedule, sim: Arc<Sim>, network: Network, controllers: [Driver; 2]) -> Self {
        let ledger = Ledger::default();
        let leaders = [0, 1, 0, 1].map(Watched::new);
        let backend = Backend::new(schedule.clone());
        Self {
            judge: Judge::new(sim.clone(), ledger.clone(), schedule.clone()),
            ledger,
            sim,
            network,
            controllers,
            backend,
            violations: Violations::observed_by(Arc::new(Trace(schedule.clone()))),
            nodes: Mutex::default(),
            schedule,
            leaders,
            pods: Watched::default(),
            scaled_down: Watched::default(),
            closing: Watched::new(false),
        }
    }

    /// Takes the lead from the one of this sidecar: what it was calling is left alone.
    pub fn elect(&self, sidecar: Sidecar) {
        let leader = &self.leaders[sidecar as usize];
        let next = 1 - leader.get();
        self.schedule
            .note(&format!("{sidecar:?} leads beside {}", self.controllers[next].name()));
        leader.change(|leader| *leader = next);
    }

    /// Makes a server a node.
    pub fn add_node(&self, server: &str) {
        let mut nodes = self.locked_nodes();
        let name = format!("node-{}", nodes.len() + 1);
        self.schedule.note(&format!("{name} is server {server}"));
        let (backend, violations) = (self.backend.clone(), self.violations.clone());
        let node = Node::new(name, server.to_owned(), backend, violations, self.schedule.clone());
        node.machine().set_faults(self.network.faults().machine);
        nodes.insert(server.to_owned(), node);
    }

    /// The node that a server is or was.
    pub fn node(&self, server: &str) -> Option<Node> {
        self.locked_nodes().get(server).cloned()
    }

    /// All nodes that are not gone.
    pub fn nodes(&self) -> Vec<Node> {
        let nodes = self.locked_nodes();
        nodes
            .values()
            .filter(|node| !node.condition().is_gone())
            .cloned()
            .collect()
    }

    /// Gives a node power, and its disks.
    pub fn power_on(&self, node: &Node) {
        node.power_on();
        self.backend.follow(&self.sim.state());
    }

    /// A node for a new pod, mostly one that is ready.
    pub fn pick_node(&self) -> Option<Node> {
        let mut nodes = self.nodes();
        if self.schedule.chance(900) {
            nodes.retain(|node| node.condition().is_ready());
        }
        let at = usize::try_from(self.schedule.below(nodes.len() as u64)).unwrap_or_default();
        nodes.get(at).cloned()
    }

    fn locked_nodes(&self) -> MutexGuard<'_, BTreeMap<String, Node>> {
        self.nodes.lock()
    }

    /// Whether the cluster is about to end.
    pub fn is_closing(&self) -> bool {
        self.closing.get()
    }

    /// Calls the Controller service beside the leader of a sidecar.
    pub async fn controller<M, T, F>(
        &self,
        sidecar: Sidecar,
        limit: Duration,
        message: M,
        call: impl FnOnce(Controller, Request<M>) -> F,
    ) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        self.led(sidecar, |driver| {
            within(limit, message, move |request| call(driver.controller(), request))
        })
        .await
    }

    /// The same of the GroupController service.
    pub async fn group_controller<M, T, F>(
        &self,
        limit: Duration,
        message: M,
        call: impl FnOnce(GroupController, Request<M>) -> F,
    ) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let call = |driver: Driver| within(limit, message, move |request| call(driver.group_controller(), request));
        self.led(Sidecar::Snapshotter, call).await
    }

    /// Calls, notes a refusal, and pauses as a work queue does, until `end` takes an answer for the end. `what` is its name in the trace.
    pub async fn repeat<T, R, F>(
        &self,
        what: &str,
        call: impl Fn() -> F,
        mut end: impl FnMut(Answer<T>) -> Option<R>,
    ) -> R
    where
        F: Future<Output = Result<T, Status>>,
    {
        let mut backoff = Backoff::new();
        loop {
            let answer = call()
                .await
                .map_err(|status| (status.code(), status.message().to_owned()));
            if let Err((code, message)) = &answer {
                self.schedule.note(&format!("{what}: {code:?}: {message}"));
            }
            if let Some(end) = end(answer) {
                return end;
            }
            backoff.pause(&self.schedule, what).await;
        }
    }

    async fn led<T, F>(&self, sidecar: Sidecar, call: impl FnOnce(Driver) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let leaders = &self.leaders[sidecar as usize];
        let leader = leaders.get();
        tokio::select! {
            biased;
            answer = call(self.controllers[leader].clone()) => return answer,
            () = leaders.wait_for(|now| *now != leader) => {}
        }
        self.schedule
            .event(LEASE, || format!("{sidecar:?} has a new leader"))
            .await;
        Err(Status::cancelled("the sidecar has lost its lead"))
    }
}

/// What a volume is used as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeMode {
    /// With a file system of this type.
    Filesystem(&'static str),
    /// As a raw device.
    Block,
}

impl Default for VolumeMode {
    fn default() -> Self {
        Self::Filesystem("ext4")
    }
}

impl VolumeMode {
    /// The capability of one writer.
    pub fn capability(self) -> VolumeCapability {
        let access_type = match self {
            Self::Filesystem(fs_type) => AccessType::Mount(MountVolume {
                fs_type: fs_type.into(),
                ..MountVolume::default()
            }),
            Self::Block => AccessType::Block(BlockVolume {}),
        };
        VolumeCapability {
            access_mode: Some(AccessMode {
                mode: Mode::SingleNodeMultiWriter.into(),
            }),
            access_type: Some(access_type),
        }
    }
}

/// The pauses of a work queue between tries: one second, doubled up to five minutes.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    /// Before the first failure.
    fn new() -> Self {
        Self {
            next: Duration::from_secs(1),
            longest: Duration::from_mins(5),
        }
    }

    /// The kubelet's: half a second, doubled up to two minutes and two seconds.
    pub fn of_kubelet() -> Self {
        Self {
            next: Duration::from_millis(500),
            longest: Duration::from_secs(122),
        }
    }

    /// Waits.
    pub async fn pause(&mut self, schedule: &Schedule, what: &str) {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        schedule.event(pause, || format!("{what} tries again")).await;
    }
}
