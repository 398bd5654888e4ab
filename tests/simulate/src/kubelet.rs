// SPDX-License-Identifier: Apache-2.0
//! The kubelet: one volume on one node for one pod, from NodeStageVolume to the OK of NodeUnstageVolume.
//!
//! It retries as the real one does, and tracks possible mounts. It treats a final error as a promise that no mount
//! exists. After a restart, it reconstructs its state from directories, so every started mount may exist.

mod checks;
mod pod;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cinder_csi_driver::parameters::PUBLISH_READONLY;
use csi_host::Machine;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::{
    CapacityRange, NodeExpandVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest,
    NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest,
};
use tokio::sync::OwnedMutexGuard;
use tonic::Status;

use crate::callers::Claim;
use crate::cluster::{Backoff, Cluster, VolumeMode};
use crate::judge::ends_snapshot;
use crate::machine::SimMachine;
use crate::node::Node;

const PODS: &str = "/var/lib/kubelet/pods";
const PLUGINS: &str = "/var/lib/kubelet/plugins/kubernetes.io/csi";
/// Maximum difference between the size of a file system and its device.
const UNUSED: u64 = 32 << 20;

/// The kubelet's state of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// It does not exist.
    Absent,
    /// It was requested, and no final response has arrived.
    Uncertain,
    /// It was uncertain before a restart of the kubelet. Errors no longer imply that it does not exist.
    Reconstructed,
    /// It exists.
    Present,
}

impl Presence {
    fn begin(&mut self) {
        if *self == Self::Absent {
            *self = Self::Uncertain;
        }
    }

    fn restart(&mut self) {
        if *self != Self::Absent {
            *self = Self::Reconstructed;
        }
    }

    /// Records an error. Returns whether it is final and implies that the mount does not exist.
    fn fail(&mut self, status: &Status) -> bool {
        // The kubelet's `isFinalError` equals that of external-snapshotter.
        let is_absent = *self == Self::Uncertain && ends_snapshot(status.code());
        if is_absent {
            *self = Self::Absent;
        }
        is_absent
    }
}

/// A publish target of a pod.
#[derive(Debug)]
struct Target {
    path: PathBuf,
    is_read_only: bool,
    presence: Presence,
}

/// Events that end a mount: the numbers of removals of the disk and of boots of the machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct MountEpoch {
    removals: u64,
    boot: u64,
}

/// A volume on a node.
#[derive(Debug)]
pub struct Mounting {
    cluster: Arc<Cluster>,
    node: Node,
    claim: Arc<Claim>,
    /// The publish context of ControllerPublishVolume.
    context: BTreeMap<String, String>,
    staging: PathBuf,
    staged: Presence,
    targets: Vec<Target>,
    /// Whether the volume is attached to this node read-only.
    is_attached_read_only: bool,
    since: MountEpoch,
    /// Keys that pods have written without sync.
    cached: BTreeSet<u64>,
    has_read: bool,
    /// Excludes other pods of this volume on this node.
    turn: Option<OwnedMutexGuard<()>>,
}

impl Mounting {
    /// Creates the state of a volume that is not mounted.
    pub fn new(cluster: Arc<Cluster>, node: Node, claim: Arc<Claim>) -> Self {
        let schedule = cluster.schedule.clone();
        let volume = &claim.volume;
        // A read-only volume is useful only if it has data.
        let is_attached_read_only = cluster.backend.holds_keys(volume) && schedule.chance(100);
        let staging = match claim.mode {
            VolumeMode::Filesystem(_) => format!("{PLUGINS}/cinder.csi.openstack.org/{volume}/globalmount"),
            VolumeMode::Block => format!("{PLUGINS}/volumeDevices/staging/{volume}"),
        };
        let target = || {
            let pod = schedule.sources().uuid();
            let path = match claim.mode {
                VolumeMode::Filesystem(_) => format!("{PODS}/{pod}/volumes/kubernetes.io~csi/{}/mount", claim.name),
                VolumeMode::Block => format!("{PLUGINS}/volumeDevices/publish/{}/{pod}", claim.name),
            };
            Target {
                path: path.into(),
                is_read_only: is_attached_read_only || schedule.chance(150),
                presence: Presence::Absent,
            }
        };
        // Pods of one node sometimes share a volume.
        let is_alone = claim.access == Mode::SingleNodeSingleWriter;
        let pods = if schedule.chance(200) && !is_alone { 2 } else { 1 };
        Self {
            targets: (0..pods).map(|_| target()).collect(),
            staging: staging.into(),
            cluster,
            node,
            claim,
            context: BTreeMap::new(),
            is_attached_read_only,
            staged: Presence::Absent,
            since: MountEpoch::default(),
            cached: BTreeSet::new(),
            has_read: false,
            turn: None,
        }
    }

    /// Whether a pod has run and has read all required data.
    pub fn has_read(&self) -> bool {
        self.has_read
    }

    /// Stages and publishes an attached volume, lets its pods do `acts` operations, and returns. Dropping the future
    /// deletes the pods; the caller must then call [`Mounting::stop`].
    pub async fn run(&mut self, context: BTreeMap<String, String>, acts: u64) {
        let node = self.node.clone();
        self.context = context;
        if self.is_attached_read_only {
            self.context.insert(PUBLISH_READONLY.into(), "true".into());
        }
        self.turn = Some(node.turn(&self.claim.volume).await);
        loop {
            node.ready().await;
            let run = node.condition().run;
            tokio::select! {
                biased;
                () = node.restarted(run) => {}
                () = self.start(acts) => return,
            }
            self.note("is found by a new kubelet");
            self.staged.restart();
            self.targets.iter_mut().for_each(|target| target.presence.restart());
        }
    }

    async fn start(&mut self, acts: u64) {
        let mut backoff = Backoff::of_kubelet();
        while self.stage().await.is_err() {
            backoff.pause(&self.cluster.schedule, &self.claim.volume).await;
        }
        self.expand().await;
        for at in 0..self.targets.len() {
            let mut backoff = Backoff::of_kubelet();
            while self.publish(at).await.is_err() {
                backoff.pause(&self.cluster.schedule, &self.claim.volume).await;
            }
        }
        self.run_operations(acts).await;
    }

    /// Ends the pods, and unpublishes and unstages the volume until nothing can remain. Waits for a node that does not
    /// report.
    pub async fn stop(&mut self) {
        let schedule = self.cluster.schedule.clone();
        if self.turn.is_none() {
            // The volume never had its turn on this node.
            return;
        }
        for at in 0..self.targets.len() {
            // A container that does not end still has open files.
            if schedule.chance(50) {
                let time = schedule.between(Duration::ZERO, Duration::from_mins(1));
                schedule
                    .event(time, || format!("a container of {} ends at last", self.claim.volume))
                    .await;
            }
            let mut backoff = Backoff::of_kubelet();
            self.node.machine().release(&self.targets[at].path);
            while self.targets[at].presence != Presence::Absent {
                self.node.ready().await;
                if self.unpublish(at).await.is_err() {
                    backoff.pause(&schedule, &self.claim.volume).await;
                }
            }
        }
        let mut backoff = Backoff::of_kubelet();
        while self.staged != Presence::Absent {
            self.node.ready().await;
            if self.unstage().await.is_err() {
                backoff.pause(&schedule, &self.claim.volume).await;
            }
        }
        self.turn = None;
    }

    async fn stage(&mut self) -> Result<(), Status> {
        if self.staged == Presence::Absent || self.since.boot != self.now().boot {
            self.since = self.now();
            self.cached.clear();
        }
        // An existing directory is fine. If the creation fails, the driver reports the reason.
        drop(self.machine().create_directories(&self.staging, 0o750));
        self.staged.begin();
        let request = NodeStageVolumeRequest {
            volume_id: self.claim.volume.clone(),
            publish_context: self.context.clone(),
            staging_target_path: self.staging.display().to_string(),
            volume_capability: Some(self.capability()),
            volume_context: self.claim.context.clone(),
            ..NodeStageVolumeRequest::default()
        };
        let call = |mut client: Client, request| async move { client.node_stage_volume(request).await };
        let answer = self.node.call(request, call).await;
        if let Err(status) = answer {
            self.note(&format!("is not staged: {:?}: {}", status.code(), status.message()));
            if self.staged.fail(&status) {
                self.check_absent(&self.staging, "NodeStageVolume", status.code());
                drop(self.machine().remove_directory(&self.staging));
            }
            return Err(status);
        }
        self.note("is staged");
        self.staged = Presence::Present;
        if self.claim.mode != VolumeMode::Block {
            self.check_shown(&self.staging, "NodeStageVolume");
        }
        Ok(())
    }

    async fn publish(&mut self, at: usize) -> Result<(), Status> {
        let target = &mut self.targets[at];
        target.presence.begin();
        let path = target.path.clone();
        if let Some(parent) = path.parent() {
            drop(self.machine().create_directories(parent, 0o750));
        }
        let request = NodePublishVolumeRequest {
            volume_id: self.claim.volume.clone(),
            publish_context: self.context.clone(),
            staging_target_path: self.staging.display().to_string(),
            target_path: path.display().to_string(),
            volume_capability: Some(self.capability()),
            readonly: self.targets[at].is_read_only,
            volume_context: self.claim.context.clone(),
            ..NodePublishVolumeRequest::default()
        };
        let call = |mut client: Client, request| async move { client.node_publish_volume(request).await };
        let answer = self.node.call(request, call).await;
        if let Err(status) = answer {
            self.note(&format!("is not published: {:?}: {}", status.code(), status.message()));
            if self.targets[at].presence.fail(&status) {
                self.check_absent(&path, "NodePublishVolume", status.code());
            }
            return Err(status);
        }
        self.note(if self.targets[at].is_read_only {
            "is published read-only"
        } else {
            "is published"
        });
        self.targets[at].presence = Presence::Present;
        self.check_shown(&path, "NodePublishVolume");
        // The pod has open files. A missing mount has been reported above.
        drop(self.machine().hold(&path));
        Ok(())
    }

    async fn unpublish(&mut self, at: usize) -> Result<(), Status> {
        let path = self.targets[at].path.clone();
        let request = NodeUnpublishVolumeRequest {
            volume_id: self.claim.volume.clone(),
            target_path: path.display().to_string(),
        };
        let call = |mut client: Client, request| async move { client.node_unpublish_volume(request).await };
        if let Err(status) = self.node.call(request, call).await {
            self.note(&format!(
                "is not unpublished: {:?}: {}",
                status.code(),
                status.message()
            ));
            return Err(status);
        }
        self.note("is unpublished");
        self.targets[at].presence = Presence::Absent;
        if self.is_mounted(&path) {
            self.wrong("NodeUnpublishVolume answered OK, and it is mounted at the target");
        }
        if self.machine().exists(&path) {
            self.wrong("NodeUnpublishVolume answered OK, and the target is there");
        }
        Ok(())
    }

    async fn unstage(&mut self) -> Result<(), Status> {
        let volume = self.claim.volume.clone();
        let request = NodeUnstageVolumeRequest {
            volume_id: volume.clone(),
            staging_target_path: self.staging.display().to_string(),
        };
        let call = |mut client: Client, request| async move { client.node_unstage_volume(request).await };
        if let Err(status) = self.node.call(request, call).await {
            self.note(&format!("is not unstaged: {:?}: {}", status.code(), status.message()));
            return Err(status);
        }
        self.note("is unstaged");
        self.staged = Presence::Absent;
        // The driver may have removed it before.
        drop(self.machine().remove_directory(&self.staging));
        if let Some(place) = self.machine().places(&volume).first() {
            self.wrong(&format!(
                "NodeUnstageVolume answered OK, and it is mounted at {}",
                place.display()
            ));
        }
        if self.machine().is_used(&volume) {
            self.wrong("NodeUnstageVolume answered OK, and its disk is in use");
        }
        if self.since == self.now() {
            // An unmount writes back.
            self.cluster
                .backend
                .record_durable(&volume, std::mem::take(&mut self.cached));
        }
        Ok(())
    }

    /// Calls NodeExpandVolume if the volume has grown.
    async fn expand(&mut self) {
        let Some(required) = self.claim.missing_growth() else {
            return;
        };
        let shown = self.targets.iter().find(|target| target.presence == Presence::Present);
        let path = match (shown, self.claim.mode) {
            (Some(target), _) => target.path.clone(),
            (None, VolumeMode::Filesystem(_)) => self.staging.clone(),
            (None, VolumeMode::Block) => return,
        };
        let request = NodeExpandVolumeRequest {
            volume_id: self.claim.volume.clone(),
            volume_path: path.display().to_string(),
            capacity_range: Some(CapacityRange {
                required_bytes: required,
                limit_bytes: 0,
            }),
            staging_target_path: self.staging.display().to_string(),
            volume_capability: Some(self.capability()),
            ..NodeExpandVolumeRequest::default()
        };
        let call = |mut client: Client, request| async move { client.node_expand_volume(request).await };
        let answer = match self.node.call(request, call).await {
            Ok(answer) => answer,
            Err(status) => {
                self.note(&format!("has not grown: {:?}: {}", status.code(), status.message()));
                return;
            }
        };
        self.note(&format!("has grown to {} bytes", answer.capacity_bytes));
        self.claim.set_grown(required);
        self.check_growth(required, answer);
    }

    fn is_mounted(&self, path: &std::path::Path) -> bool {
        self.machine()
            .places(&self.claim.volume)
            .iter()
            .any(|place| place == path)
    }

    /// Whether a dead or missing mount is no fault: the disk was removed, or the machine has booted.
    fn is_excused(&self) -> bool {
        self.since != self.now() || !self.machine().has_volume(&self.claim.volume)
    }

    fn now(&self) -> MountEpoch {
        MountEpoch {
            removals: self.cluster.backend.removals(self.node.server(), &self.claim.volume),
            boot: self.node.condition().boot,
        }
    }

    fn machine(&self) -> &SimMachine {
        self.node.machine()
    }

    fn note(&self, what: &str) {
        let (node, volume) = (self.node.name(), &self.claim.volume);
        self.cluster.schedule.note(&format!("{node}: volume {volume} {what}"));
    }

    fn wrong(&self, what: &str) {
        let (node, volume) = (self.node.name(), &self.claim.volume);
        self.cluster
            .schedule
            .violation(&format!("{node}, volume {volume}: {what}"));
    }
}

type Client = csi_proto::csi::v1::node_client::NodeClient<crate::process::Channel>;
