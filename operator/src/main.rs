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
    match wiring::execute(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cinder-csi-operator: {error}");
            ExitCode::FAILURE
        }
    }
}
