// SPDX-License-Identifier: Apache-2.0
//! `harness`: a cluster of real parts on this machine, for the demo or to play with.

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
    /// Shows the life of one volume, from the installation of the operator to its removal
    Demo(demo::DemoArgs),
    /// Starts a cluster and leaves it running until `harness down`
    Up(up::UpArgs),
    /// Removes every cluster that was left running
    Down,
    /// Packs the images of the product and prints where they are
    Images,
    /// Builds the earlier commit that tests update from, unless it is cached, and prints the paths of its programs
    Previous,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Giving the work up drops the cluster, and that removes it.
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
