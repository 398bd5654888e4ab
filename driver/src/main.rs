// SPDX-License-Identifier: Apache-2.0
//! The driver's program. The library contains everything else.

use std::process::ExitCode;

use cinder_csi_driver::args::Args;
use csi_host::exec_if_confined;

fn main() -> ExitCode {
    // Confinement must happen before another thread starts.
    if let Some(failure) = exec_if_confined(std::env::args_os()) {
        return failure;
    }
    if let Err(error) = csi_kit::memory::protect() {
        eprintln!("cinder-csi-driver: cannot protect its memory from core dumps: {error}");
        return ExitCode::FAILURE;
    }
    serve()
}

// One thread suffices, because the work is mostly waiting and calls that may hang have threads of their own. A second
// one costs wake-ups and memory.
#[tokio::main(flavor = "current_thread")]
async fn serve() -> ExitCode {
    // The provider of all TLS connections.
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
