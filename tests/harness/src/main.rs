// SPDX-License-Identifier: Apache-2.0
//! `harness` runs a cluster of real components on this machine, for the demo or for experiments.

mod demo;
mod down;
mod interrupt;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    name = "harness",
    about = "A Kubernetes cluster of real parts on one machine, with a simulated OpenStack"
)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the lifecycle of a volume, from the installation of the operator to its removal
    Demo(demo::DemoArgs),
    /// Start a cluster that runs until `harness down`
    Up(up::UpArgs),
    /// Remove every cluster without an owner
    Down,
    /// Pack the images of the product and print their paths
    Images,
    /// Build the earlier commit for update tests, unless it is cached, and print the paths of its programs
    Previous,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Cancellation drops the cluster, which removes it.
    let done = interrupt::unless_interrupted(async {
        match arguments.verb {
            Verb::Demo(arguments) => demo::run(arguments).await,
            Verb::Up(arguments) => up::run(arguments).await,
            Verb::Down => down::run(),
            Verb::Images => up::images().await,
            Verb::Previous => up::previous().await,
        }
    })
    .await;
    match done {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("harness: {error:#}");
            ExitCode::FAILURE
        }
        None => {
            eprintln!("harness: interrupted; everything was removed");
            ExitCode::from(130)
        }
    }
}
