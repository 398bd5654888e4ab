// SPDX-License-Identifier: Apache-2.0
//! Tests a volume and the operator on one version of Kubernetes and one cloud. `tests/matrix/run` runs this program for
//! each version. `KUBERNETES` selects the programs of the cluster; `MATRIX_CLOUD=real` selects real services in place
//! of the simulator.
//!
//! The steps share one cluster and run in order. A step does not run unless its prerequisites have passed. A step that
//! needs an API that this version does not serve is reported as such. The result is written to the file in
//! `MATRIX_REPORT`.

mod report;
mod steps;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use harness::Progress;
use suites::cluster::World;

use report::{Outcome, Report};
use steps::{STEPS, Step};

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("matrix: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all steps and writes the report. Returns false if a step failed.
async fn run() -> Result<bool> {
    let names = STEPS.iter().map(|step| step.name).collect::<Vec<_>>();
    let mut report = Report::of_steps(&names);
    let begun = Instant::now();
    let ended = match start().await {
        Ok(world) => {
            let installed = begin(&world, &mut report, begun).await;
            if installed.is_ok() {
                run_steps(&world, &mut report).await;
            }
            if report.has_failed() {
                world.print_logs().await;
            }
            world.stop().await
        }
        Err(error) => {
            report.record(steps::INSTALL, &Outcome::Failed(format!("{error:#}")), begun.elapsed());
            Ok(())
        }
    };
    report.print();
    report.write()?;
    ended?;
    Ok(!report.has_failed())
}

/// Starts a cluster with the product.
async fn start() -> Result<World> {
    let progress = Progress::loud();
    match std::env::var("MATRIX_CLOUD").as_deref() {
        Ok("real") => World::on_real_services(progress).await,
        Err(_) | Ok("" | "simulator") => World::start_nodes(1, progress).await?.with_product().await,
        Ok(other) => bail!("MATRIX_CLOUD is `{other}`; it can be `real` or `simulator`"),
    }
}

/// Records the installation and its programs.
async fn begin(world: &World, report: &mut Report, begun: Instant) -> Result<()> {
    let taken = begun.elapsed();
    let outcome = match report.describe(world).await {
        Ok(()) => Outcome::Passed,
        Err(error) => Outcome::Failed(format!("{error:#}")),
    };
    report.record(steps::INSTALL, &outcome, taken);
    anyhow::ensure!(outcome == Outcome::Passed, "the installation cannot be described");
    Ok(())
}

async fn run_steps(world: &World, report: &mut Report) {
    for step in STEPS.iter().filter(|step| step.name != steps::INSTALL) {
        if let Some(ground) = step.needs.iter().find(|name| !report.has_passed(name)) {
            println!("test {} ... not run: {ground} has not passed", step.name);
            continue;
        }
        let (outcome, taken) = attempt(step, world).await;
        report.record(step.name, &outcome, taken);
        if outcome == Outcome::Passed {
            // A new API may add sidecars. After a removal there is no controller, and the previous description remains.
            drop(report.describe(world).await);
        }
        if matches!(outcome, Outcome::Failed(_)) {
            println!("{}", world.describe().await);
            // The next step starts without volumes, as far as possible.
            if let Err(error) = world.delete_all().await {
                println!("not all volumes were deleted: {error:#}");
            }
        }
    }
}

async fn attempt(step: &Step, world: &World) -> (Outcome, Duration) {
    let begun = Instant::now();
    let exists = match step.api {
        Some(api) => steps::serves(world, api).await.context(api.1),
        None => Ok(true),
    };
    match exists {
        Ok(false) => return (Outcome::NotInThisVersion, begun.elapsed()),
        Err(error) => return (Outcome::Failed(format!("{error:#}")), begun.elapsed()),
        Ok(true) => {}
    }
    let (outcome, taken) = step.scenario().attempt(world).await;
    let outcome = match outcome {
        Ok(()) => Outcome::Passed,
        Err(error) => Outcome::Failed(format!("{error:#}")),
    };
    (outcome, taken)
}
