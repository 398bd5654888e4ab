// SPDX-License-Identifier: Apache-2.0
//! One run: a cluster, its clouds, a seed.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cinder_csi_driver::Environment;
use cinder_csi_driver::args::Args;
use csi_sources::Sources;
use jiff::SignedDuration;
use openstack_sim::Latencies;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::callers;
use crate::chaos;
use crate::clouds::Clouds;
use crate::cluster::Cluster;
use crate::faults::Faults;
use crate::network::Network;
use crate::node::Node;
use crate::process::{Driver, controller_args};
use crate::schedule::Schedule;

/// Limit of a run after its faults have ended. Single calls have a shorter limit, see [`Cluster::repeat`].
const REST: Duration = Duration::from_hours(3);
/// Minimum and maximum number of concurrent claims.
const CLAIMS: (u64, u64) = (4, 14);

/// Parameters of a run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Determines all random choices.
    pub seed: u64,
    /// Number of steps until the faults end.
    pub steps: u64,
    /// Whether to record the whole trace.
    pub whole: bool,
}

/// Result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub seed: u64,
    /// Total number of events.
    pub steps: u64,
    /// The first violation.
    pub violation: Option<String>,
    /// The trace, or its last lines.
    pub trace: Vec<String>,
    /// Digest of the whole trace.
    pub digest: u64,
}

/// Runs a plan in a new runtime. `folder` contains the drivers' cloud.conf.
pub fn run(plan: Plan, folder: &Path) -> std::io::Result<Report> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()?;
    runtime.block_on(simulate(plan, folder))
}

async fn simulate(plan: Plan, folder: &Path) -> std::io::Result<Report> {
    // A second installation in the same process returns an error, which is harmless.
    drop(rustls::crypto::ring::default_provider().install_default());
    let start = jiff::Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_hours(24 * 365 * 56);
    let sources = Sources::seeded(plan.seed, start);
    let schedule = Schedule::new(sources.clone(), plan.whole);
    let faults = Faults::draw(&schedule);
    schedule.note(&format!("seed {}: {faults:?}", plan.seed));
    let real = Latencies::real();
    // In a fast cloud, the driver polls before a lagging API node shows a change. A creation takes time in all clouds.
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
    let spread = u16::try_from(1 + schedule.below(8)).unwrap_or(1);
    let longest_lag = faults.longest_lag + Duration::from_secs(1);
    let clouds = Clouds::start(&sources, latencies, spread, longest_lag).await;
    let clouds = Arc::new(clouds.map_err(std::io::Error::other)?);
    let cloud_conf = folder.join("cloud.conf");
    std::fs::write(&cloud_conf, clouds.cloud_conf())?;
    let network = Network::new(schedule.clone(), clouds.clients(), faults);
    let controllers = ["controller-a", "controller-b"].map(|name| {
        let environment = Environment {
            connector: Arc::new(network.for_process(name)),
            sources: sources.shifted(clock_error(&schedule)),
            ..Environment::default()
        };
        let args = Args {
            project_id: clouds.projects(),
            ..controller_args(folder, &cloud_conf)
        };
        Driver::new(name.to_owned(), args, environment, None, schedule.clone())
    });
    let cluster = Arc::new(Cluster::new(schedule.clone(), clouds, latencies, network, controllers));
    for driver in &cluster.controllers {
        driver.start();
    }
    for server in cluster.clouds.state().servers {
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

/// Updates the storage after each change of the clouds.
async fn follow(cluster: Arc<Cluster>) {
    cluster.clouds.follow(|state| cluster.backend.follow(state)).await;
}

/// Draws the clock error of a machine.
fn clock_error(schedule: &Schedule) -> SignedDuration {
    let seconds = i64::try_from(schedule.below(1_200)).unwrap_or_default() - 600;
    SignedDuration::from_secs(if schedule.chance(500) { seconds } else { 0 })
}

/// Causes faults for this number of steps, ends them, and waits until all claims have ended.
async fn whole(cluster: Arc<Cluster>, steps: u64) {
    let schedule = cluster.schedule.clone();
    let mut claims = JoinSet::new();
    let (fewest, most) = CLAIMS;
    let at_once = fewest + schedule.below(most - fewest + 1);
    {
        let storm = chaos::run(cluster.clone());
        let life = async {
            while schedule.steps() < steps {
                while (claims.len() as u64) < at_once {
                    claims.spawn(callers::run_claim(cluster.clone()));
                }
                tokio::select! {
                    biased;
                    ended = claims.join_next() => complain(&schedule, ended),
                    () = schedule.event(Duration::from_secs(5), || "time goes on".into()) => {}
                }
                // The trace already contains the requests.
                cluster.clouds.clear_log();
            }
        };
        let beside = async { tokio::join!(run_checked(&cluster, storm), callers::list(&cluster)) };
        Box::pin(poll_both(beside, run_checked(&cluster, life))).await;
    }
    schedule.note("the faults end");
    chaos::end(&cluster);
    cluster.closing.change(|closing| *closing = true);
    let rest = async {
        while let Some(ended) = claims.join_next().await {
            complain(&schedule, Some(ended));
        }
    };
    let ended = timeout(REST, poll_both(callers::list(&cluster), run_checked(&cluster, rest))).await;
    if ended.is_err() {
        let book = cluster.ledger.book().clone();
        schedule.violation(&format!(
            "something does not end: volumes {:?}, snapshots {:?}, group snapshots {:?}, attachments {:?}",
            book.volumes, book.snapshots, book.group_snapshots, book.attachments
        ));
        return;
    }
    cluster.clouds.settled(Duration::from_mins(10)).await;
    cluster.judge.check_rest();
    cluster.nodes().iter().for_each(Node::check_at_rest);
}

/// Polls both futures until one of them ends.
async fn poll_both(beside: impl Future, work: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        _ = beside => {}
        () = work => {}
    }
}

/// Checks the clouds at each poll of `work`.
async fn run_checked(cluster: &Cluster, work: impl Future<Output = ()>) {
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|context| {
        let end = work.as_mut().poll(context);
        cluster.judge.check();
        end
    })
    .await;
}

fn complain(schedule: &Schedule, ended: Option<Result<(), tokio::task::JoinError>>) {
    if let Some(Err(error)) = ended {
        schedule.violation(&format!("a caller ended with {error}"));
    }
}
