//! The driver's program; everything is in the library.

use std::process::ExitCode;

use cinder_csi_driver::args::Args;

// A worker per role is plenty: the work is waiting.
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
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
