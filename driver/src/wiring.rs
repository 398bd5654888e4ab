// SPDX-License-Identifier: Apache-2.0
//! Assembles the driver from its flags, serves, and shuts down.

use std::sync::Arc;

use csi_host::Linux;
use csi_kit::endpoint::Endpoint;
use tokio_util::sync::CancellationToken;

mod connector;
mod error;
mod http_endpoint;
mod listener;
mod login;
mod plan;
mod process;
mod reload;
mod socket_handover;

pub use connector::Environment;
use listener::Listener;
use plan::Plan;
pub use process::{Process, Rpcs};

use crate::args::Args;
use crate::operations::Operations;
use crate::timing::TIMING;
pub use error::RunError;

/// Runs the driver until SIGTERM or SIGINT.
pub async fn run(args: Args) -> Result<(), RunError> {
    csi_kit::telemetry::init(&args.log_filter(), args.log_format)?;
    let shutdown = csi_kit::signals::shutdown().map_err(RunError::Signals)?;
    let mut environment = Environment::default();
    if args.provide_node_service {
        environment.machine = Arc::new(Linux::confined());
    }
    serve_in(args, environment, shutdown).await
}

/// Serves until `shutdown` is cancelled, then waits for running operations within limits.
///
/// Programs of the node are not confined, because only the driver's own program can confine them.
pub async fn serve(args: Args, shutdown: CancellationToken) -> Result<(), RunError> {
    serve_in(args, Environment::default(), shutdown).await
}

async fn serve_in(args: Args, environment: Environment, shutdown: CancellationToken) -> Result<(), RunError> {
    let plan = Plan::new(&args)?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        driver = args.driver_name,
        endpoint = %plan.endpoint,
        controller = args.provide_controller_service,
        node = args.provide_node_service,
        "starting cinder-csi-driver"
    );
    for (flag, why) in args.without_effect() {
        tracing::warn!(flag, why, "this flag has no effect");
    }

    let mut process = Process::assemble(&args, &plan, environment, &shutdown)?;
    http_endpoint::start(&args, &plan, &mut process, &shutdown).await?;
    let Some(listener) = listen(&args, &plan.endpoint, &shutdown).await? else {
        return Ok(());
    };
    // From here on, clients can connect and wait.
    register(&args, &plan, &mut process, &shutdown).await?;
    let serving = listener.serve(process.rpcs(), shutdown.clone());
    tracing::info!("serving CSI");
    let outcome = drain(serving, &process.operations, &shutdown).await;
    // If the server ended by itself, the other tasks end as well.
    shutdown.cancel();
    process.beside.shutdown().await;
    tracing::info!("ended");
    Ok(outcome?)
}

/// Opens the CSI socket; `None` if the shutdown comes first.
///
/// A node creates the directory of the socket. A node that registers itself first waits until its predecessor releases
/// the socket.
async fn listen(args: &Args, endpoint: &Endpoint, shutdown: &CancellationToken) -> Result<Option<Listener>, RunError> {
    if args.provide_node_service {
        listener::make_socket_directory(endpoint)?;
    }
    if let (Endpoint::Unix(path), true) = (endpoint, args.register)
        && socket_handover::wait(path, shutdown).await.is_none()
    {
        return Ok(None);
    }
    Listener::bind(endpoint).await.map(Some)
}

/// Registers the node with its kubelet while the process runs, or removes an earlier registration.
async fn register(
    args: &Args,
    plan: &Plan,
    process: &mut Process,
    shutdown: &CancellationToken,
) -> Result<(), RunError> {
    match (&plan.registration, process.node.clone()) {
        (Some(registration), _) if args.unregister => registration.withdraw().await?,
        (Some(registration), Some(node)) => {
            let registered = registration.clone().serve(node, shutdown.clone());
            process.beside.spawn(registered);
        }
        _ => {}
    }
    Ok(())
}

/// Runs the server to its end. After the shutdown begins, calls and operations have `drain_timeout` to finish.
async fn drain<E>(
    server: impl Future<Output = Result<(), E>>,
    operations: &Operations,
    shutdown: &CancellationToken,
) -> Result<(), E> {
    tokio::pin!(server);
    tokio::select! {
        biased;
        outcome = &mut server => return outcome,
        () = shutdown.cancelled() => {}
    }
    let (outcome, remaining) = tokio::join!(
        tokio::time::timeout(TIMING.drain_timeout, &mut server),
        operations.close(TIMING.drain_timeout)
    );
    if remaining > 0 {
        tracing::warn!(
            operations = remaining,
            "operations go on in OpenStack; the next process finds what they made"
        );
    }
    outcome.unwrap_or(Ok(()))
}
