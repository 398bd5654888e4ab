//! How the parts are put together: from the flags to a process that serves, and back to a clean end.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use cinder_cloud::{CloudError, ConfigError};
use csi_kit::admin::AdminServer;
use csi_kit::endpoint::{Endpoint, EndpointError};
use csi_kit::metrics::MetricsError;
use csi_kit::socket::SocketError;
use csi_kit::telemetry::TelemetryError;
use csi_kit::tls::{Certificate, CertificateError, TlsOptions};
use thiserror::Error;
use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

mod login;
mod plan;
mod process;
mod reload;
mod turn;

use plan::Plan;
pub use process::{Environment, Process, Rpcs};

use crate::args::Args;
use crate::claims::ClaimError;
use crate::liveness::Liveness;
use crate::operations::Operations;
use crate::registration::{FilesError, Registration, RegistrationError};
use crate::timing::TIMING;

/// Who may open the CSI socket: the kubelet and the sidecars run as root or in our group.
const SOCKET_MODE: u32 = 0o660;
/// The directory of the CSI socket, where the node has to make it: root and our group.
const SOCKET_DIR_MODE: u32 = 0o750;

/// Why the driver did not start, or ended early. One line; exit status 1.
#[derive(Debug, Error)]
pub enum RunError {
    /// `--endpoint` cannot be read.
    #[error("--endpoint: {0}")]
    Endpoint(EndpointError),
    /// `--http-endpoint` cannot be read.
    #[error("--http-endpoint: {0}")]
    HttpEndpoint(EndpointError),
    /// Both roles are off.
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
    /// The registration with the kubelet cannot work.
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    /// The registration with the kubelet could not be taken away.
    #[error("the registration with the kubelet cannot be taken away: {0}")]
    Withdraw(#[from] FilesError),
    /// The controller has no cloud.
    #[error(
        "the controller service needs --cloud-config=FILE, a cloud.conf with [Global]; for a node give --provide-controller-service=false"
    )]
    NoCloudConfig,
    /// The cloud's configuration is missing or malformed.
    #[error("--cloud-config: {0}")]
    CloudConfig(#[from] ConfigError),
    /// A template of `--volume-metadata` is wrong.
    #[error("--volume-metadata: {0}")]
    VolumeMetadata(String),
    /// Annotations of claims are asked for and cannot be read.
    #[error(transparent)]
    Claims(#[from] ClaimError),
    /// A kubeconfig is asked for.
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
    /// The directory of the CSI socket cannot be made.
    #[error("cannot make the directory {} for the CSI socket: {source}; is the kubelet's directory mounted?", path.display())]
    SocketDirectory {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The CSI socket cannot be made.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A TCP address cannot be listened on.
    #[error(transparent)]
    Listen(io::Error),
    /// The gRPC server could not be set up or failed.
    #[error("the gRPC server failed: {0}")]
    Serve(#[from] tonic::transport::Error),
}

/// Runs the driver until it is told to end by SIGTERM or SIGINT.
pub async fn run(args: Args) -> Result<(), RunError> {
    csi_kit::telemetry::init(&args.log_filter(), args.log_format)?;
    let shutdown = csi_kit::signals::shutdown().map_err(RunError::Signals)?;
    serve(args, shutdown).await
}

/// Serves until `shutdown` is cancelled, then ends what runs, within bounds.
pub async fn serve(args: Args, shutdown: CancellationToken) -> Result<(), RunError> {
    let plan = Plan::of(&args)?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        driver = args.driver_name,
        endpoint = %plan.endpoint,
        controller = args.provide_controller_service,
        node = args.provide_node_service,
        "starting"
    );
    for (flag, why) in args.without_effect() {
        tracing::warn!(flag, why, "this flag has no effect");
    }

    let mut process = Process::assemble(&args, &plan, Environment::default(), &shutdown)?;
    if args.provide_node_service {
        make_socket_directory(&plan.endpoint)?;
    }
    if let Some(address) = &plan.http_endpoint {
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
        let server = server
            .liveness(move || liveness.clone().check())
            .readiness(move || {
                let registered = registration.as_ref().and_then(Registration::problem);
                std::future::ready(logins.problem().or(registered).map_or(Ok(()), Err))
            })
            .readiness_note(move || notes.note())
            .bind(address)
            .await
            .map_err(RunError::Listen)?;
        let shutdown = shutdown.clone();
        process.beside.spawn(async move {
            if let Err(error) = server.serve(shutdown).await {
                tracing::error!(%error, "the HTTP endpoint ended");
            }
        });
    }

    let listener = match &plan.endpoint {
        Endpoint::Unix(path) if args.register => {
            let Some(()) = turn::wait(path, &shutdown).await else {
                return Ok(());
            };
            Listener::bind(&plan.endpoint).await?
        }
        endpoint => Listener::bind(endpoint).await?,
    };
    // From here on clients queue up.
    match (&plan.registration, process.node.clone()) {
        (Some(registration), _) if args.unregister => registration.withdraw().await?,
        (Some(registration), Some(node)) => {
            let registered = registration.clone().serve(node, shutdown.clone());
            process.beside.spawn(registered);
        }
        _ => {}
    }
    let (server, rpcs) = (Server::builder(), process.rpcs());
    let stopped = shutdown.clone().cancelled_owned();
    let serving = async move {
        match listener {
            Listener::Unix(socket) => {
                let incoming = UnixListenerStream::new(socket);
                server.serve_with_incoming_shutdown(rpcs, incoming, stopped).await
            }
            Listener::Tcp(socket) => {
                let incoming = TcpListenerStream::new(socket);
                server.serve_with_incoming_shutdown(rpcs, incoming, stopped).await
            }
        }
    };
    tracing::info!("serving");
    let outcome = drain(serving, &process.operations, &shutdown).await;
    // Whatever ended the server ends the rest.
    shutdown.cancel();
    process.beside.shutdown().await;
    tracing::info!("ended");
    Ok(outcome?)
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

/// A node's socket is in a directory of the kubelet's that nobody else makes.
fn make_socket_directory(endpoint: &Endpoint) -> Result<(), RunError> {
    let Endpoint::Unix(path) = endpoint else { return Ok(()) };
    let Some(directory) = path.parent() else { return Ok(()) };
    DirBuilder::new()
        .recursive(true)
        .mode(SOCKET_DIR_MODE)
        .create(directory)
        .map_err(|source| RunError::SocketDirectory {
            path: directory.to_owned(),
            source,
        })
}

/// Where gRPC is served.
enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    async fn bind(endpoint: &Endpoint) -> Result<Self, RunError> {
        match endpoint {
            Endpoint::Unix(path) => Ok(Self::Unix(csi_kit::socket::bind(path, SOCKET_MODE)?)),
            Endpoint::Tcp(address) => {
                tracing::warn!(%address, "CSI over TCP has neither encryption nor authentication; use a unix socket");
                address.bind().await.map(Self::Tcp).map_err(RunError::Listen)
            }
        }
    }
}
