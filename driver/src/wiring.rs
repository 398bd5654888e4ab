//! How the parts are put together: from the flags to a process that serves, and back to a clean end.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cinder_cloud::{Cloud, CloudConfig, CloudError, CloudOptions, ConfigError};
use csi_kit::admin::AdminServer;
use csi_kit::endpoint::{Endpoint, EndpointError, TcpAddress};
use csi_kit::metrics::{BuildInfo, Metrics, MetricsError};
use csi_kit::socket::SocketError;
use csi_kit::telemetry::TelemetryError;
use csi_proto::csi::v1::controller_server::ControllerServer;
use csi_proto::csi::v1::identity_server::IdentityServer;
use thiserror::Error;
use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use crate::args::Args;
use crate::controller::{ControllerService, Settings};
use crate::identity::IdentityService;
use crate::layers::{self, RpcLayer};
use crate::liveness::Liveness;
use crate::metrics::DriverMetrics;
use crate::operations::{Limits, Operations};

/// Who may open the CSI socket: the kubelet and the sidecars run as root or in our group.
const SOCKET_MODE: u32 = 0o660;
/// How long running calls and operations may take to end: less than Kubernetes' 30 s from SIGTERM to SIGKILL.
const DRAIN: Duration = Duration::from_secs(20);
/// The first login is tried again after this time, doubled each time …
const LOGIN_RETRY_FIRST: Duration = Duration::from_secs(1);
/// … up to this.
const LOGIN_RETRY_MAX: Duration = Duration::from_secs(30);

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
    /// The controller has no cloud.
    #[error(
        "the controller service needs --cloud-config=FILE, a cloud.conf with [Global]; for a node give --provide-controller-service=false"
    )]
    NoCloudConfig,
    /// A cloud by name is asked for.
    #[error("--cloud-name={0}: only the unnamed [Global] section is served; leave --cloud-name away")]
    CloudName(String),
    /// The cloud's configuration is missing or malformed.
    #[error("--cloud-config: {0}")]
    CloudConfig(#[from] ConfigError),
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

    let build = BuildInfo {
        program: "cinder_csi_driver",
        version: env!("CARGO_PKG_VERSION"),
        revision: "",
    };
    let registry = Metrics::new(build)?;
    let metrics = DriverMetrics::new(&registry, &args.driver_name)?;
    let operations = Operations::new(Limits::default());
    let cloud = plan
        .cloud
        .clone()
        .map(|config| connect(&args, config, &metrics))
        .transpose()?;
    let controller = cloud.clone().map(|cloud| controller(&args, cloud, operations.clone()));
    let identity = IdentityService::new(&args.driver_name, controller.is_some(), args.with_topology);

    let router = Server::builder()
        .layer(RpcLayer::new(metrics))
        .layer(layers::catch_panic())
        .add_service(IdentityServer::new(identity))
        .add_optional_service(controller.map(ControllerServer::new));
    let listener = Listener::bind(&plan.endpoint).await?;

    let readiness = Readiness::default();
    let login = cloud.map(|cloud| tokio::spawn(log_in(cloud, readiness.clone(), shutdown.clone())));
    let admin = match &plan.http_endpoint {
        None => None,
        Some(address) => {
            let liveness = Liveness::new(&plan.endpoint)?;
            let server = AdminServer::new(registry)
                .liveness(move || liveness.clone().check())
                .readiness(move || std::future::ready(readiness.check()))
                .bind(address)
                .await
                .map_err(RunError::Listen)?;
            Some(tokio::spawn(server.serve(shutdown.clone())))
        }
    };

    let stopped = shutdown.clone().cancelled_owned();
    let server = async move {
        match listener {
            Listener::Unix(socket) => {
                router
                    .serve_with_incoming_shutdown(UnixListenerStream::new(socket), stopped)
                    .await
            }
            Listener::Tcp(socket) => {
                router
                    .serve_with_incoming_shutdown(TcpListenerStream::new(socket), stopped)
                    .await
            }
        }
    };
    tracing::info!("serving");
    let served = drain(server, &operations, &shutdown).await;
    // Whatever ended the server ends the rest.
    shutdown.cancel();
    for task in login
        .into_iter()
        .map(|login| login.abort_handle())
        .chain(admin.map(|admin| admin.abort_handle()))
    {
        task.abort();
    }
    tracing::info!("ended");
    Ok(served?)
}

/// Runs the server to its end. After the shutdown began, calls and operations have [`DRAIN`] to finish.
async fn drain<E>(
    server: impl Future<Output = Result<(), E>>,
    operations: &Operations,
    shutdown: &CancellationToken,
) -> Result<(), E> {
    tokio::pin!(server);
    tokio::select! {
        served = &mut server => return served,
        () = shutdown.cancelled() => {}
    }
    let (served, left) = tokio::join!(tokio::time::timeout(DRAIN, &mut server), operations.close(DRAIN));
    if left > 0 {
        tracing::warn!(
            operations = left,
            "operations go on in OpenStack; the next process finds what they made"
        );
    }
    served.unwrap_or(Ok(()))
}

/// What the flags ask for, checked before anything is opened.
struct Plan {
    endpoint: Endpoint,
    http_endpoint: Option<TcpAddress>,
    cloud: Option<CloudConfig>,
}

impl Plan {
    fn of(args: &Args) -> Result<Self, RunError> {
        let endpoint = args.endpoint.parse().map_err(RunError::Endpoint)?;
        let http_endpoint = match args.http_endpoint.as_str() {
            "" => None,
            address => Some(address.parse().map_err(RunError::HttpEndpoint)?),
        };
        if !args.provide_controller_service && !args.provide_node_service {
            return Err(RunError::NoRole);
        }
        if args.register && args.unregister {
            return Err(RunError::RegisterAndUnregister);
        }
        if let Some(name) = args.cloud_name.iter().find(|name| !name.is_empty()) {
            return Err(RunError::CloudName(name.clone()));
        }
        let cloud = if args.provide_controller_service {
            Some(cloud_config(args)?)
        } else {
            None
        };
        Ok(Self {
            endpoint,
            http_endpoint,
            cloud,
        })
    }
}

fn cloud_config(args: &Args) -> Result<CloudConfig, RunError> {
    if args.cloud_config.is_empty() {
        return Err(RunError::NoCloudConfig);
    }
    let config = CloudConfig::load(&args.cloud_config)?;
    for warning in &config.warnings {
        tracing::warn!(warning, "cloud.conf");
    }
    Ok(config)
}

fn connect(args: &Args, config: CloudConfig, metrics: &DriverMetrics) -> Result<Cloud, RunError> {
    let own = CloudOptions::default();
    let user_agent: Vec<&str> = args
        .user_agent
        .iter()
        .map(String::as_str)
        .chain([own.user_agent.as_str()])
        .collect();
    let options = CloudOptions {
        user_agent: user_agent.join(" "),
        request_timeout: args.request_timeout,
        observer: Arc::new(metrics.clone()),
        ..own
    };
    Ok(Cloud::new(config, options)?)
}

fn controller(args: &Args, cloud: Cloud, operations: Operations) -> ControllerService {
    let settings = Settings {
        cluster: args.cluster.clone(),
        topology: args.with_topology,
        volumes_per_node: args
            .max_volumes_per_node
            .or(cloud.config().block_storage.node_volume_attach_limit),
        single_node_multi_writer: false,
    };
    ControllerService::new(cloud, operations, settings)
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

/// Why the process cannot do its work yet; empty when it can.
#[derive(Debug, Clone, Default)]
struct Readiness(Arc<Mutex<Option<String>>>);

impl Readiness {
    fn set(&self, reason: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    fn check(&self) -> Result<(), String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
            .map_or(Ok(()), Err)
    }
}

/// Logs in once, however long it takes, so that readiness and the log tell early whether the credentials are good. RPCs do not
/// wait for it.
async fn log_in(cloud: Cloud, readiness: Readiness, shutdown: CancellationToken) {
    readiness.set(Some("not logged in to OpenStack yet".into()));
    let mut pause = LOGIN_RETRY_FIRST;
    loop {
        match cloud.login().await {
            Ok(login) => {
                tracing::info!(
                    project = login.project_name,
                    project_id = login.project_id,
                    "logged in to OpenStack"
                );
                return readiness.set(None);
            }
            Err(error) => {
                tracing::warn!(%error, retry_in = ?pause, "cannot log in to OpenStack");
                readiness.set(Some(error.to_string()));
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LOGIN_RETRY_MAX),
            () = shutdown.cancelled() => return,
        }
    }
}
