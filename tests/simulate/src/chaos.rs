// SPDX-License-Identifier: Apache-2.0
//! Faults of a cluster other than failed requests: processes end, parts of the cloud fail, administrators interfere.

mod cloud;
mod nodes;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::call::{Call, Sidecar};
use crate::cluster::Cluster;

/// The time between two decisions whether a fault begins.
const PAUSE: Duration = Duration::from_secs(10);

/// Causes faults until it is dropped.
pub async fn run(cluster: Arc<Cluster>) {
    tokio::join!(
        kill_controllers(&cluster),
        mislead_login(&cluster),
        elect_leaders(&cluster),
        interfere(&cluster),
        scale_down(&cluster),
        cloud::run(&cluster),
        nodes::run(&cluster),
    );
}

async fn kill_controllers(cluster: &Cluster) {
    let schedule = &cluster.schedule;
    loop {
        pause(cluster, "controllers").await;
        if schedule.chance(cluster.network.faults().kills) {
            running_call(cluster).await;
            let driver = schedule.one_of(&[0_usize, 1]);
            cluster.controllers[driver].kill();
            let down = schedule.between(Duration::from_secs(1), Duration::from_secs(40));
            schedule.event(down, || "a controller restarts".into()).await;
            cluster.controllers[driver].start();
        }
    }
}

async fn elect_leaders(cluster: &Cluster) {
    loop {
        pause(cluster, "Leases").await;
        if cluster.schedule.chance(cluster.network.faults().elections) {
            let call = running_call(cluster).await;
            let sidecar = call.map_or_else(|| cluster.schedule.one_of(&Sidecar::ALL), |call| call.sidecar());
            cluster.elect(sidecar);
        }
    }
}

async fn scale_down(cluster: &Cluster) {
    let schedule = &cluster.schedule;
    loop {
        pause(cluster, "workloads").await;
        if schedule.chance(cluster.network.faults().pauses) {
            schedule.note("all workloads are scaled to zero");
            cluster.scaled_down.change(|down| *down = true);
            let time = schedule.between(Duration::ZERO, Duration::from_mins(2));
            schedule
                .event(time, || "all workloads are scaled up again".into())
                .await;
            cluster.scaled_down.change(|down| *down = false);
        }
    }
}

/// Lets the credentials lead to another project for some minutes, as after a faulty rotation.
async fn mislead_login(cluster: &Cluster) {
    let schedule = &cluster.schedule;
    loop {
        pause(cluster, "credentials").await;
        if schedule.chance(cluster.network.faults().logins) {
            running_call(cluster).await;
            schedule.note("the credentials lead to another project");
            cluster.network.set_misled(true);
            cluster.clouds.revoke_tokens();
            let time = schedule.between(Duration::from_secs(1), Duration::from_mins(5));
            schedule
                .event(time, || "the credentials lead to the own project".into())
                .await;
            cluster.network.set_misled(false);
            cluster.clouds.revoke_tokens();
        }
    }
}

/// Detaches or retypes a volume as an administrator, mostly one with a running call.
async fn interfere(cluster: &Cluster) {
    let schedule = &cluster.schedule;
    loop {
        pause(cluster, "administrators").await;
        if !schedule.chance(cluster.network.faults().administrator) {
            continue;
        }
        let call = running_call(cluster).await;
        let volume = call.as_ref().and_then(Call::volume).map(str::to_owned);
        let state = cluster.clouds.state();
        let pick = |count: usize| usize::try_from(schedule.below(count as u64)).unwrap_or_default();
        let touch = |volume: &str| {
            let mut book = cluster.ledger.book();
            book.touched.insert(volume.to_owned(), schedule.steps());
        };
        let is_of_call = |id: &String| volume.as_ref().is_none_or(|volume| volume == id);
        if schedule.chance(500) {
            let mappings = state.mappings.iter().filter(|mapping| is_of_call(&mapping.volume_id));
            let mappings: Vec<_> = mappings.collect();
            let Some(mapping) = mappings.get(pick(mappings.len())) else {
                continue;
            };
            touch(&mapping.volume_id);
            let is_accepted = cluster.clouds.detach(&mapping.server_id, &mapping.volume_id);
            let how = if is_accepted { "detaches" } else { "cannot detach" };
            schedule.note(&format!(
                "an administrator {how} volume {} from {}",
                mapping.volume_id, mapping.server_id
            ));
            continue;
        }
        let volumes = state.volumes.iter().filter(|volume| is_of_call(&volume.id));
        let volumes: Vec<_> = volumes.collect();
        if let Some(volume) = volumes.get(pick(volumes.len()))
            && ["fast", "slow"].contains(&volume.volume_type.as_str())
        {
            touch(&volume.id);
            let other = if volume.volume_type == "fast" { "slow" } else { "fast" };
            schedule.note(&format!("an administrator retypes volume {} to {other}", volume.id));
            cluster
                .clouds
                .set_volume(&volume.id, |volume| other.clone_into(&mut volume.volume_type));
        }
    }
}

/// Waits for the next decision about faults of this kind.
async fn pause(cluster: &Cluster, kind: &'static str) {
    cluster
        .schedule
        .event(PAUSE, || format!("faults of {kind} may begin"))
        .await;
}

/// Waits for a call of a sidecar, and then up to some seconds. Returns `None` without a call, and at random.
async fn running_call(cluster: &Cluster) -> Option<Call> {
    let schedule = &cluster.schedule;
    if schedule.chance(200) {
        return None;
    }
    let (before, _) = cluster.calls.get();
    let called = cluster.calls.wait_for(|(count, _)| *count != before);
    timeout(PAUSE, called).await.ok()?;
    let (_, call) = cluster.calls.get();
    let time = Duration::from_millis(schedule.below(1 << schedule.below(14)));
    schedule.event(time, || "a fault meets a call".into()).await;
    call
}

/// Ends all faults, and starts all processes and machines. Stuck resources remain, see [`Cluster::repeat`].
pub fn end(cluster: &Cluster) {
    let faults = cluster.network.faults().calm();
    cluster.network.set_faults(faults);
    cluster.network.end_all();
    cluster.network.set_misled(false);
    cluster.clouds.revoke_tokens();
    cloud::end(cluster);
    cluster.scaled_down.change(|down| *down = false);
    for server in cluster.ledger.book().foreign.clone() {
        cluster.clouds.remove_server(&server, false);
    }
    let in_use = cluster.nodes();
    for server in cluster.clouds.state().servers {
        if in_use.iter().all(|node| node.server() != server.spec.id) {
            continue;
        }
        cluster.clouds.set_server_down(&server.spec.id, false);
        cluster.clouds.set_server_state(&server.spec.id, "active", None);
    }
    for driver in &cluster.controllers {
        if !driver.is_running() {
            driver.start();
        }
    }
    nodes::calm(cluster);
    cluster.schedule.set_calm();
}
