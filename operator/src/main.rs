//! The operator's entry point.

use std::process::ExitCode;

use cinder_csi_operator::{
    args::Args,
    plugin::{self, PluginArgs},
    wiring,
};
use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    if plugin::is_called(std::env::args().next().as_deref()) {
        return plugin::execute(PluginArgs::parse()).await;
    }
    let args = Args::parse();
    let failure = args.command.failure();
    match wiring::execute(args).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("cinder-csi-operator: {error}");
            failure
        }
    }
}
