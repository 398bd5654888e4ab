//! What happens to a cluster beside requests that fail: processes die, servers go, administrators lend a hand.

use std::sync::Arc;
use std::time::Duration;

use openstack_sim::{BackupStatus, Effect, Fault, GroupStatus, ServerSpec, SnapshotStatus, Volume, VolumeStatus};

use crate::cluster::{Cluster, ENCRYPTED, Sidecar};
use crate::ledger::Known;
use crate::node::Node;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(10);

/// Goes on until it is dropped.
pub async fn reign(cluster: Arc<Cluster>) {
    let kills = async {
        loop {
            cluster
                .schedule
                .event(LOOK, || "the processes are looked at".into())
                .await;
            let faults = cluster.network.faults();
            let schedule = &cluster.schedule;
            if schedule.chance(faults.kills) {
                let driver = schedule.one_of(&[0_usize, 1]);
                cluster.controllers[driver].kill();
                let down = schedule.between(Duration::from_secs(1), Duration::from_secs(40));
                schedule.event(down, || "a controller comes back".into()).await;
                cluster.controllers[driver].start();
            }
        }
    };
    let elections = async {
        loop {
            cluster.schedule.event(LOOK, || "Leases are looked at".into()).await;
            if cluster.schedule.chance(cluster.network.faults().elections) {
                cluster.elect(cluster.schedule.one_of(&Sidecar::ALL));
            }
        }
    };
    let keystone = async {
        loop {
            cluster.schedule.event(LOOK, || "Keystone is looked at".into()).await;
            if cluster.schedule.chance(cluster.network.faults().keystone) {
                cluster.schedule.note("Keystone goes away");
                cluster.network.set_keystone_away(true);
                if cluster.schedule.chance(500) {
                    cluster.sim.revoke_tokens();
                }
                let away = cluster.schedule.between(Duration::from_secs(1), Duration::from_mins(3));
                cluster.schedule.event(away, || "Keystone is back".into()).await;
                cluster.network.set_keystone_away(false);
            }
        }
    };
    let backend = async {
        loop {
            cluster
                .schedule
                .event(LOOK, || "the backends are looked at".into())
                .await;
            if cluster.schedule.chance(10 * cluster.network.faults().work_fails) {
                let work = [
                    "create_volume",
                    "delete_volume",
                    "extend_volume",
                    "attach_volume",
                    "detach_volume",
                    "create_snapshot",
                    "delete_snapshot",
                    "create_backup",
                    "delete_backup",
                ];
                let operation = cluster.schedule.one_of(&work);
                cluster
                    .schedule
                    .note(&format!("the next {operation} fails in the backend"));
                let fault = Fault::on(operation).times(1).effect(Effect::work_fails());
                if let Err(error) = cluster.sim.fault(fault) {
                    cluster
                        .schedule
                        .violation(&format!("the simulator refuses a fault: {error}"));
                }
            }
        }
    };
    let servers = async {
        loop {
            cluster
                .schedule
                .event(LOOK, || "the servers are looked at".into())
                .await;
            if cluster.schedule.chance(cluster.network.faults().servers) {
                trouble(&cluster).await;
            }
        }
    };
    let hands = async {
        loop {
            cluster
                .schedule
                .event(LOOK, || "an administrator comes by".into())
                .await;
            if cluster.schedule.chance(cluster.network.faults().administrator) {
                meddle(&cluster);
            }
        }
    };
    let nodes = async {
        loop {
            cluster.schedule.event(LOOK, || "the nodes are looked at".into()).await;
            if cluster.schedule.chance(cluster.network.faults().nodes) {
                disturb(&cluster).await;
            }
        }
    };
    let outages = async {
        loop {
            cluster.schedule.event(LOOK, || "the racks are looked at".into()).await;
            if cluster.schedule.chance(cluster.network.faults().outages) {
                cut_off(&cluster).await;
            }
        }
    };
    let builds = async {
        loop {
            cluster.schedule.event(LOOK, || "a user comes by".into()).await;
            if cluster.schedule.chance(cluster.network.faults().builds) {
                build(&cluster).await;
            }
        }
    };
    tokio::join!(
        kills, elections, keystone, backend, servers, hands, nodes, outages, builds
    );
}

/// Something short happens to a node.
async fn disturb(cluster: &Cluster) {
    let (schedule, Some(node)) = (&cluster.schedule, pick(cluster)) else {
        return;
    };
    let pause = |longest: u64| schedule.between(Duration::ZERO, Duration::from_secs(longest));
    match schedule.below(8) {
        0..4 => {
            node.driver().kill();
            schedule
                .event(pause(40), || format!("the driver of {} comes back", node.name()))
                .await;
            node.start_driver();
        }
        4 => {
            node.stop_kubelet();
            schedule
                .event(pause(60), || format!("the kubelet of {} comes back", node.name()))
                .await;
            node.start_kubelet();
        }
        5 | 6 => {
            node.power_off();
            schedule
                .event(pause(120), || format!("{} has rebooted", node.name()))
                .await;
            cluster.power_on(&node);
        }
        _ => {
            let volumes = node.machine().volumes();
            if volumes.is_empty() {
                return;
            }
            let volume = &volumes[usize::try_from(schedule.below(volumes.len() as u64)).unwrap_or_default()];
            schedule.note(&format!(
                "{}: an agent takes a copy of the mounts of {volume}",
                node.name()
            ));
            node.machine().mount_elsewhere(volume);
            schedule
                .event(pause(180), || format!("{}: the agent ends", node.name()))
                .await;
            node.machine().unmount_elsewhere(volume);
        }
    }
}

/// A node is away for minutes.
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

/// One server is in trouble for a while, or for good.
async fn trouble(cluster: &Cluster) {
    let schedule = &cluster.schedule;
    let nodes = cluster.nodes();
    let at = usize::try_from(schedule.below(nodes.len() as u64)).unwrap_or_default();
    let Some(node) = nodes.get(at) else { return };
    let server = node.server();
    let time = schedule.between(Duration::from_secs(5), Duration::from_mins(5));
    match schedule.below(4) {
        0 => {
            schedule.note(&format!("the host of server {server} goes down"));
            cluster.sim.set_server_down(server, true);
            // Where only Nova's service ends, the guest goes on.
            if schedule.chance(500) {
                node.power_off();
            }
            schedule
                .event(time, || format!("the host of server {server} is up again"))
                .await;
            cluster.sim.set_server_down(server, false);
            cluster.power_on(node);
        }
        1 | 2 => {
            let state = schedule.one_of(&["shelved_offloaded", "error"]);
            schedule.note(&format!("server {server} is {state}"));
            cluster.sim.set_server_state(server, state, None);
            if state != "error" || schedule.chance(500) {
                node.power_off();
            }
            schedule
                .event(time, || format!("server {server} is active again"))
                .await;
            cluster.sim.set_server_state(server, "active", None);
            cluster.power_on(node);
        }
        _ => {
            let leave = schedule.chance(500);
            let how = if leave { " by force" } else { "" };
            schedule.note(&format!("server {server} is deleted{how}"));
            cluster.sim.remove_server(server, leave);
            node.delete();
            let spec = ServerSpec::new(schedule.sources().uuid());
            let id = spec.id.clone();
            cluster.sim.add_server(spec);
            cluster.add_node(&id);
        }
    }
}

/// A user builds a server with a volume of the cluster and deletes it again. At first Cinder's attachment is all that there is: the server
/// can be seen a little later, and Nova's record when a host is found.
async fn build(cluster: &Cluster) {
    let (schedule, state) = (&cluster.schedule, cluster.sim.state());
    let free = |volume: &&Volume| {
        let book = cluster.ledger.book();
        let mut known = book.volumes.values();
        volume.status == VolumeStatus::Available && known.any(|known| *known == Known::Made(volume.id.clone()))
    };
    let free: Vec<_> = state.volumes.iter().filter(free).collect();
    let at = usize::try_from(schedule.below(free.len() as u64)).unwrap_or_default();
    let Some(volume) = free.get(at).map(|volume| volume.id.clone()) else {
        return;
    };
    let spec = ServerSpec::new(schedule.sources().uuid());
    let server = spec.id.clone();
    {
        let mut book = cluster.ledger.book();
        book.touched.insert(volume.clone(), schedule.steps());
        book.foreign.insert(server.clone());
    }
    let Some(attachment) = cluster.sim.reserve(&volume, &server) else {
        return;
    };
    schedule.note(&format!("a user builds server {server} with volume {volume}"));
    let later = |longest| schedule.between(Duration::ZERO, Duration::from_secs(longest));
    schedule
        .event(later(3), || format!("server {server} can be seen"))
        .await;
    cluster.sim.add_server(spec);
    cluster.sim.set_server_state(&server, "building", Some("scheduling"));
    schedule
        .event(later(120), || format!("server {server} has a host"))
        .await;
    if !cluster.sim.build_with(&attachment) {
        return schedule.violation(&format!(
            "attachment {attachment} of volume {volume} was removed, and server {server} is being built with it"
        ));
    }
    schedule.event(later(20), || format!("server {server} is active")).await;
    cluster.sim.set_server_state(&server, "active", None);
    schedule
        .event(later(120), || format!("server {server} is deleted"))
        .await;
    cluster.sim.remove_server(&server, false);
}

/// An administrator does something to a volume by hand.
fn meddle(cluster: &Cluster) {
    let (schedule, state) = (&cluster.schedule, cluster.sim.state());
    let touch = |volume: &str| {
        cluster
            .ledger
            .book()
            .touched
            .insert(volume.to_owned(), schedule.steps());
    };
    let pick = |count: usize| usize::try_from(schedule.below(count as u64)).unwrap_or_default();
    if schedule.chance(500) {
        let Some(mapping) = state.mappings.get(pick(state.mappings.len())) else {
            return;
        };
        touch(&mapping.volume_id);
        let done = cluster.sim.detach(&mapping.server_id, &mapping.volume_id);
        let how = if done { "detaches" } else { "would detach" };
        schedule.note(&format!(
            "an administrator {how} volume {} from {}",
            mapping.volume_id, mapping.server_id
        ));
    } else if let Some(volume) = state.volumes.get(pick(state.volumes.len()))
        && volume.volume_type != ENCRYPTED
    {
        touch(&volume.id);
        let other = if volume.volume_type == "fast" { "slow" } else { "fast" };
        schedule.note(&format!("an administrator retypes volume {} to {other}", volume.id));
        cluster
            .sim
            .set_volume(&volume.id, |volume| other.clone_into(&mut volume.volume_type));
    }
}

/// The end of all that: everything runs, and what only an administrator can put right is put right.
pub fn calm(cluster: &Cluster) {
    let faults = cluster.network.faults().over();
    cluster.network.set_faults(faults);
    cluster.network.set_keystone_away(false);
    cluster.sim.clear_faults();
    for server in cluster.ledger.book().foreign.clone() {
        cluster.sim.remove_server(&server, false);
    }
    for server in cluster.sim.state().servers {
        cluster.sim.set_server_down(&server.spec.id, false);
        cluster.sim.set_server_state(&server.spec.id, "active", None);
    }
    for driver in &cluster.controllers {
        if !driver.is_running() {
            driver.start();
        }
    }
    for node in cluster.nodes() {
        node.machine().set_faults(faults.machine);
        for volume in node.machine().volumes() {
            node.machine().unmount_elsewhere(&volume);
        }
        node.set_reports(true);
        cluster.power_on(&node);
    }
    cluster.schedule.set_calm();
    repair(cluster);
}

/// Takes volumes out of states that no user can end, and puts the links of the nodes right, as an error of the driver asks for.
pub fn repair(cluster: &Cluster) {
    for node in cluster.nodes() {
        node.machine().trigger_udev();
        node.machine().unmount_all_elsewhere();
    }
    let state = cluster.sim.state();
    for volume in &state.volumes {
        let text = volume.status.to_string();
        if text.starts_with("error_") {
            let attached = state.mappings.iter().any(|mapping| mapping.volume_id == volume.id);
            let status = if attached {
                VolumeStatus::InUse
            } else {
                VolumeStatus::Available
            };
            cluster.schedule.note(&format!(
                "an administrator resets volume {} from {text} to {status}",
                volume.id
            ));
            cluster
                .ledger
                .book()
                .touched
                .insert(volume.id.clone(), cluster.schedule.steps());
            cluster.sim.set_volume_status(&volume.id, status);
        }
    }
    for snapshot in &state.snapshots {
        if snapshot.status == SnapshotStatus::ErrorDeleting {
            cluster.schedule.note(&format!(
                "an administrator resets snapshot {} to available",
                snapshot.id
            ));
            cluster.sim.set_snapshot_status(&snapshot.id, SnapshotStatus::Available);
        }
    }
    for backup in &state.backups {
        if backup.status == BackupStatus::ErrorDeleting {
            cluster
                .schedule
                .note(&format!("an administrator resets backup {} to available", backup.id));
            cluster.sim.set_backup_status(&backup.id, BackupStatus::Available);
        }
    }
    for group in &state.groups {
        if group.status == GroupStatus::ErrorDeleting {
            cluster
                .schedule
                .note(&format!("an administrator resets group {} to available", group.id));
            cluster.sim.set_group_status(&group.id, GroupStatus::Available);
        }
    }
    for snapshot in &state.group_snapshots {
        if snapshot.status == GroupStatus::ErrorDeleting {
            cluster.schedule.note(&format!(
                "an administrator resets group snapshot {} to available",
                snapshot.id
            ));
            cluster
                .sim
                .set_group_snapshot_status(&snapshot.id, GroupStatus::Available);
        }
    }
}
