// SPDX-License-Identifier: Apache-2.0
//! Errors that end the program.

use std::io;

use csi_kit::endpoint::TcpAddress;
use thiserror::Error;

/// An error that ends the program.
#[derive(Debug, Error)]
pub enum Error {
    #[error("cannot set up the log: {0}")]
    Log(#[from] csi_kit::telemetry::TelemetryError),
    #[error("cannot listen to signals: {0}")]
    Signals(#[source] io::Error),
    #[error("the TLS provider was installed twice in one process")]
    TlsProvider,
    /// Neither a kubeconfig nor a service account exists.
    #[error(
        "cannot find out how to reach the API server: {0}; run in a pod with a service account, or set KUBECONFIG to a file"
    )]
    Configure(#[source] Box<kube::config::InferConfigError>),
    #[error("cannot make a client of the API server: {0}")]
    Connect(#[source] Box<kube::Error>),
    #[error("cannot register the metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    #[error(transparent)]
    CommonMetrics(#[from] csi_kit::metrics::MetricsError),
    #[error("cannot listen on {address} (--admin-address): {source}")]
    AdminServer { address: TcpAddress, source: io::Error },
    /// There is no usable certificate for the metrics server.
    #[error(transparent)]
    Certificate(#[from] crate::scrape::CertificateError),
    #[error("cannot listen on {address} (--metrics-address): {source}")]
    MetricsServer { address: TcpAddress, source: io::Error },
    #[error(
        "the API server does not know CinderCSIDriver of {group}: {source}; apply the CustomResourceDefinition first \
         (`cinder-csi-operator crd | kubectl apply -f -`)"
    )]
    NoCrd {
        group: &'static str,
        /// Response of the API server.
        source: Box<kube::Error>,
    },
    #[error("cannot list the CinderCSIDrivers: {0}")]
    ListDrivers(String),
    #[error(transparent)]
    Render(#[from] super::render::RenderCommandError),
}
