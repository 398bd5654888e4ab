// SPDX-License-Identifier: Apache-2.0
//! The lifecycle of a claim: its volume, sequential pods, snapshots, expansions and changes of its type.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use csi_proto::csi::v1::VolumeCapability;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use futures::future::join;
use tokio::task::JoinSet;

use super::order::{Order, snapshot_name};
use super::{attacher, provisioner, resizer, snapshotter};
use crate::cluster::{Cluster, GIB, Secrets, VolumeMode};
use crate::kubelet::Mounting;
use crate::ledger::ResourceState;
use crate::watched::WatchedValue;

/// Limit of the start of a pod without faults: two calls that may each fail for an hour.
const RUNS: Duration = Duration::from_hours(2);

/// A claim that is bound to a volume.
#[derive(Debug)]
pub struct Claim {
    pub name: String,
    /// Id of the volume.
    pub volume: String,
    /// The volume context of CreateVolume.
    pub context: BTreeMap<String, String>,
    pub mode: VolumeMode,
    pub access: Mode,
    /// Secrets of its StorageClass.
    pub(super) secrets: Secrets,
    /// Limit of one call to a controller.
    pub(super) limit: Duration,
    /// A server to which the volume is attached without a pod.
    further: WatchedValue<Option<String>>,
    /// The sizes that a node must see, and has seen; 0 is the initial size.
    wanted: AtomicI64,
    grown: AtomicI64,
}

impl Claim {
    /// Returns the capability of its requests.
    pub fn capability(&self) -> VolumeCapability {
        self.mode.capability(self.access)
    }

    /// Returns the size that no node has seen yet, if any.
    pub fn missing_growth(&self) -> Option<i64> {
        let desired = self.wanted.load(Ordering::Relaxed);
        (desired > self.grown.load(Ordering::Relaxed)).then_some(desired)
    }

    /// Records that a node has seen this size.
    pub fn set_grown(&self, bytes: i64) {
        self.grown.fetch_max(bytes, Ordering::Relaxed);
    }
}

/// Runs the lifecycle of one claim.
pub async fn run_claim(cluster: Arc<Cluster>) {
    let schedule = &cluster.schedule;
    let order = Order::draw(&cluster);
    let limit = order.limit;
    schedule.note(&format!(
        "claim {} of {} bytes, {:?}",
        order.name, order.bytes, order.source
    ));
    let deleted = AtomicBool::new(false);
    let is_foreign = cluster.clouds.foreign_names().contains(&order.name.as_str());
    let patience = if is_foreign || schedule.chance(150) {
        Duration::from_secs(schedule.below(30))
    } else {
        Duration::from_hours(2)
    };
    let is_deleted = || deleted.load(Ordering::Relaxed);
    let create = provisioner::create(&cluster, &order, is_deleted);
    let user = async {
        tokio::select! {
            biased;
            () = schedule.event(patience, || format!("claim {} is deleted if it has no volume", order.name)) => {}
            () = cluster.closing.wait_for(|closing| *closing) => {}
        }
        deleted.store(true, Ordering::Relaxed);
        std::future::pending::<()>().await;
    };
    let made = tokio::select! {
        biased;
        made = create => made,
        () = user => None,
    };
    let Some(volume) = made else { return };
    cluster.backend.set_mode(&volume.volume_id, order.mode);
    let claim = Arc::new(Claim {
        name: order.name,
        volume: volume.volume_id,
        context: volume.volume_context,
        mode: order.mode,
        access: order.access,
        secrets: order.secrets,
        limit,
        further: WatchedValue::default(),
        wanted: AtomicI64::default(),
        grown: AtomicI64::default(),
    });
    // Remaining work on lost nodes.
    let mut leftovers = JoinSet::new();
    if !is_deleted() {
        let pods = 1 + schedule.below(3);
        let pods = async {
            for _ in 0..pods {
                if cluster.is_closing() {
                    return;
                }
                pod(&cluster, &claim, false, &mut leftovers).await;
            }
        };
        join(
            pods,
            meanwhile(&cluster, &claim, order.bytes, order.volume_type.is_some()),
        )
        .await;
        if cluster.is_closing() && cluster.backend.holds_keys(&claim.volume) {
            pod(&cluster, &claim, true, &mut leftovers).await;
        }
    }
    provisioner::delete(&cluster, &claim.name, &claim.volume, &claim.secrets, limit).await;
    while leftovers.join_next().await.is_some() {}
}

/// Runs one pod on one node. The last pod, which runs without faults, must start and must read the data of all previous
/// pods.
async fn pod(cluster: &Arc<Cluster>, claim: &Arc<Claim>, is_last: bool, leftovers: &mut JoinSet<()>) {
    let schedule = &cluster.schedule;
    cluster.scaled_down.wait_for(|down| !down).await;
    let cloud = cluster.clouds.cloud_of(&claim.volume);
    let Some(node) = cluster.pick_node(cloud) else { return };
    let (volume, server) = (claim.volume.as_str(), node.server());
    schedule.note(&format!("a pod of {volume} comes to {}", node.name()));
    cluster
        .pods
        .change(|(count, last)| (*count, *last) = (*count + 1, volume.to_owned()));
    // The user deletes the pod at a random time, or after it runs.
    let patience = match schedule.chance(200) {
        _ if is_last => RUNS,
        true => Duration::from_secs(schedule.below(60)),
        false => Duration::from_mins(20),
    };
    let acts = if is_last { 0 } else { schedule.below(8) };
    let mut mounting = Mounting::new(cluster.clone(), node.clone(), claim.clone());
    // A volume has one VolumeAttachment per node.
    let is_other = |further: &Option<String>| further.as_deref() != Some(server);
    let life = async {
        claim.further.wait_for(is_other).await;
        let context = attacher::attach(cluster, claim, server).await;
        mounting.run(context, acts).await;
    };
    tokio::select! {
        biased;
        () = life => {}
        () = node.wait_until_lost() => schedule.note(&format!("{} is lost with a pod of {volume}", node.name())),
        () = schedule.event(patience, || format!("the pod of {volume} is deleted")) => {}
        () = cluster.scaled_down.wait_for(|down| *down), if !is_last => {}
    }
    if is_last && !mounting.has_read() && cluster.backend.is_mountable(volume) {
        schedule.violation(&format!(
            "a pod of {volume} does not run at {} although nothing goes wrong",
            node.name()
        ));
    }
    let is_stopped = tokio::select! {
        biased;
        () = mounting.stop() => true,
        () = node.wait_until_lost() => false,
    };
    if !is_stopped {
        let node = node.clone();
        leftovers.spawn(async move {
            tokio::select! {
                biased;
                () = node.wait_until_deleted() => {}
                () = mounting.stop() => {}
            }
        });
    }
    claim.further.wait_for(is_other).await;
    attacher::detach(cluster, claim, server).await;
}

/// Expands, modifies and snapshots a volume while pods use it.
async fn meanwhile(cluster: &Cluster, claim: &Claim, mut bytes: i64, is_special: bool) {
    let (schedule, volume) = (&cluster.schedule, claim.volume.as_str());
    for _ in 0..schedule.below(4) {
        let time = schedule.between(Duration::ZERO, Duration::from_mins(2));
        schedule.event(time, || format!("something is done to {volume}")).await;
        if cluster.is_closing() {
            return;
        }
        if claim.access == Mode::MultiNodeMultiWriter {
            attach_again(cluster, claim).await;
        }
        match schedule.below(6) {
            5 if !is_special => {
                let volume_type = schedule.one_of(&["fast", "slow"]);
                resizer::modify(cluster, claim, volume_type).await;
            }
            0 | 1 => {
                bytes += GIB - schedule.one_of(&[0, 1 << 20]);
                if let Some(size) = resizer::expand(cluster, claim, bytes).await {
                    claim.wanted.fetch_max(size, Ordering::Relaxed);
                }
            }
            2 | 3 => {
                let kind = schedule.one_of(&["snapshot", "snapshot", "backup"]);
                let name = snapshot_name(cluster, kind);
                if let Some(id) = snapshotter::cut(cluster, &name, claim, kind).await {
                    let time = schedule.between(Duration::ZERO, Duration::from_mins(1));
                    schedule.event(time, || format!("snapshot {name} is deleted")).await;
                    snapshotter::delete(cluster, claim, &name, &id).await;
                }
            }
            _ => {
                let cut = async || {
                    let mut volumes = others(cluster, volume);
                    volumes.push(volume.to_owned());
                    let name = format!("groupsnapshot-{}", schedule.sources().uuid());
                    snapshotter::cut_group(cluster, &name, &volumes, claim.limit).await;
                };
                let another = async {
                    if schedule.chance(400) {
                        let time = schedule.between(Duration::ZERO, Duration::from_secs(5));
                        let what = || format!("another group with {volume} is wanted");
                        schedule.event(time, what).await;
                        cut().await;
                    }
                };
                tokio::join!(cut(), another);
            }
        }
    }
}

/// Attaches a multi-writer volume to one more node, and detaches it.
async fn attach_again(cluster: &Cluster, claim: &Claim) {
    let schedule = &cluster.schedule;
    let cloud = cluster.clouds.cloud_of(&claim.volume);
    let Some(node) = cluster.pick_node(cloud) else { return };
    let pair = (claim.volume.clone(), node.server().to_owned());
    if cluster.ledger.book().attachments.contains_key(&pair) {
        return;
    }
    claim
        .further
        .change(|further| *further = Some(node.server().to_owned()));
    let patience = schedule.between(Duration::from_secs(1), Duration::from_mins(5));
    tokio::select! {
        biased;
        _ = attacher::attach(cluster, claim, node.server()) => {}
        () = node.wait_until_lost() => {}
        () = schedule.event(patience, || format!("{} is no longer needed at a further node", claim.volume)) => {}
    }
    attacher::detach(cluster, claim, node.server()).await;
    claim.further.change(|further| *further = None);
}

/// Returns up to three other existing volumes.
fn others(cluster: &Cluster, volume: &str) -> Vec<String> {
    let book = cluster.ledger.book();
    let made = |known: &ResourceState| match known {
        ResourceState::Made(id) if id != volume => Some(id.clone()),
        _ => None,
    };
    let mut others: Vec<String> = book.volumes.values().filter_map(made).collect();
    let most = usize::try_from(cluster.schedule.below(4)).unwrap_or_default();
    while others.len() > most {
        let at = usize::try_from(cluster.schedule.below(others.len() as u64)).unwrap_or_default();
        others.swap_remove(at);
    }
    others
}
