// SPDX-License-Identifier: Apache-2.0
//! The operator's entry point.

use std::process::ExitCode;

use cinder_csi_operator::{
    args::Args,
    commands::plugin::{self, PluginArgs},
    wiring,
};
use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let program = words.first().map(String::as_str);
    if plugin::is_called(program, plugin::COMPLETION) {
        print!("{}", plugin::complete(&words[1..]));
        return ExitCode::SUCCESS;
    }
    if plugin::is_called(program, plugin::PROGRAM) {
        return plugin::execute(PluginArgs::parse()).await;
    }
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
