// SPDX-License-Identifier: Apache-2.0
//! The driver's program; everything is in the library.

use std::process::ExitCode;

use cinder_csi_driver::args::Args;
use csi_host::exec_if_confined;

fn main() -> ExitCode {
    // Before there is any other thread.
    if let Some(failure) = exec_if_confined(std::env::args_os()) {
        return failure;
    }
    if let Err(error) = csi_kit::memory::protect() {
        eprintln!("cinder-csi-driver: cannot protect its memory from core dumps: {error}");
        return ExitCode::FAILURE;
    }
    serve()
}

// One thread: the work is waiting, and what may hang has a thread of its own. A second one costs wake-ups and memory.
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
