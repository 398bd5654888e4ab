// SPDX-License-Identifier: Apache-2.0
//! Runs Kubernetes' own storage tests ("External Storage"), on a cluster with our operator and driver, or with the Go
//! driver from its own manifests.
//!
//! `e2e.test` and ginkgo come from the pinned Kubernetes (`tests/tools/build e2e`). The descriptions of the drivers are
//! in `tests/suites/external-storage`, and the expectations in `tests/suites/expected/kubernetes-e2e.json`. Results are
//! stored in `target/kubernetes-e2e`, from which the table of both drivers is generated.

mod cloud;
mod driver;
mod images;
mod kept;
mod suite;
mod verdict;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};
use harness::Tools;
use suites::cluster::World;

use cloud::CloudKind;
use driver::Driver;
use kept::StoredResults;
use verdict::Expected;

/// Runs Kubernetes' External Storage tests against a driver.
#[derive(Debug, Parser)]
#[command(name = "kubernetes-e2e")]
struct Arguments {
    /// The OpenStack whose servers are the nodes
    #[arg(long, value_enum, default_value = "simulator")]
    cloud: CloudKind,
    /// Driver to test
    #[arg(long, value_enum, default_value = "ours")]
    driver: Choice,
    /// Number of parallel specs
    #[arg(long, default_value_t = 4)]
    procs: u8,
    /// Regular expression that the names of the specs must match in addition
    #[arg(long)]
    focus: Option<String>,
    /// Keep the cluster after an unexpected result (`harness down` removes it)
    #[arg(long)]
    keep: bool,
    /// Only print the table of the runs so far
    #[arg(long)]
    table: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Choice {
    /// Our driver, installed by the operator.
    Ours,
    /// The Go driver, installed from its own manifests.
    Go,
    /// Both, one after the other.
    Both,
}

impl Choice {
    const fn drivers(self) -> &'static [Driver] {
        match self {
            Self::Ours => &[Driver::Ours],
            Self::Go => &[Driver::Go],
            Self::Both => &Driver::ALL,
        }
    }
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
    let mut judged = Ok(());
    if !arguments.table {
        let tools = Tools::modules(&["e2e"]).await?;
        for driver in arguments.driver.drivers() {
            let of_one = run_driver(*driver, &tools, arguments).await;
            judged = judged.and(of_one.with_context(|| driver.title()));
            if arguments.keep && judged.is_err() {
                break;
            }
        }
    }
    let all = Driver::ALL.map(|driver| StoredResults::read(driver, arguments.cloud).map(|kept| (driver, kept)));
    let all = all.into_iter().collect::<Result<Vec<_>>>()?;
    println!("{}", kept::table(arguments.cloud, &all));
    judged
}

/// Runs the suite on one driver in its own cluster.
async fn run_driver(driver: Driver, tools: &Tools, arguments: &Arguments) -> Result<()> {
    let expected = Expected::read(driver)?;
    let world = driver.cluster(arguments.cloud).await?;
    let judged = of_world(&world, driver, tools, arguments, &expected).await;
    if judged.is_err() {
        let logs = world.cluster.collect_logs().await?;
        eprintln!("logs: {}", logs.display());
    }
    if judged.is_err() && arguments.keep {
        eprintln!("{}", world.cluster.how_to_reach()?);
        world.cluster.detach_run()?;
        return judged;
    }
    judged.and(world.stop().await)
}

async fn of_world(
    world: &World,
    driver: Driver,
    tools: &Tools,
    arguments: &Arguments,
    expected: &Expected,
) -> Result<()> {
    suite::load_images(world, tools).await?;
    driver.prepare(world, arguments.cloud).await?;
    let (run, specs) = suite::run(world, tools, driver, arguments).await?;
    let mut results = StoredResults::read(driver, arguments.cloud)?;
    results.add(run, &specs);
    results.write(driver, arguments.cloud)?;
    verdict::report(&specs);
    let judged = expected.compare(&specs, arguments.focus.is_none());
    judged.and(world.nothing_left().await)
}

/// Converts a path to an argument.
fn text(path: &Path) -> Result<&str> {
    path.to_str()
        .with_context(|| format!("{} is not UTF-8", path.display()))
}
