// SPDX-License-Identifier: Apache-2.0
//! Compares both drivers on the same cloud in the same run, with one process per role. Measures OpenStack requests,
//! elapsed time, processor time and memory of a volume's lifecycle, sequentially and in crowds. Prints a table with
//! ratios and goals.
//!
//! A missed goal is not a failure: figures from a busy machine are comparable only within one run, and need
//! interpretation. Further subjects are both drivers behind the sidecars in a cluster ([`mod@claims`]), and their lists of
//! a large project ([`mod@list`]). The subject [`mod@operator`] measures the operator against the API server of a large
//! cluster.

use std::iter;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};
use harness::{Profile, Progress, release_driver, release_operator};
use suites::lab::in_lab;

mod claims;
mod cloud;
mod list;
mod measure;
mod operator;
mod process;
mod run;
mod table;

use run::Plan;

/// Compares both drivers on the same cloud, then measures the operator in a large cluster.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Subjects to measure, in this order.
    #[arg(long = "subject", value_enum, value_delimiter = ',', default_values_t = [Subject::Drivers, Subject::Claims, Subject::List, Subject::Operator])]
    subjects: Vec<Subject>,
    /// Clouds to use, in this order. The default is all clouds for drivers, and real services for claims.
    #[arg(long = "cloud", value_enum)]
    clouds: Vec<Kind>,
    /// Number of sequential volume lifecycles; the figures are per lifecycle.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    lives: u32,
    /// Sizes of the crowds: volumes at once on one server; 0 skips crowds.
    #[arg(long = "crowd", value_delimiter = ',', default_values_t = [40, 100], value_parser = clap::value_parser!(u32).range(0..=200))]
    crowds: Vec<u32>,
    /// Number of sequential claims with a pod each, per driver.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    claims: u32,
    /// Number of claims at once; 0 skips this measurement.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=200))]
    claims_at_once: u32,
    /// Seconds of observation of each idle driver; 0 skips this measurement.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=600))]
    idle: u32,
    /// Number of volumes in the project that is listed.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    listed: u32,
    /// Number of nodes of the operator's large cluster.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    nodes: u32,
    /// Number of PersistentVolumes of the operator's large cluster.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    volumes: u32,
    /// Number of pods in each of the operator's clusters, including one driver pod per node: at least the number of
    /// nodes.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pods: u32,
    /// Number of spec changes in each of the operator's clusters. With 0, the large cluster gets one change, and the
    /// second cluster (1,000 nodes, 10,000 volumes) is skipped.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    changes: u32,
}

/// A subject to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// Both drivers, as processes that receive direct calls.
    Drivers,
    /// Both drivers, each in its own cluster.
    Claims,
    /// Both drivers' lists of all volumes, page by page, while some volumes change.
    List,
    /// The operator.
    Operator,
}

/// A cloud to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// The simulator without latencies.
    AtOnce,
    /// The simulator with the latencies of real services.
    Simulated,
    /// Real Keystone, Cinder and Nova.
    Real,
}

impl Kind {
    const fn title(self) -> &'static str {
        match self {
            Self::AtOnce => "Simulator that finishes everything at once",
            Self::Simulated => "Simulator with the latencies of real services",
            Self::Real => "Real Keystone, Cinder and Nova",
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    for subject in &args.subjects {
        let measured = match subject {
            Subject::Drivers => drivers(&args),
            Subject::Claims => claims(&args),
            Subject::List => list(&args),
            Subject::Operator => operator(&args),
        };
        if let Err(error) = measured {
            eprintln!("bench: {error:#}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

// The measured processes run in their own namespaces. A failure there panics with the whole error chain, and the exit
// status is not 0.

fn drivers(args: &Args) -> Result<()> {
    let plan = Plan {
        lives: args.lives,
        crowds: args.crowds.iter().copied().filter(|size| *size > 0).collect(),
        idle: Duration::from_secs(args.idle.into()),
    };
    let program = build(release_driver)?;
    for kind in clouds(args, &[Kind::AtOnce, Kind::Simulated, Kind::Real]) {
        eprintln!(
            "bench: {} ({} lives, then {:?} at once, for each driver)",
            kind.title(),
            plan.lives,
            plan.crowds
        );
        let (program, plan) = (program.clone(), plan.clone());
        in_lab(async move |lab| {
            let figures = run::both(&lab, kind, &plan, &program).await;
            let (ours, go) = figures.context(kind.title())?;
            println!("{}", table::render(kind, &ours, &go));
            Ok(())
        });
    }
    Ok(())
}

fn claims(args: &Args) -> Result<()> {
    let plan = claims::Plan {
        alone: args.claims,
        crowd: args.claims_at_once,
        idle: Duration::from_secs(args.idle.into()),
    };
    for kind in clouds(args, &[Kind::Real]) {
        eprintln!(
            "bench: claims, {} ({} one after the other, then {} at once, for each driver)",
            kind.title(),
            plan.alone,
            plan.crowd
        );
        let (ours, go) = runtime()?.block_on(claims::both(kind, plan)).context(kind.title())?;
        println!("{}", claims::render(kind, &ours, &go));
        if Profile::from_environment()? == Profile::Dev {
            println!("  Ours is a development build: HARNESS_PROFILE asks for it.");
        }
    }
    Ok(())
}

fn list(args: &Args) -> Result<()> {
    let volumes = args.listed;
    let program = build(release_driver)?;
    eprintln!("bench: list ({volumes} volumes, for each driver)");
    in_lab(async move |lab| {
        let (ours, go) = list::both(&lab, volumes, &program).await.context("lists")?;
        println!("{}", list::render(volumes, &ours, &go));
        Ok(())
    });
    Ok(())
}

/// Returns the requested clouds, or the default ones.
fn clouds(args: &Args, usual: &[Kind]) -> Vec<Kind> {
    if args.clouds.is_empty() {
        return usual.to_vec();
    }
    args.clouds.clone()
}

fn operator(args: &Args) -> Result<()> {
    let scale = |nodes, volumes| operator::Scale {
        nodes,
        volumes,
        pods: args.pods.max(nodes),
    };
    let program = build(release_operator)?;
    let second = (args.changes > 0).then_some((scale(1_000, 10_000), args.changes));
    let large = (scale(args.nodes, args.volumes), args.changes.max(1));
    for (scale, changes) in iter::once(large).chain(second) {
        eprintln!("bench: the operator ({scale})");
        let program = program.clone();
        in_lab(async move |lab| {
            let figures = operator::measure(&lab, scale, changes, &program).await;
            println!("{}", operator::render(scale, &figures.context("the operator")?));
            Ok(())
        });
    }
    Ok(())
}

fn build(release: impl AsyncFnOnce(&Progress) -> Result<PathBuf>) -> Result<PathBuf> {
    runtime()?.block_on(release(&Progress::loud()))
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Runtime::new().context("cannot make a runtime")
}
