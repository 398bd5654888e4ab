// SPDX-License-Identifier: Apache-2.0
//! How the parts are put together: from the flags to a process that serves, and back to a clean end.

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

/// Runs the driver until it is told to end by SIGTERM or SIGINT.
pub async fn run(args: Args) -> Result<(), RunError> {
    csi_kit::telemetry::init(&args.log_filter(), args.log_format)?;
    let shutdown = csi_kit::signals::shutdown().map_err(RunError::Signals)?;
    let mut environment = Environment::default();
    if args.provide_node_service {
        environment.machine = Arc::new(Linux::confined());
    }
    serve_in(args, environment, shutdown).await
}

/// Serves until `shutdown` is cancelled, then ends what runs, within bounds. Programs of the node are not confined: only the driver's own
/// program can do that.
pub async fn serve(args: Args, shutdown: CancellationToken) -> Result<(), RunError> {
    serve_in(args, Environment::default(), shutdown).await
}

async fn serve_in(args: Args, environment: Environment, shutdown: CancellationToken) -> Result<(), RunError> {
    let plan = Plan::of(&args)?;
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
    // From here on clients queue up.
    register(&args, &plan, &mut process, &shutdown).await?;
    let serving = listener.serve(process.rpcs(), shutdown.clone());
    tracing::info!("serving CSI");
    let outcome = drain(serving, &process.operations, &shutdown).await;
    // Whatever ended the server ends the rest.
    shutdown.cancel();
    process.beside.shutdown().await;
    tracing::info!("ended");
    Ok(outcome?)
}

/// Opens the CSI socket; `None` when the shutdown comes first. A node makes the socket's directory, and one that registers itself
/// waits for the process before it.
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

/// Registers a node with its kubelet as long as the process runs, or takes an earlier registration away.
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

/// Runs the server to its end. After the shutdown began, calls and operations have `drain_timeout` to finish.
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
    let (outcome, left) = tokio::join!(
        tokio::time::timeout(TIMING.drain_timeout, &mut server),
        operations.close(TIMING.drain_timeout)
    );
    if left > 0 {
        tracing::warn!(
            operations = left,
            "operations go on in OpenStack; the next process finds what they made"
        );
    }
    outcome.unwrap_or(Ok(()))
}
