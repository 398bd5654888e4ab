//! Kubernetes' own tests of a storage driver («External Storage»), on a cluster with our operator and driver.
//!
//! `e2e.test` and ginkgo come from the pinned Kubernetes (`tests/tools/build e2e`), the descriptions of the driver from
//! `tests/suites/external-storage`, what is expected of the run from `tests/suites/expected/kubernetes-e2e.json`.

mod images;
mod verdict;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, ValueEnum};
use harness::{
    CloudConfig, Cluster, ClusterConfig, Command, Progress, SimulatorConfig, Tools, wait_for, workspace_root,
};
use suites::cluster::{PATIENCE, World};
use suites::ginkgo::{self, Outcome, Spec};
use suites::simulator::REAL_LATENCIES;

use verdict::Expected;

/// The whole selection takes 20 minutes; this is the point where something hangs.
const LIMIT: Duration = Duration::from_mins(75);
/// What ginkgo is given to end by itself before it is ended.
const GRACE: Duration = Duration::from_mins(3);

/// The descriptions of the driver, and what a run chooses of the specs that each of them makes.
const DESCRIPTIONS: [(&str, &str); 4] = [
    ("ordinary", r"\] \[Testpattern"),
    (
        "shared",
        r".*\[Class: shared\] .*(\(block volmode\)\] multiVolume .*from pods on different node|ROX mode)",
    ),
    ("one-zone", r".*\[Class: one-zone\] .* volumegroupsnapshot"),
    ("immediate", r".*\[Class: immediate\] .* volume-modify-stress"),
];
/// Nodes of another kind; populators of volumes that nobody has installed; and restores from group snapshots, for which the suite
/// asks for 1 MiB whatever a description says: csi-provisioner refuses a claim smaller than its snapshot, and the specs wait for a
/// quarter of an hour each.
const LEFT_OUT: &str =
    r"\[Feature:Windows\]|with any volume data source|should create snapshots for StatefulSet volumes and verify";

/// Runs Kubernetes' External Storage tests against the driver.
#[derive(Debug, Parser)]
#[command(name = "kubernetes-e2e")]
struct Arguments {
    /// Which OpenStack the nodes are servers of
    #[arg(long, value_enum, default_value = "simulator")]
    cloud: CloudKind,
    /// How many specs at a time
    #[arg(long, default_value_t = 4)]
    procs: u8,
    /// Only specs whose names match this regular expression, too
    #[arg(long)]
    focus: Option<String>,
    /// Leave the cluster for a look when something is not as expected (`harness down` removes it)
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum CloudKind {
    /// The simulator, with loop devices and the latencies of real services.
    Simulator,
    /// Keystone, Cinder and Nova of `tests/openstack`.
    Real,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kubernetes-e2e: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<()> {
    let tools = Tools::modules(&["e2e"]).await?;
    let expected = Expected::read("ours")?;
    let world = match arguments.cloud {
        CloudKind::Simulator => World::install(Cluster::start(three_nodes()).await?).await?,
        CloudKind::Real => World::on_real_services(Progress::loud()).await?,
    };
    let judged = async {
        prepare(&world, &tools).await?;
        let specs = suite(&world, &tools, arguments).await?;
        report(&specs);
        let judged = expected.compare(&specs, arguments.focus.is_none());
        judged.and(world.nothing_left().await)
    }
    .await;
    if judged.is_err() {
        let logs = world.cluster.collect_logs().await?;
        eprintln!("logs: {}", logs.display());
    }
    if judged.is_err() && arguments.keep {
        eprintln!("{}", world.cluster.how_to_reach()?);
        world.cluster.keep()?;
        return judged;
    }
    judged.and(world.stop().await)
}

/// Two nodes in one zone and one in another, so that there is something to choose.
fn three_nodes() -> ClusterConfig {
    let mut config = ClusterConfig::with_nodes(3);
    if let Some(last) = config.nodes.last_mut() {
        "far".clone_into(&mut last.zone);
    }
    let words = [
        "--zone",
        "nova",
        "--zone",
        "far",
        "--volume-type",
        "fast",
        "--volume-type",
        "slow",
        "--volume-type",
        "multi,multiattach",
        "--latency",
        REAL_LATENCIES,
    ];
    config.cloud = CloudConfig::Simulator(SimulatorConfig {
        args: words.map(str::to_owned).to_vec(),
    });
    config
}

/// Makes the images known, and asks for the driver with the classes that the descriptions name.
async fn prepare(world: &World, tools: &Tools) -> Result<()> {
    let cluster = &world.cluster;
    cluster.progress().say("importing the images of the specs' pods");
    let list = Command::new(tools.path("e2e.test")?)
        .arg("--list-images")
        .output()
        .await?;
    for image in images::all(&list, tools).await? {
        cluster.import(&image).await?;
    }
    cluster.progress().say("asking for the driver with all its classes");
    let kinds = text(cluster.tools().path("snapshot-crds")?)?;
    cluster.kubectl(&["apply", "-f", kinds]).await?;
    cluster.kubectl(&["apply", "-f", text(&description("ours"))?]).await?;
    world.healthy().await?;
    world
        .condition("SnapshotsReady", "True", |found| found["reason"] == "AsExpected")
        .await?;
    wait_for("the classes", PATIENCE, async || {
        for name in [
            "storageclass/ordinary",
            "volumegroupsnapshotclass/together",
            "volumeattributesclass/archive",
        ] {
            cluster.kubectl(&["get", name]).await?;
        }
        Ok(())
    })
    .await
}

/// Runs the chosen specs to their end and returns what was reported.
async fn suite(world: &World, tools: &Tools, arguments: &Arguments) -> Result<Vec<Spec>> {
    let cluster = &world.cluster;
    let logs = cluster.logs()?;
    let (report, log) = (logs.join("kubernetes-e2e.json"), logs.join("kubernetes-e2e.log"));
    let mut words = vec![
        text(tools.path("ginkgo")?)?.to_owned(),
        format!("--procs={}", arguments.procs),
        format!("--timeout={}s", LIMIT.as_secs()),
        format!("--grace-period={}s", GRACE.as_secs()),
        format!("--json-report={}", text(&report)?),
        format!("--skip={LEFT_OUT}"),
        "--no-color".to_owned(),
        "--seed=1".to_owned(),
    ];
    // ginkgo takes what matches any of them.
    let focus = arguments
        .focus
        .as_ref()
        .map_or_else(String::new, |focus| format!(".*(?:{focus})"));
    words.extend(DESCRIPTIONS.map(|(_, chosen)| format!(r"--focus=External.Storage \[Driver: [^\]]*{chosen}{focus}")));
    words.extend([text(tools.path("e2e.test")?)?.to_owned(), "--".to_owned()]);
    for (name, _) in DESCRIPTIONS {
        words.push(format!("--storage.testdriver={}", text(&description(name))?));
    }
    words.extend([
        "--provider=skeleton".to_owned(),
        format!("--kubeconfig={}", text(&cluster.kubeconfig()?)?),
        format!("--kubectl-path={}", text(cluster.tools().path("kubectl")?)?),
    ]);
    cluster.progress().say(format!(
        "running the suite, {} specs at a time; log: {}",
        arguments.procs,
        log.display()
    ));
    let started = Instant::now();
    // In the first node's namespaces: it ends with them.
    let mut shell = vec!["sh", "-c", "exec \"$@\" >\"$0\" 2>&1", text(&log)?];
    shell.extend(words.iter().map(String::as_str));
    let ended = cluster.first_node()?.exec_within(LIMIT + 2 * GRACE, &shell).await;
    cluster
        .progress()
        .say(format!("the suite ended after {} s", started.elapsed().as_secs()));
    // It fails when a spec does; which one, the report says.
    let specs =
        ginkgo::read(&report).with_context(|| format!("ginkgo ended so: {ended:?}; its log is {}", log.display()))?;
    ensure!(
        verdict::chosen(&specs).next().is_some(),
        "no spec was chosen; ginkgo's log is {}",
        log.display()
    );
    Ok(specs)
}

/// Prints what was seen: failures, what was not run by its reasons, the slowest specs, and the sums.
fn report(specs: &[Spec]) {
    let mut reasons = std::collections::BTreeMap::<&str, usize>::new();
    for spec in verdict::chosen(specs) {
        match &spec.outcome {
            Outcome::Failed(said) => println!("FAILED {} ({:.0} s)\n    {said}", spec.name, spec.seconds),
            Outcome::Skipped(said) => *reasons.entry(said).or_default() += 1,
            Outcome::Passed | Outcome::Pending => {}
        }
    }
    for (reason, count) in reasons {
        println!("not run: {count} × {reason}");
    }
    let mut slowest: Vec<_> = verdict::chosen(specs).collect();
    slowest.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    for spec in slowest.iter().take(10) {
        println!("{:6.0} s {}", spec.seconds, spec.name);
    }
    let count = verdict::count(specs);
    println!(
        "{} selected: {} passed, {} failed, {} not run",
        count.selected, count.passed, count.failed, count.not_run
    );
}

fn description(name: &str) -> PathBuf {
    workspace_root().join(format!("tests/suites/external-storage/{name}.yaml"))
}

fn text(path: &Path) -> Result<&str> {
    path.to_str()
        .with_context(|| format!("{} is not UTF-8", path.display()))
}
