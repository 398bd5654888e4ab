// SPDX-License-Identifier: Apache-2.0
//! Runs seeds until the number of steps is reached, or a seed finds a violation.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use simulate::run::{Plan, Report, run};

/// Random faults in simulated time: the same seed gives the same run.
#[derive(Debug, Parser)]
struct Options {
    /// First seed; the following ones are consecutive
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Total number of steps; a started seed runs to its end
    #[arg(long, default_value_t = 1_000_000)]
    steps: u64,
    /// Number of steps of each seed until its faults end
    #[arg(long, default_value_t = 5_000)]
    each: u64,
    /// Run only one seed, and print its complete trace
    #[arg(long)]
    trace: bool,
    /// Continue after a seed with a violation
    #[arg(long)]
    all: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match simulate(&options) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("simulate: {error}");
            ExitCode::from(2)
        }
    }
}

fn simulate(options: &Options) -> std::io::Result<u32> {
    let folder = tempfile::tempdir()?;
    let began = Instant::now();
    let (mut steps, mut seeds, mut found) = (0, 0, 0);
    while steps < options.steps {
        let plan = Plan {
            seed: options.seed + seeds,
            steps: options.each,
            whole: options.trace,
        };
        let report = run(plan, folder.path())?;
        steps += report.steps;
        seeds += 1;
        if options.trace || report.violation.is_some() {
            show(&report);
        }
        if report.violation.is_some() {
            found += 1;
            if !options.all {
                break;
            }
        }
        if options.trace {
            break;
        }
    }
    println!(
        "simulate: {steps} steps of {seeds} seeds from {} on in {:.1} s, {found} found something",
        options.seed,
        began.elapsed().as_secs_f64()
    );
    Ok(found)
}

fn show(report: &Report) {
    for line in &report.trace {
        println!("{line}");
    }
    println!(
        "seed {}: {} steps, digest {:016x}",
        report.seed, report.steps, report.digest
    );
    if let Some(violation) = &report.violation {
        println!("seed {}: {violation}", report.seed);
        println!(
            "again with its whole trace: cargo run -p simulate -- --seed {} --trace",
            report.seed
        );
    }
}
