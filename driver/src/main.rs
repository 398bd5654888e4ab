// SPDX-License-Identifier: Apache-2.0
//! The driver's program; everything is in the library.

use std::process::ExitCode;

use cinder_csi_driver::args::Args;

// One thread: the work is waiting, and what may hang has a thread of its own. A second one costs wake-ups and memory.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // First of all: whoever speaks TLS finds its provider.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        eprintln!("cinder-csi-driver: a TLS provider is installed already");
        return ExitCode::FAILURE;
    }
    let args = Args::from_argv(std::env::args_os()).unwrap_or_else(|error| error.exit());
    match cinder_csi_driver::run(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cinder-csi-driver: {error}");
            ExitCode::FAILURE
        }
    }
}
