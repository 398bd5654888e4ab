//! The operator's entry point.

use std::process::ExitCode;

use cinder_csi_operator::{args::Args, wiring};
use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    match wiring::execute(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cinder-csi-operator: {error}");
            ExitCode::FAILURE
        }
    }
}
