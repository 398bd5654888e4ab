// SPDX-License-Identifier: Apache-2.0
//! The HTTP servers next to the CSI socket: liveness and readiness on one port, metrics on another.

use csi_kit::admin::{HealthChecks, HttpServer, metrics_router};
use csi_kit::tls::{Certificate, TlsOptions};
use tokio_util::sync::CancellationToken;

use super::plan::Plan;
use super::{Process, RunError};
use crate::args::Args;
use crate::liveness::Liveness;
use crate::registration::Registration;

/// Listens on the configured ports, and serves until `shutdown`.
pub(super) async fn start(
    args: &Args,
    plan: &Plan,
    process: &mut Process,
    shutdown: &CancellationToken,
) -> Result<(), RunError> {
    let mut servers = Vec::new();
    if let Some(address) = &plan.http_endpoint {
        let tls = args.secure_metrics.then(|| {
            let options = TlsOptions {
                min_version: args.tls_min_version,
                cipher_suites: args.tls_cipher_suites.clone(),
            };
            options.server_config(Certificate::self_signed(&args.driver_name)?)
        });
        let pages = metrics_router(process.registry.clone());
        servers.push(HttpServer::bind(address, pages, tls.transpose()?).await);
    }
    if let Some(address) = &plan.health_endpoint {
        let pages = health_checks(args, plan, process)?.router();
        servers.push(HttpServer::bind(address, pages, None).await);
    }
    for server in servers {
        let serving = server.map_err(RunError::Listen)?.serve(shutdown.clone());
        process.beside.spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "an HTTP server ended");
            }
        });
    }
    Ok(())
}

fn health_checks(args: &Args, plan: &Plan, process: &Process) -> Result<HealthChecks, RunError> {
    let liveness = Liveness::new(&plan.endpoint)?;
    let registration = plan.registration.clone().filter(|_| args.register);
    let (logins, notes) = (process.logins.clone(), process.logins.clone());
    Ok(HealthChecks::default()
        .liveness(move || liveness.clone().check())
        .readiness(move || {
            let registered = registration.as_ref().and_then(Registration::problem);
            std::future::ready(logins.problem().or(registered).map_or(Ok(()), Err))
        })
        .readiness_note(move || notes.note()))
}
