// SPDX-License-Identifier: Apache-2.0
//! Faults of the services behind OpenStack's APIs, and of parts of a cloud.

use std::collections::BTreeSet;
use std::time::Duration;

use openstack_sim::{Effect, Fault};

use super::{pause, running_call};
use crate::cluster::Cluster;
use crate::outages::{FailureKind, Outage, Scope};

/// Operations that a backend may fail to complete.
const WORK: [&str; 14] = [
    "create_volume",
    "delete_volume",
    "extend_volume",
    "retype_volume",
    "attach_volume",
    "detach_volume",
    "create_snapshot",
    "delete_snapshot",
    "create_backup",
    "delete_backup",
    "restore_backup",
    "create_group",
    "create_group_snapshot",
    "delete_group_snapshot",
];
/// Duration of work on a stalled backend.
const STALLED: Duration = Duration::from_hours(2);

/// Causes faults until it is dropped.
pub(super) async fn run(cluster: &Cluster) {
    tokio::join!(fail_work(cluster), stall_work(cluster), fail_parts(cluster));
}

/// Ends the faults of the backends.
pub(super) fn end(cluster: &Cluster) {
    cluster.clouds.clear_faults();
    cluster.clouds.set_latencies(cluster.latencies);
}

async fn fail_work(cluster: &Cluster) {
    let schedule = &cluster.schedule;
    loop {
        pause(cluster, "backends").await;
        if schedule.chance(10 * cluster.network.faults().work_fails) {
            let operation = schedule.one_of(&WORK);
            schedule.note(&format!("the next {operation} fails in the backend"));
            let fault = Fault::on(operation).times(1).effect(Effect::work_fails());
            if let Err(error) = cluster.clouds.fault(fault) {
                schedule.violation(&format!("the simulator refuses a fault: {error}"));
            }
        }
    }
}

/// Stalls a backend for minutes: it accepts work and does not complete it.
async fn stall_work(cluster: &Cluster) {
    let schedule = &cluster.schedule;
    loop {
        pause(cluster, "work").await;
        if !schedule.chance(cluster.network.faults().parts) {
            continue;
        }
        let name = schedule.one_of(&[
            "create", "delete", "extend", "snapshot", "backup", "retype", "group", "attach", "detach",
        ]);
        schedule.note(&format!("work of the kind {name} stalls"));
        let mut latencies = cluster.latencies;
        if let Err(error) = latencies.set(name, STALLED) {
            schedule.violation(&format!("the simulator refuses a latency: {error}"));
        }
        cluster.clouds.set_latencies(latencies);
        let time = schedule.between(Duration::from_secs(30), Duration::from_mins(20));
        schedule
            .event(time, || format!("work of the kind {name} proceeds"))
            .await;
        cluster.clouds.set_latencies(cluster.latencies);
    }
}

/// Fails a service, a cell, some hosts or the project's quota for minutes.
async fn fail_parts(cluster: &Cluster) {
    let schedule = &cluster.schedule;
    loop {
        pause(cluster, "services").await;
        if !schedule.chance(cluster.network.faults().parts) {
            continue;
        }
        running_call(cluster).await;
        let outage = draw(cluster);
        schedule.note(&format!("{outage:?}"));
        if schedule.chance(500) {
            cluster.clouds.revoke_tokens();
        }
        cluster.network.begin(outage.clone());
        let time = schedule.between(Duration::from_secs(1), Duration::from_mins(10));
        schedule.event(time, || format!("end of {outage:?}")).await;
        cluster.network.end(&outage);
    }
}

fn draw(cluster: &Cluster) -> Outage {
    let schedule = &cluster.schedule;
    let manner = schedule.one_of(&[FailureKind::Refused, FailureKind::Unavailable, FailureKind::Hangs]);
    let servers = || -> BTreeSet<String> {
        let servers = cluster.clouds.state().servers.into_iter().map(|server| server.spec.id);
        servers.filter(|_| schedule.chance(500)).collect()
    };
    match schedule.below(7) {
        0 => Outage {
            scope: Scope::Servers(servers()),
            manner,
        },
        1 => Outage {
            scope: Scope::Hosts(servers()),
            manner: FailureKind::Hangs,
        },
        2 => Outage {
            scope: Scope::Growth,
            manner: schedule.one_of(&[FailureKind::Quota, FailureKind::Policy]),
        },
        _ => Outage {
            scope: Scope::Service(schedule.one_of(&["identity", "volume", "compute"])),
            manner,
        },
    }
}
