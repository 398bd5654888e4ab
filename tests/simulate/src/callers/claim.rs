// SPDX-License-Identifier: Apache-2.0
//! The life of one claim: a volume, the pods that use it one after the other, and what is done to it meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use futures::future::join;
use tokio::task::JoinSet;

use super::provisioner::{Order, Source};
use super::{attacher, provisioner, resizer, snapshotter};
use crate::cluster::{Cluster, ENCRYPTED, GIB, VolumeMode};
use crate::kubelet::Mounting;
use crate::ledger::Known;

/// Limits of calls, as installations set them.
const LIMITS: [Duration; 3] = [Duration::from_secs(15), Duration::from_mins(1), Duration::from_mins(3)];

/// How long a pod may take to run once nothing goes wrong: what was refused before is tried again after five minutes at most, and an
/// administrator looks around every ten.
const RUNS: Duration = Duration::from_hours(1);

/// A claim that has a volume.
#[derive(Debug)]
pub struct Claim {
    /// Its name.
    pub name: String,
    /// The volume's id.
    pub volume: String,
    /// What CreateVolume has answered.
    pub context: BTreeMap<String, String>,
    /// What it is used as.
    pub mode: VolumeMode,
    /// How long one call to a controller may take.
    limit: Duration,
    /// The size that a node has to see, and that it has seen. 0: that of the beginning.
    wanted: AtomicI64,
    grown: AtomicI64,
}

impl Claim {
    /// The size that no node has seen yet, if there is one.
    pub fn missing_growth(&self) -> Option<i64> {
        let wanted = self.wanted.load(Ordering::Relaxed);
        (wanted > self.grown.load(Ordering::Relaxed)).then_some(wanted)
    }

    /// A node has seen this size.
    pub fn set_grown(&self, bytes: i64) {
        self.grown.fetch_max(bytes, Ordering::Relaxed);
    }
}

/// Lives through one claim.
pub async fn live(cluster: Arc<Cluster>) {
    let schedule = &cluster.schedule;
    let limit = schedule.one_of(&LIMITS);
    let source = source(&cluster);
    let modes = [
        VolumeMode::Filesystem("ext4"),
        VolumeMode::Filesystem("xfs"),
        VolumeMode::Filesystem("btrfs"),
        VolumeMode::Block,
    ];
    let mut order = Order {
        name: format!("pvc-{}", schedule.sources().uuid()),
        // Not always whole GiB: Cinder makes whole ones.
        bytes: GIB * i64::from(u8::try_from(1 + schedule.below(3)).unwrap_or(1)) - schedule.one_of(&[0, 0, 1 << 20]),
        // What is made of something is used as that is.
        mode: match &source {
            Source::Nothing => schedule.one_of(&modes),
            Source::Snapshot(id) | Source::Volume(id) => cluster.backend.mode(id).unwrap_or_default(),
        },
        volume_type: None,
        source,
        limit,
    };
    // Cinder copies into the type of the source only.
    let is_encrypted = order.source == Source::Nothing && schedule.chance(200);
    order.volume_type = is_encrypted.then_some(ENCRYPTED);
    schedule.note(&format!(
        "claim {} of {} bytes, {:?}",
        order.name, order.bytes, order.source
    ));
    let deleted = AtomicBool::new(false);
    let patience = if schedule.chance(150) {
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
        limit,
        wanted: AtomicI64::default(),
        grown: AtomicI64::default(),
    });
    // What lost nodes have left to do.
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
        join(pods, meanwhile(&cluster, &claim, order.bytes)).await;
        if cluster.is_closing() && cluster.backend.holds_keys(&claim.volume) {
            pod(&cluster, &claim, true, &mut leftovers).await;
        }
    }
    provisioner::delete(&cluster, &claim.name, &claim.volume, limit).await;
    while leftovers.join_next().await.is_some() {}
}

/// Something that exists, or nothing.
fn source(cluster: &Cluster) -> Source {
    let schedule = &cluster.schedule;
    let book = cluster.ledger.book();
    let made = |known: &Known| match known {
        Known::Made(id) => Some(id.clone()),
        _ => None,
    };
    let snapshots: Vec<String> = book.snapshots.values().filter_map(made).collect();
    let volumes: Vec<String> = book.volumes.values().filter_map(made).collect();
    drop(book);
    let pick = |ids: &[String]| {
        let at = usize::try_from(schedule.below(ids.len() as u64)).unwrap_or_default();
        ids.get(at).cloned()
    };
    match schedule.below(10) {
        0..2 => pick(&snapshots).map_or(Source::Nothing, Source::Snapshot),
        2 => pick(&volumes).map_or(Source::Nothing, Source::Volume),
        _ => Source::Nothing,
    }
}

/// One pod on one node. The last one, when nothing goes wrong any more, has to run, and reads what all before it have written.
async fn pod(cluster: &Arc<Cluster>, claim: &Arc<Claim>, is_last: bool, leftovers: &mut JoinSet<()>) {
    let schedule = &cluster.schedule;
    cluster.scaled_down.wait_for(|down| !down).await;
    let Some(node) = cluster.pick_node() else { return };
    let (volume, server) = (claim.volume.as_str(), node.server());
    schedule.note(&format!("a pod of {volume} comes to {}", node.name()));
    cluster
        .pods
        .change(|(count, last)| (*count, *last) = (*count + 1, volume.to_owned()));
    // A user who does not wait, or one who does until it runs.
    let patience = match schedule.chance(200) {
        _ if is_last => RUNS,
        true => Duration::from_secs(schedule.below(60)),
        false => Duration::from_mins(20),
    };
    let acts = if is_last { 0 } else { schedule.below(8) };
    let mut mounting = Mounting::new(cluster.clone(), node.clone(), claim.clone());
    let life = async {
        let context = attacher::attach(cluster, volume, server, claim.mode, claim.limit).await;
        mounting.run(context, acts).await;
    };
    tokio::select! {
        biased;
        () = life => {}
        () = node.lost() => schedule.note(&format!("{} is lost with a pod of {volume}", node.name())),
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
        () = node.lost() => false,
    };
    if !is_stopped {
        let node = node.clone();
        leftovers.spawn(async move {
            tokio::select! {
                biased;
                () = node.gone() => {}
                () = mounting.stop() => {}
            }
        });
    }
    attacher::detach(cluster, volume, server, claim.limit).await;
}

/// What is done to a volume while pods come and go.
async fn meanwhile(cluster: &Cluster, claim: &Claim, mut bytes: i64) {
    let (schedule, volume, limit) = (&cluster.schedule, claim.volume.as_str(), claim.limit);
    for _ in 0..schedule.below(4) {
        let time = schedule.between(Duration::ZERO, Duration::from_mins(2));
        schedule.event(time, || format!("something is done to {volume}")).await;
        if cluster.is_closing() {
            return;
        }
        match schedule.below(5) {
            0 | 1 => {
                bytes += GIB - schedule.one_of(&[0, 1 << 20]);
                if let Some(size) = resizer::expand(cluster, volume, bytes, claim.mode, limit).await {
                    claim.wanted.fetch_max(size, Ordering::Relaxed);
                }
            }
            2 | 3 => {
                let kind = schedule.one_of(&["snapshot", "snapshot", "backup"]);
                let name = format!("{kind}-{}", schedule.sources().uuid());
                if let Some(id) = snapshotter::cut(cluster, &name, volume, kind, limit).await {
                    let time = schedule.between(Duration::ZERO, Duration::from_mins(1));
                    schedule.event(time, || format!("snapshot {name} is deleted")).await;
                    snapshotter::delete(cluster, &name, &id, limit).await;
                }
            }
            _ => {
                let cut = async || {
                    let mut volumes = others(cluster, volume);
                    volumes.push(volume.to_owned());
                    let name = format!("groupsnapshot-{}", schedule.sources().uuid());
                    snapshotter::cut_group(cluster, &name, &volumes, limit).await;
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

/// Up to three other volumes that are there.
fn others(cluster: &Cluster, volume: &str) -> Vec<String> {
    let book = cluster.ledger.book();
    let made = |known: &Known| match known {
        Known::Made(id) if id != volume => Some(id.clone()),
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
