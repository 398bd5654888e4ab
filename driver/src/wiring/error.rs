// SPDX-License-Identifier: Apache-2.0
//! Errors that end the process.

use std::io;
use std::path::PathBuf;

use cinder_cloud::{CloudError, ConfigError};
use csi_kit::endpoint::EndpointError;
use csi_kit::metrics::MetricsError;
use csi_kit::socket::SocketError;
use csi_kit::telemetry::TelemetryError;
use csi_kit::tls::CertificateError;
use thiserror::Error;

use crate::pvc_annotations::PvcAnnotationError;
use crate::registration::{FilesError, RegistrationError};

/// Errors that prevent the start or end the driver. One line; exit status 1.
#[derive(Debug, Error)]
pub enum RunError {
    /// `--endpoint` is invalid.
    #[error("--endpoint: {0}")]
    Endpoint(EndpointError),
    /// The address of an HTTP server is invalid.
    #[error("{flag}: {source}")]
    HttpAddress {
        flag: &'static str,
        /// The problem with the value.
        source: EndpointError,
    },
    /// Both roles are disabled.
    #[error(
        "nothing to serve: --provide-controller-service and --provide-node-service are both false; set one of them to true"
    )]
    NoRole,
    /// The flags contradict each other.
    #[error("--register and --unregister exclude each other; give one of them")]
    RegisterAndUnregister,
    /// There is no node to register.
    #[error("--register and --unregister are for the node service; set --provide-node-service=true")]
    RegisterWithoutNode,
    /// The registration with the kubelet is impossible.
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    /// The registration with the kubelet could not be removed.
    #[error("cannot unregister from the kubelet: {0}")]
    Withdraw(#[from] FilesError),
    /// The controller has no cloud.
    #[error(
        "the controller service needs --cloud-config=FILE, a cloud.conf with [Global]; for a node give --provide-controller-service=false"
    )]
    NoCloudConfig,
    /// The configuration of the clouds is missing or malformed.
    #[error("--cloud-config: {0}")]
    CloudConfig(#[from] ConfigError),
    /// A template of `--volume-metadata` is invalid.
    #[error("--volume-metadata: {0}")]
    VolumeMetadata(String),
    /// Annotations of claims are enabled, but cannot be read.
    #[error(transparent)]
    PvcAnnotations(#[from] PvcAnnotationError),
    /// `--kubeconfig` is set, which this driver does not support.
    #[error(
        "--pvc-annotations reads claims with the pod's service account and not with --kubeconfig; leave --kubeconfig (and KUBECONFIG) away, or give --pvc-annotations=false"
    )]
    Kubeconfig,
    /// The connection to the cloud cannot be set up.
    #[error(transparent)]
    Cloud(#[from] CloudError),
    /// Logging could not be set up.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// Signals cannot be received.
    #[error("cannot receive signals: {0}")]
    Signals(#[source] io::Error),
    /// Metrics could not be registered.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The metrics cannot be served over TLS.
    #[error("--secure-metrics: {0}")]
    SecureMetrics(#[from] CertificateError),
    /// The directory of the CSI socket cannot be created.
    #[error("cannot make the directory {} for the CSI socket: {source}; is the kubelet's directory mounted?", path.display())]
    SocketDirectory { path: PathBuf, source: io::Error },
    /// The CSI socket cannot be created.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The driver cannot listen on a TCP address.
    #[error(transparent)]
    Listen(io::Error),
    /// The gRPC server could not be set up, or failed.
    #[error("the gRPC server failed: {0}")]
    Serve(#[from] tonic::transport::Error),
}
