// SPDX-License-Identifier: Apache-2.0
//! State that all clients share: the drivers, the sidecars' leaders, and their records.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use csi_proto::csi::v1::VolumeCapability;
use csi_proto::csi::v1::controller_client::ControllerClient;
use csi_proto::csi::v1::group_controller_client::GroupControllerClient;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use openstack_sim::{BackupStatus, GroupStatus, Latencies, SnapshotStatus, VolumeStatus};
use parking_lot::{Mutex, MutexGuard};
use tonic::{Code, Request, Response, Status};

use crate::backend::Backend;
use crate::call::{Call, Sidecar};
use crate::clouds::{CloudName, Clouds};
use crate::judge::{Judge, StuckResource};
use crate::ledger::Ledger;
use crate::machine::Violations;
use crate::network::Network;
use crate::node::{Node, Trace};
use crate::process::{Channel, Driver, within};
use crate::schedule::Schedule;
use crate::watched::WatchedValue;

/// A client of the Controller service.
pub type Controller = ControllerClient<Channel>;
/// A client of the GroupController service.
pub type GroupController = GroupControllerClient<Channel>;

/// Result of a call, or code and message of its error.
pub type Answer<T> = Result<T, (Code, String)>;

/// Secrets of a call.
pub type Secrets = BTreeMap<String, String>;

/// GiB in bytes.
pub const GIB: i64 = 1 << 30;
/// Time for which a call may fail without a fault, above the longest back-off and the longest operation.
const PATIENCE: Duration = Duration::from_mins(30);
/// Like [`PATIENCE`], for a call that waits for another one, including the repair by an administrator.
const ENDLESS: Duration = Duration::from_hours(1);
/// Duration of a Lease, after which a new leader starts.
const LEASE: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub struct Cluster {
    /// Steps and random choices.
    pub schedule: Schedule,
    /// Records of the clients.
    pub ledger: Ledger,
    /// Checks of the clouds and of responses.
    pub judge: Judge,
    pub clouds: Arc<Clouds>,
    /// Latencies of the clouds without faults.
    pub latencies: Latencies,
    /// Transport to the clouds.
    pub network: Network,
    /// Two controller processes, each with sidecars.
    pub controllers: [Driver; 2],
    /// Contents of the volumes.
    pub backend: Backend,
    violations: Violations,
    /// Nodes by server, including deleted ones.
    nodes: Mutex<BTreeMap<String, Node>>,
    leaders: [WatchedValue<usize>; 4],
    /// Number of calls of sidecars, and the last call.
    pub calls: WatchedValue<(u64, Option<Call>)>,
    /// Number of pods so far, and the volume of the last one.
    pub pods: WatchedValue<(u64, String)>,
    /// Set while all workloads are scaled to zero.
    pub scaled_down: WatchedValue<bool>,
    /// Set when no new claims are created.
    pub closing: WatchedValue<bool>,
}

impl Cluster {
    /// Creates a cluster with stopped drivers.
    pub fn new(
        schedule: Schedule,
        clouds: Arc<Clouds>,
        latencies: Latencies,
        network: Network,
        controllers: [Driver; 2],
    ) -> Self {
        let ledger = Ledger::default();
        let leaders = [0, 1, 0, 1].map(WatchedValue::new);
        let backend = Backend::new(schedule.clone());
        Self {
            judge: Judge::new(clouds.clone(), ledger.clone(), schedule.clone()),
            ledger,
            clouds,
            latencies,
            network,
            controllers,
            backend,
            violations: Violations::observed_by(Arc::new(Trace(schedule.clone()))),
            nodes: Mutex::default(),
            schedule,
            leaders,
            calls: WatchedValue::default(),
            pods: WatchedValue::default(),
            scaled_down: WatchedValue::default(),
            closing: WatchedValue::new(false),
        }
    }

    /// Moves the leadership of a sidecar. Its running calls are cancelled.
    pub fn elect(&self, sidecar: Sidecar) {
        let leader = &self.leaders[sidecar as usize];
        let next = 1 - leader.get();
        self.schedule
            .note(&format!("{sidecar:?} leads beside {}", self.controllers[next].name()));
        leader.change(|leader| *leader = next);
    }

    /// Adds the node of a server.
    pub fn add_node(&self, server: &str) {
        let mut nodes = self.locked_nodes();
        let name = format!("node-{}", nodes.len() + 1);
        self.schedule.note(&format!("{name} is server {server}"));
        let (backend, violations) = (self.backend.clone(), self.violations.clone());
        let node = Node::new(name, server.to_owned(), backend, violations, self.schedule.clone());
        node.machine().set_faults(self.network.faults().machine);
        nodes.insert(server.to_owned(), node);
    }

    /// Returns the node of a server, even a deleted one.
    pub fn node(&self, server: &str) -> Option<Node> {
        self.locked_nodes().get(server).cloned()
    }

    /// Returns all existing nodes.
    pub fn nodes(&self) -> Vec<Node> {
        let nodes = self.locked_nodes();
        nodes
            .values()
            .filter(|node| !node.condition().is_gone())
            .cloned()
            .collect()
    }

    /// Powers on a node and adds its disks.
    pub fn power_on(&self, node: &Node) {
        node.power_on();
        self.backend.follow(&self.clouds.state());
    }

    /// Returns a node for a new pod in the cloud of its volume, usually a ready one.
    pub fn pick_node(&self, cloud: CloudName) -> Option<Node> {
        let mut nodes = self.nodes();
        nodes.retain(|node| self.clouds.cloud_of(node.server()) == cloud);
        if self.schedule.chance(900) {
            nodes.retain(|node| node.condition().is_ready());
        }
        let at = usize::try_from(self.schedule.below(nodes.len() as u64)).unwrap_or_default();
        nodes.get(at).cloned()
    }

    fn locked_nodes(&self) -> MutexGuard<'_, BTreeMap<String, Node>> {
        self.nodes.lock()
    }

    /// Whether the cluster is shutting down.
    pub fn is_closing(&self) -> bool {
        self.closing.get()
    }

    /// Calls the Controller service as the leader of a sidecar.
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

    /// Calls the GroupController service as the leader of the snapshotter.
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

    /// Sends a call and checks its errors. Retries with the back-off of a work queue until `end` accepts the result.
    ///
    /// A call that fails for [`ENDLESS`] without a fault is a violation. If its error names a resource that only an
    /// administrator can repair, the administrator repairs it after [`PATIENCE`].
    pub async fn repeat<T, R, F>(
        &self,
        call: Call,
        send: impl Fn() -> F,
        mut end: impl FnMut(Answer<T>) -> Option<R>,
    ) -> R
    where
        F: Future<Output = Result<T, Status>>,
    {
        let what = call.to_string();
        let mut backoff = Backoff::new();
        let mut began = self.schedule.elapsed();
        loop {
            self.calls
                .change(|(count, last)| (*count, *last) = (*count + 1, Some(call.clone())));
            let answer = send()
                .await
                .map_err(|status| (status.code(), status.message().to_owned()));
            let error = answer.as_ref().err().cloned();
            if let Some((code, message)) = &error {
                self.schedule.note(&format!("{what}: {code:?}: {message}"));
                self.judge.check_error(&call, *code, message);
            }
            if let Some(end) = end(answer) {
                return end;
            }
            let without_faults = self.schedule.calm().unwrap_or_default();
            let failing = self.schedule.elapsed().saturating_sub(began);
            let without_faults = without_faults.min(failing);
            if let Some((code, message)) = &error
                && without_faults > PATIENCE
            {
                if let Some(resource) = self.judge.obstacle(&call, message) {
                    self.repair(&resource);
                    began = self.schedule.elapsed();
                } else if without_faults > ENDLESS {
                    self.schedule.violation(&format!(
                        "{what} fails for {} min although nothing goes wrong: {code:?}: {message}",
                        ENDLESS.as_secs() / 60
                    ));
                    return std::future::pending().await;
                }
            }
            backoff.pause(&self.schedule, &what).await;
        }
    }

    /// Resets the state of a resource that no user can change, as an administrator does.
    fn repair(&self, resource: &StuckResource) {
        let (schedule, clouds) = (&self.schedule, &self.clouds);
        schedule.note(&format!("an administrator resets {resource:?}"));
        match resource {
            StuckResource::Volume(id) => {
                let is_attached = clouds.state().mappings.iter().any(|mapping| mapping.volume_id == *id);
                let status = if is_attached {
                    VolumeStatus::InUse
                } else {
                    VolumeStatus::Available
                };
                self.ledger.book().touched.insert(id.clone(), schedule.steps());
                clouds.set_volume_status(id, status);
            }
            StuckResource::Snapshot(id) => _ = clouds.set_snapshot_status(id, SnapshotStatus::Available),
            StuckResource::Backup(id) => _ = clouds.set_backup_status(id, BackupStatus::Available),
            StuckResource::Group(id) => _ = clouds.set_group_status(id, GroupStatus::Available),
            StuckResource::GroupSnapshot(id) => _ = clouds.set_group_snapshot_status(id, GroupStatus::Available),
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

/// Mode of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeMode {
    /// With a file system of this type.
    Filesystem(&'static str),
    /// As a raw block device.
    Block,
}

impl Default for VolumeMode {
    fn default() -> Self {
        Self::Filesystem("ext4")
    }
}

impl VolumeMode {
    /// Returns the volume capability for this mode.
    pub fn capability(self, access: Mode) -> VolumeCapability {
        let access_type = match self {
            Self::Filesystem(fs_type) => AccessType::Mount(MountVolume {
                fs_type: fs_type.into(),
                ..MountVolume::default()
            }),
            Self::Block => AccessType::Block(BlockVolume {}),
        };
        VolumeCapability {
            access_mode: Some(AccessMode { mode: access.into() }),
            access_type: Some(access_type),
        }
    }
}

/// Back-off of a work queue: from one second, doubled up to five minutes.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    /// Starts without failures.
    fn new() -> Self {
        Self {
            next: Duration::from_secs(1),
            longest: Duration::from_mins(5),
        }
    }

    /// Back-off of the kubelet: from half a second, doubled up to two minutes and two seconds.
    pub fn of_kubelet() -> Self {
        Self {
            next: Duration::from_millis(500),
            longest: Duration::from_secs(122),
        }
    }

    /// Waits for the next pause.
    pub async fn pause(&mut self, schedule: &Schedule, what: &str) {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        schedule.event(pause, || format!("{what} tries again")).await;
    }
}
