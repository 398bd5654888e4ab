// SPDX-License-Identifier: Apache-2.0
//! What happens to a cluster beside requests that fail: processes die, servers go, administrators lend a hand.

mod nodes;

use std::sync::Arc;
use std::time::Duration;

use openstack_sim::{BackupStatus, Effect, Fault, GroupStatus, SnapshotStatus, VolumeStatus};

use crate::cluster::{Cluster, ENCRYPTED, Sidecar};

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
    let pauses = async {
        loop {
            cluster
                .schedule
                .event(LOOK, || "the workloads are looked at".into())
                .await;
            if cluster.schedule.chance(cluster.network.faults().pauses) {
                cluster.schedule.note("all workloads are scaled to zero");
                cluster.scaled_down.change(|down| *down = true);
                let time = cluster.schedule.between(Duration::ZERO, Duration::from_mins(2));
                let what = || "all workloads are scaled up again".into();
                cluster.schedule.event(time, what).await;
                cluster.scaled_down.change(|down| *down = false);
            }
        }
    };
    let nodes = nodes::reign(&cluster);
    tokio::join!(kills, elections, keystone, backend, hands, pauses, nodes);
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
    cluster.scaled_down.change(|down| *down = false);
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
    nodes::calm(cluster);
    cluster.schedule.set_calm();
    repair(cluster);
}

/// Takes volumes out of states that no user can end, and puts the links of the nodes right, as an error of the driver asks for.
pub fn repair(cluster: &Cluster) {
    for node in cluster.nodes() {
        node.machine().trigger_udev();
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
