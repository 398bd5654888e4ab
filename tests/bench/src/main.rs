// SPDX-License-Identifier: Apache-2.0
//! Both drivers on the same cloud in the same run, as processes of their own per role: what a volume's life costs in OpenStack
//! calls, seconds, processor time and memory, alone and in a crowd. Prints a table with ratios, and what we have set ourselves as
//! goals. It fails for none of them: figures of a busy machine are compared in one run, and read by somebody who knows it.
//! Then both as a cluster runs them, behind the sidecars: see [`claims`]. Then their lists of a large project: see [`list`]. Beside them the operator against an API server that
//! holds a large cluster: see [`operator`].

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

/// Runs both drivers on the same cloud and prints their figures side by side, then the operator's in a large cluster.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// What is measured, one after the other.
    #[arg(long = "subject", value_enum, value_delimiter = ',', default_values_t = [Subject::Drivers, Subject::Claims, Subject::List, Subject::Operator])]
    subjects: Vec<Subject>,
    /// Clouds to run on, one after the other. Without it the drivers run on all of them, and claims on real services.
    #[arg(long = "cloud", value_enum)]
    clouds: Vec<Kind>,
    /// Lives one after the other; the figures are of one.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    lives: u32,
    /// Volumes at once on one server, in one crowd after the other; 0 leaves crowds out.
    #[arg(long = "crowd", value_delimiter = ',', default_values_t = [40, 100], value_parser = clap::value_parser!(u32).range(0..=200))]
    crowds: Vec<u32>,
    /// Claims with a pod each, one after the other, of each driver in a cluster.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    claims: u32,
    /// Claims at once; 0 leaves that out.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=200))]
    claims_at_once: u32,
    /// Seconds in which each driver is watched with nothing to do; 0 leaves that out.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=600))]
    idle: u32,
    /// Volumes of the project whose list is walked.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    listed: u32,
    /// Nodes of the operator's large cluster.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    nodes: u32,
    /// PersistentVolumes of the operator's large cluster.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    volumes: u32,
    /// Pods of each of the operator's clusters, the driver's own on every node among them: not fewer than nodes.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pods: u32,
    /// Changes of the spec in each of the operator's clusters; 0 is one in the large cluster, and leaves the second one out, of 1,000
    /// nodes and 10,000 volumes.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    changes: u32,
}

/// Whose figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// Both drivers, as processes that are called directly.
    Drivers,
    /// Both drivers, each in a cluster of its own.
    Claims,
    /// Both drivers' lists of all volumes, page by page, while some of them change.
    List,
    /// The operator.
    Operator,
}

/// A cloud to run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// The simulator, which finishes everything at once.
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

// What is measured runs in namespaces of its own. A failure there is a panic with the whole chain of reasons and a status
// other than 0.

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

/// The clouds that were asked for, or these.
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
