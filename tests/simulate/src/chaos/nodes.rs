// SPDX-License-Identifier: Apache-2.0
//! Faults of nodes and their servers.

use std::time::Duration;

use openstack_sim::{ServerSpec, Volume, VolumeStatus};
use tokio::time::{sleep, timeout};

use super::{PAUSE, pause};
use crate::cluster::Cluster;
use crate::ledger::ResourceState;
use crate::machine::{Holder, Moment, StoppedDriver};
use crate::node::Node;

/// Time between two repairs of file systems.
const CHECK: Duration = Duration::from_mins(7);

/// Causes faults until it is dropped.
pub(super) async fn run(cluster: &Cluster) {
    let servers = async {
        loop {
            pause(cluster, "servers").await;
            if cluster.schedule.chance(cluster.network.faults().servers) {
                trouble(cluster).await;
            }
        }
    };
    let outages = async {
        loop {
            pause(cluster, "racks").await;
            if cluster.schedule.chance(cluster.network.faults().outages) {
                cut_off(cluster).await;
            }
        }
    };
    let builds = async {
        loop {
            let volume = next_volume(cluster).await;
            if cluster.schedule.chance(cluster.network.faults().builds)
                && let Some(volume) = volume
            {
                build(cluster, &volume).await;
            }
        }
    };
    let checks = async {
        loop {
            cluster
                .schedule
                .event(CHECK, || "file systems are checked by hand".into())
                .await;
            cluster.backend.repair();
        }
    };
    // Two independent sequences.
    tokio::join!(
        servers,
        outages,
        builds,
        checks,
        disturb_some(cluster),
        disturb_some(cluster)
    );
}

/// Ends the faults of all nodes. Some agents remain.
pub(super) fn calm(cluster: &Cluster) {
    let faults = cluster.network.faults().machine;
    let keep_harmless = cluster.schedule.chance(500);
    cluster.backend.repair();
    for node in cluster.nodes() {
        node.machine().set_faults(faults);
        node.machine().release_all_elsewhere(keep_harmless);
        node.set_reports(true);
        cluster.power_on(&node);
    }
}

async fn disturb_some(cluster: &Cluster) {
    loop {
        pause(cluster, "nodes").await;
        if cluster.schedule.chance(cluster.network.faults().nodes)
            && let Some(node) = pick(cluster)
        {
            disturb(cluster, &node).await;
        }
    }
}

/// Causes a short fault on a node.
async fn disturb(cluster: &Cluster, node: &Node) {
    let schedule = &cluster.schedule;
    // Dropped after the process, the node or the disk has ended.
    let stopped = if schedule.chance(800) {
        aim(cluster, node).await
    } else {
        None
    };
    let pause = |longest: u64| schedule.between(Duration::ZERO, Duration::from_secs(longest));
    match schedule.below(12) {
        0..4 => {
            node.driver().kill();
            drop(stopped);
            schedule
                .event(pause(40), || format!("the driver of {} comes back", node.name()))
                .await;
            node.start_driver();
        }
        4 => {
            node.stop_kubelet();
            drop(stopped);
            schedule
                .event(pause(60), || format!("the kubelet of {} comes back", node.name()))
                .await;
            node.start_kubelet();
        }
        5 | 6 => {
            node.power_off();
            drop(stopped);
            schedule
                .event(pause(120), || format!("{} has rebooted", node.name()))
                .await;
            cluster.power_on(node);
        }
        7 | 8 => unplug(cluster, node),
        _ => {
            let Some(volume) = pick_volume(cluster, node) else {
                return;
            };
            let holder = schedule.one_of(&Holder::ALL);
            schedule.note(&format!("{}: an agent uses {volume}: {holder:?}", node.name()));
            node.machine().hold_elsewhere(&volume, holder);
            drop(stopped);
            if schedule.chance(300) {
                // The fault lasts until the end of all faults or a reboot.
                return;
            }
            schedule
                .event(pause(180), || format!("{}: the agent ends", node.name()))
                .await;
            node.machine().release_elsewhere(&volume);
        }
    }
}

/// Waits for a call of the driver. Usually stops the driver at a random point: before a system call, after a mount, or
/// within a program.
async fn aim(cluster: &Cluster, node: &Node) -> Option<StoppedDriver> {
    let schedule = &cluster.schedule;
    let _ = timeout(Duration::from_mins(1), node.called()).await;
    if schedule.chance(300) {
        // Waits up to some seconds, in which a volume may be formatted.
        sleep(Duration::from_millis(schedule.below(1 << schedule.below(14)))).await;
        return None;
    }
    let moment = schedule.one_of(&Moment::ALL);
    let after = match moment {
        Moment::SystemCall => schedule.below(60),
        Moment::Mount | Moment::Program => schedule.below(5),
    };
    node.machine().stop_at(moment, after, PAUSE).await
}

fn pick_volume(cluster: &Cluster, node: &Node) -> Option<String> {
    let volumes = node.machine().volumes();
    let at = usize::try_from(cluster.schedule.below(volumes.len() as u64)).unwrap_or_default();
    volumes.get(at).cloned()
}

/// Detaches a volume in use, as an administrator does.
fn unplug(cluster: &Cluster, node: &Node) {
    let Some(volume) = pick_volume(cluster, node) else {
        return;
    };
    let steps = cluster.schedule.steps();
    cluster.ledger.book().touched.insert(volume.clone(), steps);
    if cluster.clouds.detach(node.server(), &volume) {
        cluster.schedule.note(&format!(
            "an administrator detaches volume {volume} from {}",
            node.name()
        ));
    }
    cluster.backend.follow(&cluster.clouds.state());
}

/// Disconnects a node for minutes.
async fn cut_off(cluster: &Cluster) {
    let (schedule, Some(node)) = (&cluster.schedule, pick(cluster)) else {
        return;
    };
    let time = schedule.between(Duration::from_secs(30), Duration::from_mins(15));
    if schedule.chance(500) {
        node.power_off();
        schedule
            .event(time, || format!("{} has power again", node.name()))
            .await;
        cluster.power_on(&node);
    } else {
        node.set_reports(false);
        schedule
            .event(time, || format!("{} is reached again", node.name()))
            .await;
        node.set_reports(true);
    }
}

fn pick(cluster: &Cluster) -> Option<Node> {
    let mut nodes = cluster.nodes();
    nodes.retain(|node| node.condition().is_on());
    let at = usize::try_from(cluster.schedule.below(nodes.len() as u64)).unwrap_or_default();
    nodes.get(at).cloned()
}

/// Deactivates a server for minutes or permanently.
async fn trouble(cluster: &Cluster) {
    let schedule = &cluster.schedule;
    let nodes = cluster.nodes();
    let at = usize::try_from(schedule.below(nodes.len() as u64)).unwrap_or_default();
    let Some(node) = nodes.get(at) else { return };
    let server = node.server();
    let time = schedule.between(Duration::from_secs(5), Duration::from_mins(5));
    match schedule.below(6) {
        0 => {
            schedule.note(&format!("the host of server {server} goes down"));
            cluster.clouds.set_server_down(server, true);
            // If only Nova's compute service ends, the guest continues to run.
            if schedule.chance(500) {
                node.power_off();
            }
            schedule
                .event(time, || format!("the host of server {server} is up again"))
                .await;
            cluster.clouds.set_server_down(server, false);
            cluster.power_on(node);
        }
        1 | 2 => {
            let state = schedule.one_of(&["shelved", "shelved_offloaded", "error"]);
            schedule.note(&format!("server {server} is {state}"));
            cluster.clouds.set_server_state(server, state, None);
            if state != "error" && schedule.chance(300) {
                // The outage is permanent, so the node is replaced.
                replace(cluster, node).await;
                return;
            }
            if state != "error" || schedule.chance(500) {
                node.power_off();
            }
            schedule
                .event(time, || format!("server {server} is active again"))
                .await;
            cluster.clouds.set_server_state(server, "active", None);
            cluster.power_on(node);
        }
        _ => {
            let leave = schedule.chance(600);
            let how = if leave { " by force" } else { "" };
            schedule.note(&format!("server {server} is deleted{how}"));
            let remove = async { cluster.clouds.remove_server(server, leave) };
            tokio::join!(replace(cluster, node), remove);
        }
    }
}

/// Removes a node, and adds one with a new server in the same cloud. Its boot takes longer than the lag of an API node.
async fn replace(cluster: &Cluster, node: &Node) {
    let spec = ServerSpec::new(cluster.schedule.sources().uuid());
    let id = spec.id.clone();
    cluster.clouds.add_server(spec, node.server());
    node.delete();
    cluster
        .schedule
        .event(Duration::from_secs(5), || format!("server {id} has booted"))
        .await;
    cluster.add_node(&id);
}

/// Returns the volume for a user's next server: that of a new pod, or any free one.
async fn next_volume(cluster: &Cluster) -> Option<String> {
    let schedule = &cluster.schedule;
    if schedule.chance(700) {
        let (before, _) = cluster.pods.get();
        let came = cluster.pods.wait_for(|(count, _)| *count != before);
        timeout(PAUSE, came).await.ok()?;
        let (_, volume) = cluster.pods.get();
        sleep(Duration::from_millis(schedule.below(1 << schedule.below(10)))).await;
        return Some(volume);
    }
    pause(cluster, "users").await;
    let state = cluster.clouds.state();
    let book = cluster.ledger.book();
    let free = |volume: &&Volume| {
        let mut known = book.volumes.values();
        volume.status == VolumeStatus::Available && known.any(|known| *known == ResourceState::Made(volume.id.clone()))
    };
    let free: Vec<_> = state.volumes.iter().filter(free).collect();
    let at = usize::try_from(schedule.below(free.len() as u64)).unwrap_or_default();
    free.get(at).map(|volume| volume.id.clone())
}

/// Builds a server with a volume of the cluster as another user does, and deletes it. Initially, only Cinder's
/// attachment exists. The server becomes visible later, and Nova's record exists when a host is selected.
async fn build(cluster: &Cluster, volume: &str) {
    let schedule = &cluster.schedule;
    let spec = ServerSpec::new(schedule.sources().uuid());
    let server = spec.id.clone();
    let Some(attachment) = cluster.clouds.reserve(volume, &server) else {
        return;
    };
    {
        let mut book = cluster.ledger.book();
        book.touched.insert(volume.to_owned(), schedule.steps());
        book.foreign.insert(server.clone());
    }
    schedule.note(&format!("a user builds server {server} with volume {volume}"));
    let later = |longest| schedule.between(Duration::ZERO, Duration::from_secs(longest));
    schedule
        .event(later(3), || format!("server {server} can be seen"))
        .await;
    cluster.clouds.add_server(spec, volume);
    cluster.clouds.set_server_state(&server, "building", Some("scheduling"));
    schedule
        .event(later(120), || format!("server {server} has a host"))
        .await;
    if !cluster.clouds.build_with(&attachment) {
        return schedule.violation(&format!(
            "attachment {attachment} of volume {volume} was removed, and server {server} is being built with it"
        ));
    }
    schedule.event(later(20), || format!("server {server} is active")).await;
    cluster.clouds.set_server_state(&server, "active", None);
    schedule
        .event(later(120), || format!("server {server} is deleted"))
        .await;
    cluster.clouds.remove_server(&server, false);
}
