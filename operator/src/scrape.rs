// SPDX-License-Identifier: Apache-2.0
//! Serves `/metrics` over TLS to clients that the API server authorizes.
//!
//! Prometheus sends the token of its service account. The API server identifies its owner (TokenReview) and decides
//! whether the owner may `get` the path `/metrics` (SubjectAccessReview). The ClusterRole `cinder-csi-metrics-reader`
//! allows it. Results are cached for a short time. Without a configured certificate the server creates one at its
//! start. Such a certificate prevents other parties on the network from reading the token, but does not authenticate
//! the server.

mod access;
mod review_budget;

use std::{fmt::Debug, io, net::IpAddr, sync::Arc};

use axum::{
    Extension, Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use csi_kit::{
    admin::{HttpServer, PeerAddress, ReasonLog, write_metrics},
    endpoint::TcpAddress,
    metrics::Metrics,
    tls::TlsOptions,
};
use futures::future::BoxFuture;
use tracing::warn;

pub use access::KubernetesAccess;
pub use csi_kit::tls::{Certificate, CertificateError};

/// The path of the metrics, and the path that clients must be allowed to get.
const PATH: &str = "/metrics";

/// Result of the authorization of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessDecision {
    Allowed,
    /// The token is invalid.
    Unknown,
    /// The client is identified but not authorized.
    Forbidden,
    /// The client has sent too many unknown tokens, and this token was not reviewed.
    Throttled,
}

/// Authorizes clients. Tests replace the implementation.
pub trait Access: Send + Sync + Debug {
    /// Evaluates the bearer token of a client. An error means that the token could not be reviewed.
    fn judge<'a>(&'a self, peer: IpAddr, token: &'a str) -> BoxFuture<'a, Result<AccessDecision, String>>;
}

/// Listens on `address`, for clients that `access` allows.
pub async fn bind(
    address: &TcpAddress,
    certificate: Certificate,
    metrics: Metrics,
    access: Arc<dyn Access>,
) -> io::Result<HttpServer> {
    let config = TlsOptions::default().server_config(certificate);
    let router = Router::new()
        .route(PATH, get(scrape))
        .with_state(Arc::new(MetricsState {
            metrics,
            access,
            failures: ReasonLog::default(),
        }));
    HttpServer::bind(address, router, Some(config.map_err(io::Error::other)?)).await
}

#[derive(Debug)]
struct MetricsState {
    metrics: Metrics,
    access: Arc<dyn Access>,
    /// The last reason why a token could not be reviewed.
    failures: ReasonLog,
}

async fn scrape(
    State(source): State<Arc<MetricsState>>,
    Extension(PeerAddress(peer)): Extension<PeerAddress>,
    headers: HeaderMap,
) -> Response {
    let Some(token) = bearer(&headers) else {
        return refuse(
            StatusCode::UNAUTHORIZED,
            "send the token of a service account as a bearer token",
        );
    };
    match source.access.judge(peer, token).await {
        Ok(AccessDecision::Allowed) => {
            source.failures.clear();
            write_metrics(&source.metrics)
        }
        Ok(AccessDecision::Unknown) => refuse(StatusCode::UNAUTHORIZED, "the API server does not know this token"),
        Ok(AccessDecision::Forbidden) => refuse(
            StatusCode::FORBIDDEN,
            "the service account may not get /metrics: bind it to the ClusterRole cinder-csi-metrics-reader",
        ),
        Ok(AccessDecision::Throttled) => refuse(
            StatusCode::TOO_MANY_REQUESTS,
            "too many unknown tokens were sent; try again in some seconds",
        ),
        Err(error) => {
            if source.failures.is_news(&error) {
                warn!(error, "cannot find out who reads the metrics");
            }
            refuse(
                StatusCode::SERVICE_UNAVAILABLE,
                "the API server could not be asked who this is; try again",
            )
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty()).then(|| token.trim())
}

fn refuse(status: StatusCode, sentence: &str) -> Response {
    (status, format!("{sentence}\n")).into_response()
}

#[cfg(test)]
mod tests;
