// SPDX-License-Identifier: Apache-2.0
//! The plugin's entry point. kubectl runs the program under a second name to complete its command line.

use std::process::ExitCode;

use clap::Parser as _;
use kubectl_cinder_csi::{args::PluginArgs, commands::execute, completion};

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    if completion::is_requested(words.first().map(String::as_str)) {
        print!("{}", completion::complete(&words[1..]));
        return ExitCode::SUCCESS;
    }
    execute(PluginArgs::parse()).await
}
