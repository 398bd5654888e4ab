// SPDX-License-Identifier: Apache-2.0
//! Why the program ends with an error.

use std::io;

use csi_kit::endpoint::TcpAddress;
use thiserror::Error;

/// Why the program ends with an error.
#[derive(Debug, Error)]
pub enum Error {
    /// The log cannot be set up.
    #[error("cannot set up the log: {0}")]
    Log(#[from] csi_kit::telemetry::TelemetryError),
    /// Signals cannot be received.
    #[error("cannot listen to signals: {0}")]
    Signals(#[source] io::Error),
    /// The TLS library was set up before.
    #[error("the TLS provider was installed twice in one process")]
    TlsProvider,
    /// Neither a kubeconfig nor a service account was found.
    #[error(
        "cannot find out how to reach the API server: {0}; run in a pod with a service account, or set KUBECONFIG to a file"
    )]
    Configure(#[source] Box<kube::config::InferConfigError>),
    /// The client cannot be made.
    #[error("cannot make a client of the API server: {0}")]
    Connect(#[source] Box<kube::Error>),
    /// Metrics cannot be registered.
    #[error("cannot register the metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// The common metrics cannot be registered.
    #[error(transparent)]
    CommonMetrics(#[from] csi_kit::metrics::MetricsError),
    /// The admin server cannot listen.
    #[error("cannot listen on {address} (--admin-address): {source}")]
    AdminServer {
        /// Where.
        address: TcpAddress,
        /// Why.
        source: io::Error,
    },
    /// The metrics have no certificate to be served with.
    #[error(transparent)]
    Certificate(#[from] crate::scrape::CertificateError),
    /// The HTTPS server cannot listen.
    #[error("cannot listen on {address} (--metrics-address): {source}")]
    MetricsServer {
        /// Where.
        address: TcpAddress,
        /// Why.
        source: io::Error,
    },
    /// The CRD is missing.
    #[error(
        "the API server does not know CinderCSIDriver of {group}: {source}; apply the CustomResourceDefinition first \
         (`cinder-csi-operator crd | kubectl apply -f -`)"
    )]
    NoCrd {
        /// The API group.
        group: &'static str,
        /// What the API server answered.
        source: Box<kube::Error>,
    },
    /// The objects of the operator's own kind cannot be listed.
    #[error("cannot list the CinderCSIDrivers: {0}")]
    ListDrivers(String),
    /// `crd` or `render` failed.
    #[error(transparent)]
    Render(#[from] super::render::RenderCommandError),
}
