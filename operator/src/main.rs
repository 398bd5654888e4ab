// SPDX-License-Identifier: Apache-2.0
//! The operator's entry point.

use std::process::ExitCode;

use cinder_csi_operator::{args::Args, wiring};
use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    if let Err(error) = csi_kit::memory::protect() {
        eprintln!("cinder-csi-operator: cannot protect its memory from core dumps: {error}");
        return ExitCode::FAILURE;
    }
    match wiring::execute(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cinder-csi-operator: {error}");
            ExitCode::FAILURE
        }
    }
}
