// SPDX-License-Identifier: Apache-2.0
//! One run: a cluster, a cloud, a seed.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cinder_csi_driver::Environment;
use csi_sources::Sources;
use openstack_sim::{CloudState, Latencies, ServerSpec, Sim, SimConfig, VolumeType};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::callers;
use crate::chaos;
use crate::cluster::{Cluster, ENCRYPTED};
use crate::faults::Faults;
use crate::network::Network;
use crate::node::Node;
use crate::process::{Driver, controller_args};
use crate::schedule::Schedule;

/// How long everything that is under way may take once nothing goes wrong any more: the longest pause of a work queue, the
/// longest operation, and a deletion that waits for what depends on the volume.
const REST: Duration = Duration::from_hours(3);
/// Claims that live at once, at least and at most.
const CLAIMS: (u64, u64) = (4, 14);
/// Servers at the start.
const NODES: usize = 3;

/// What a run is made of.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Decides everything.
    pub seed: u64,
    /// Faults end after so many steps.
    pub steps: u64,
    /// Keep the whole trace.
    pub whole: bool,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// Events in all.
    pub steps: u64,
    /// What happened that must not.
    pub violation: Option<String>,
    /// The trace, or its end.
    pub trace: Vec<String>,
    /// A digest of the whole trace.
    pub digest: u64,
}

/// Runs a plan in a runtime of its own. `folder` holds the drivers' cloud.conf.
pub fn run(plan: Plan, folder: &Path) -> std::io::Result<Report> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()?;
    runtime.block_on(simulate(plan, folder))
}

async fn simulate(plan: Plan, folder: &Path) -> std::io::Result<Report> {
    // Each process installs it once; a second time changes nothing.
    drop(rustls::crypto::ring::default_provider().install_default());
    let start = jiff::Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_hours(24 * 365 * 56);
    let sources = Sources::seeded(plan.seed, start);
    let schedule = Schedule::new(sources.clone(), plan.whole);
    let faults = Faults::draw(&schedule);
    schedule.note(&format!("seed {}: {faults:?}", plan.seed));
    let real = Latencies::real();
    // In a fast cloud the first look comes before a lagging API node shows anything. What is made takes its time everywhere.
    let latencies = if schedule.chance(400) {
        Latencies {
            create: real.create,
            snapshot: real.snapshot,
            backup: real.backup,
            ..Latencies::default()
        }
    } else {
        real
    };
    let config = SimConfig {
        sources: sources.clone(),
        latencies,
        spread: u16::try_from(1 + schedule.below(8)).unwrap_or(1),
        longest_lag: faults.longest_lag + Duration::from_secs(1),
        volume_types: vec![VolumeType::new("fast"), VolumeType::new("slow"), encrypted()],
        servers: (1..=NODES).map(|_| ServerSpec::new(sources.uuid())).collect(),
        token_lifetime: Duration::from_mins(30),
        ..SimConfig::default()
    };
    let sim = Sim::direct(config).await.map_err(std::io::Error::other)?;
    let cloud_conf = folder.join("cloud.conf");
    std::fs::write(&cloud_conf, sim.access().cloud_conf())?;
    let network = Network::new(schedule.clone(), sim.client(), faults);
    let controllers = ["controller-a", "controller-b"].map(|name| {
        let environment = Environment {
            connector: Arc::new(network.of(name)),
            sources: sources.clone(),
            ..Environment::default()
        };
        Driver::new(
            name.to_owned(),
            controller_args(folder, &cloud_conf),
            environment,
            None,
            schedule.clone(),
        )
    });
    let cluster = Arc::new(Cluster::new(schedule.clone(), Arc::new(sim), network, controllers));
    for driver in &cluster.controllers {
        driver.start();
    }
    for server in cluster.sim.state().servers {
        cluster.add_node(&server.spec.id);
    }
    tokio::spawn(follow(cluster.clone()));
    tokio::select! {
        biased;
        () = schedule.ended() => {}
        () = whole(cluster.clone(), plan.steps) => {}
    }
    for driver in &cluster.controllers {
        driver.kill();
    }
    for node in cluster.nodes() {
        node.driver().kill();
    }
    let (trace, digest) = schedule.trace();
    Ok(Report {
        seed: plan.seed,
        steps: schedule.steps(),
        violation: schedule.violated(),
        trace,
        digest,
    })
}

/// Lets the storage follow the cloud.
async fn follow(cluster: Arc<Cluster>) {
    let never = Duration::from_hours(24 * 365);
    let each = |state: &CloudState| {
        cluster.backend.follow(state);
        false
    };
    cluster.sim.wait_until(never, each).await;
}

/// Faults, then a calm in which everything comes to its end.
async fn whole(cluster: Arc<Cluster>, steps: u64) {
    let schedule = cluster.schedule.clone();
    let mut claims = JoinSet::new();
    let (fewest, most) = CLAIMS;
    let at_once = fewest + schedule.below(most - fewest + 1);
    {
        let storm = chaos::reign(cluster.clone());
        let life = async {
            while schedule.steps() < steps {
                while (claims.len() as u64) < at_once {
                    claims.spawn(callers::live(cluster.clone()));
                }
                tokio::select! {
                    biased;
                    ended = claims.join_next() => complain(&schedule, ended),
                    () = schedule.event(Duration::from_secs(5), || "time goes on".into()) => {}
                }
                // What is asked of the cloud is in the trace.
                cluster.sim.clear_log();
            }
        };
        until(judged(&cluster, storm), judged(&cluster, life)).await;
    }
    schedule.note("the faults end");
    chaos::calm(&cluster);
    cluster.closing.change(|closing| *closing = true);
    let rest = async {
        while let Some(ended) = claims.join_next().await {
            complain(&schedule, Some(ended));
        }
    };
    let repairs = async {
        loop {
            schedule
                .event(Duration::from_mins(10), || "an administrator looks around".into())
                .await;
            chaos::repair(&cluster);
        }
    };
    let ended = timeout(REST, until(repairs, judged(&cluster, rest))).await;
    if ended.is_err() {
        let book = cluster.ledger.book().clone();
        schedule.violation(&format!(
            "something does not end: volumes {:?}, snapshots {:?}, group snapshots {:?}, attachments {:?}",
            book.volumes, book.snapshots, book.group_snapshots, book.attachments
        ));
        return;
    }
    cluster.sim.settled(Duration::from_mins(10)).await;
    cluster.judge.look_at_rest();
    cluster.nodes().iter().for_each(Node::check_at_rest);
}

fn encrypted() -> VolumeType {
    VolumeType {
        encrypted: true,
        ..VolumeType::new(ENCRYPTED)
    }
}

/// Polls `beside` for as long as `work` lasts.
async fn until(beside: impl Future<Output = ()>, work: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = beside => {}
        () = work => {}
    }
}

/// Looks at the cloud at each change of it while `work` lasts.
async fn judged(cluster: &Cluster, work: impl Future<Output = ()>) {
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|context| {
        let end = work.as_mut().poll(context);
        cluster.judge.look();
        end
    })
    .await;
}

fn complain(schedule: &Schedule, ended: Option<Result<(), tokio::task::JoinError>>) {
    if let Some(Err(error)) = ended {
        schedule.violation(&format!("a caller ended with {error}"));
    }
}
