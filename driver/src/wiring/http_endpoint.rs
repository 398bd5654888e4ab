// SPDX-License-Identifier: Apache-2.0
//! The HTTP endpoint beside the CSI socket: liveness, readiness and metrics.

use csi_kit::admin::{AdminServer, BoundAdminServer};
use csi_kit::endpoint::TcpAddress;
use csi_kit::tls::{Certificate, TlsOptions};
use tokio_util::sync::CancellationToken;

use super::plan::Plan;
use super::{Process, RunError};
use crate::args::Args;
use crate::liveness::Liveness;
use crate::registration::Registration;

/// Listens, with all that the endpoint reports.
pub(super) async fn bind(
    args: &Args,
    plan: &Plan,
    process: &Process,
    address: &TcpAddress,
) -> Result<BoundAdminServer, RunError> {
    let liveness = Liveness::new(&plan.endpoint)?;
    let registration = plan.registration.clone().filter(|_| args.register);
    let (logins, notes) = (process.logins.clone(), process.logins.clone());
    let mut server = AdminServer::new(process.registry.clone());
    if args.secure_metrics {
        let options = TlsOptions {
            min_version: args.tls_min_version,
            cipher_suites: args.tls_cipher_suites.clone(),
        };
        let certificate = Certificate::self_signed(&args.driver_name)?;
        server = server.secure_metrics(options.server_config(certificate)?);
    }
    server
        .liveness(move || liveness.clone().check())
        .readiness(move || {
            let registered = registration.as_ref().and_then(Registration::problem);
            std::future::ready(logins.problem().or(registered).map_or(Ok(()), Err))
        })
        .readiness_note(move || notes.note())
        .bind(address)
        .await
        .map_err(RunError::Listen)
}

/// Serves until `shutdown`.
pub(super) async fn serve(server: BoundAdminServer, shutdown: CancellationToken) {
    if let Err(error) = server.serve(shutdown).await {
        tracing::error!(%error, "the HTTP endpoint ended");
    }
}
