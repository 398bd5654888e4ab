//! The life of one claim: a volume, the pods that use it one after the other, and what is done to it meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join;

use super::provisioner::{Order, Source};
use super::{attacher, provisioner, resizer, snapshotter};
use crate::cluster::{Cluster, GIB};
use crate::ledger::Known;

/// Limits of calls, as installations set them.
const LIMITS: [Duration; 3] = [Duration::from_secs(15), Duration::from_mins(1), Duration::from_mins(3)];

/// Lives through one claim.
pub async fn live(cluster: Arc<Cluster>) {
    let schedule = &cluster.schedule;
    let limit = schedule.one_of(&LIMITS);
    let order = Order {
        name: format!("pvc-{}", schedule.sources().uuid()),
        // Not always whole GiB: Cinder makes whole ones.
        bytes: GIB * i64::from(u8::try_from(1 + schedule.below(3)).unwrap_or(1)) - schedule.one_of(&[0, 0, 1 << 20]),
        fs_type: schedule.one_of(&["ext4", "xfs"]),
        source: source(&cluster),
        limit,
    };
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
        let mut closing = cluster.closing.subscribe();
        tokio::select! {
            biased;
            () = schedule.event(patience, || format!("claim {} is deleted if it has no volume", order.name)) => {}
            // The sender lives as long as the cluster.
            _ = closing.wait_for(|closing| *closing) => {}
        }
        deleted.store(true, Ordering::Relaxed);
        std::future::pending::<()>().await;
    };
    let made = tokio::select! {
        biased;
        made = create => made,
        () = user => None,
    };
    let Some(id) = made else { return };
    if !is_deleted() {
        let pods = 1 + schedule.below(3);
        let pods = async {
            for _ in 0..pods {
                if cluster.is_closing() {
                    return;
                }
                pod(&cluster, &id, &order).await;
            }
        };
        join(pods, meanwhile(&cluster, &id, &order)).await;
    }
    provisioner::delete(&cluster, &order.name, &id, limit).await;
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

/// One pod on one node.
async fn pod(cluster: &Cluster, volume: &str, order: &Order) {
    let schedule = &cluster.schedule;
    let Some(server) = cluster.server() else { return };
    let server = &server;
    // A user who does not wait, or one who does until it runs.
    let patience = if schedule.chance(200) {
        Duration::from_secs(schedule.below(60))
    } else {
        Duration::from_mins(20)
    };
    let life = async {
        attacher::attach(cluster, volume, server, order.fs_type, order.limit).await;
        let time = schedule.between(Duration::ZERO, Duration::from_mins(3));
        schedule.event(time, || format!("the pod of {volume} ends")).await;
    };
    tokio::select! {
        biased;
        () = life => {}
        () = schedule.event(patience, || format!("the pod of {volume} is deleted")) => {}
    }
    attacher::detach(cluster, volume, server, order.limit).await;
}

/// What is done to a volume while pods come and go.
async fn meanwhile(cluster: &Cluster, volume: &str, order: &Order) {
    let schedule = &cluster.schedule;
    let mut bytes = order.bytes;
    for _ in 0..schedule.below(4) {
        let time = schedule.between(Duration::ZERO, Duration::from_mins(2));
        schedule.event(time, || format!("something is done to {volume}")).await;
        if cluster.is_closing() {
            return;
        }
        match schedule.below(5) {
            0 | 1 => {
                bytes += GIB - schedule.one_of(&[0, 1 << 20]);
                resizer::expand(cluster, volume, bytes, order.fs_type, order.limit).await;
            }
            2 | 3 => {
                let name = format!("snapshot-{}", schedule.sources().uuid());
                if let Some(id) = snapshotter::cut(cluster, &name, volume, order.limit).await {
                    let time = schedule.between(Duration::ZERO, Duration::from_mins(1));
                    schedule.event(time, || format!("snapshot {name} is deleted")).await;
                    snapshotter::delete(cluster, &name, &id, order.limit).await;
                }
            }
            _ => {
                let mut volumes = vec![volume.to_owned()];
                volumes.extend(others(cluster, volume));
                let name = format!("groupsnapshot-{}", schedule.sources().uuid());
                snapshotter::cut_group(cluster, &name, &volumes, order.limit).await;
            }
        }
    }
}

/// Another volume that is there, if there is one.
fn others(cluster: &Cluster, volume: &str) -> Option<String> {
    let book = cluster.ledger.book();
    book.volumes.values().find_map(|known| match known {
        Known::Made(id) if id != volume => Some(id.clone()),
        _ => None,
    })
}
