// SPDX-License-Identifier: Apache-2.0
//! Stand-ins for the upstream sidecars of a driver on a node, which are not available as Go modules:
//! node-driver-registrar and livenessprobe. They support the documented flags and use `driver/kit`. The name of the
//! program selects the sidecar.
//!
//! One difference remains: the kubelet's plugin manager sends the percent-encoded socket path as the HTTP/2 authority.
//! A strict server refuses that unless the socket name contains an `@`. The socket is therefore
//! `DRIVER-registrar@reg.sock`, and not upstream's `DRIVER-reg.sock`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use csi_kit::admin::{HealthChecks, HttpServer, metrics_router};
use csi_kit::endpoint::TcpAddress;
use csi_kit::metrics::{BuildInfo, Metrics};
use csi_proto::csi::v1::identity_client::IdentityClient;
use csi_proto::csi::v1::{GetPluginInfoRequest, ProbeRequest};
use csi_proto::pluginregistration::v1::registration_server::{Registration, RegistrationServer};
use csi_proto::pluginregistration::v1::{
    CSI_PLUGIN, InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use tokio::sync::watch;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

/// Retry interval for a driver that does not respond yet.
const RETRY: Duration = Duration::from_millis(250);
/// Only the kubelet, which runs as root, registers plugins.
const SOCKET_MODE: u32 = 0o600;

/// Flags of node-driver-registrar.
#[derive(Debug, Clone, Parser)]
struct Registrar {
    /// Socket of the driver in this container
    #[arg(long, value_parser = socket, default_value = "/run/csi/socket")]
    csi_address: PathBuf,
    /// Socket of the driver on the node, for the kubelet
    #[arg(long)]
    kubelet_registration_path: PathBuf,
    /// The kubelet's directory of registration sockets in this container
    #[arg(long, default_value = "/registration")]
    plugin_registration_path: PathBuf,
    /// Timeout of a call to the driver
    #[arg(long, value_parser = duration, default_value = "1s")]
    timeout: Duration,
    /// Address for /healthz and /metrics
    #[arg(long, default_value = "")]
    http_endpoint: String,
    /// Register, or check that the registration was accepted
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,
    /// Verbosity of the log
    #[arg(short = 'v', long = "v", default_value_t = 0)]
    verbosity: u8,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Mode {
    #[default]
    Registration,
    KubeletRegistrationProbe,
}

/// Flags of livenessprobe.
#[derive(Debug, Clone, Parser)]
struct LivenessProbe {
    /// Socket of the driver
    #[arg(long, value_parser = socket, default_value = "/run/csi/socket")]
    csi_address: PathBuf,
    /// Port for /healthz on every address, unless --http-endpoint is set
    #[arg(long, default_value_t = 9808)]
    health_port: u16,
    /// Address for /healthz and /metrics
    #[arg(long, default_value = "")]
    http_endpoint: String,
    /// Timeout of a Probe
    #[arg(long, value_parser = duration, default_value = "1s")]
    probe_timeout: Duration,
    /// Verbosity of the log
    #[arg(short = 'v', long = "v", default_value_t = 0)]
    verbosity: u8,
}

/// Parses a path or `unix:///path`.
fn socket(text: &str) -> Result<PathBuf> {
    let path = PathBuf::from(text.strip_prefix("unix://").unwrap_or(text));
    ensure!(path.is_absolute(), "`{text}` is no absolute path");
    Ok(path)
}

/// Parses a duration in Go's format with one unit.
fn duration(text: &str) -> Result<Duration> {
    let (number, unit) = text.split_at(text.trim_end_matches(char::is_alphabetic).len());
    let number: u64 = number.parse().with_context(|| format!("`{text}` is no time"))?;
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_mins(number)),
        _ => bail!("`{text}` has no unit ms, s or m"),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let name = called.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let outcome = match name.as_str() {
        "livenessprobe" => serve_health(LivenessProbe::parse()).await,
        "csi-node-driver-registrar" | "node-driver-registrar" => {
            let args = Registrar::parse();
            match args.mode {
                Mode::Registration => register(args).await,
                Mode::KubeletRegistrationProbe => probe_registration(&args),
            }
        }
        other => Err(anyhow::anyhow!(
            "{other}: call this program csi-node-driver-registrar or livenessprobe"
        )),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Starts a sidecar: initializes the log, handles signals, and logs that this is not an upstream program.
fn begin(name: &str, verbosity: u8) -> Result<CancellationToken> {
    let level = if verbosity >= 5 { "debug" } else { "info" };
    csi_kit::telemetry::init(level, csi_kit::telemetry::LogFormat::Text)?;
    eprintln!("{name}: a stand-in for the upstream program of this name, for tests");
    csi_kit::signals::shutdown().context("cannot receive signals")
}

/// Creates a client of the driver that connects on use and reconnects when needed.
fn driver(socket: &Path, limit: Duration) -> Result<IdentityClient<Channel>> {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))?;
    Ok(IdentityClient::new(
        endpoint.connect_timeout(limit).timeout(limit).connect_lazy(),
    ))
}

fn metrics(program: &'static str) -> Result<Metrics> {
    Ok(Metrics::new(BuildInfo {
        program,
        version: env!("CARGO_PKG_VERSION"),
        revision: "",
    })?)
}

async fn serve_health(args: LivenessProbe) -> Result<()> {
    let shutdown = begin("livenessprobe", args.verbosity)?;
    let address = match args.http_endpoint.as_str() {
        "" => format!(":{}", args.health_port),
        given => given.to_owned(),
    };
    let client = driver(&args.csi_address, args.probe_timeout)?;
    let check = move || {
        let mut client = client.clone();
        async move {
            let answer = client.probe(Request::new(ProbeRequest {})).await;
            let answer = answer.map_err(|status| format!("Probe failed: {}", status.message()))?;
            match answer.get_ref().ready {
                Some(false) => Err("the driver is not ready".to_owned()),
                _ => Ok(()),
            }
        }
    };
    let checks = HealthChecks::default()
        .liveness(check)
        // The call itself has a timeout.
        .check_timeout(args.probe_timeout + Duration::from_secs(1));
    let pages = checks.router().merge(metrics_router(metrics("livenessprobe")?));
    let server = HttpServer::bind(&address.parse::<TcpAddress>()?, pages, None).await?;
    server.serve(shutdown).await.context("the HTTP server failed")
}

/// Returns the file that records the successful registration, next to the driver's socket, as upstream.
fn registration_file(args: &Registrar) -> PathBuf {
    args.csi_address.with_file_name("registration")
}

fn probe_registration(args: &Registrar) -> Result<()> {
    let note = registration_file(args);
    ensure!(
        note.exists(),
        "{} is not there: the kubelet has not accepted the driver",
        note.display()
    );
    Ok(())
}

async fn register(args: Registrar) -> Result<()> {
    let shutdown = begin("node-driver-registrar", args.verbosity)?;
    let name = tokio::select! {
        name = driver_name(&args) => name?,
        () = shutdown.cancelled() => return Ok(()),
    };
    let socket = args.plugin_registration_path.join(format!("{name}-registrar@reg.sock"));
    let note = registration_file(&args);
    if note.exists() {
        fs::remove_file(&note).with_context(|| format!("cannot remove {}", note.display()))?;
    }
    let listener = csi_kit::socket::bind(&socket, SOCKET_MODE)?;
    let (told, mut answer) = watch::channel(None);
    let kubelet = Kubelet {
        info: PluginInfo {
            r#type: CSI_PLUGIN.to_owned(),
            name,
            endpoint: args.kubelet_registration_path.display().to_string(),
            supported_versions: vec!["1.0.0".to_owned()],
        },
        note,
        told,
    };
    if !args.http_endpoint.is_empty() {
        let looked = socket.clone();
        let check = move || {
            let exists = looked.exists();
            std::future::ready(if exists {
                Ok(())
            } else {
                Err("the registration socket is gone".to_owned())
            })
        };
        let checks = HealthChecks::default().liveness(check);
        let pages = checks.router().merge(metrics_router(metrics("node_driver_registrar")?));
        let server = HttpServer::bind(&args.http_endpoint.parse::<TcpAddress>()?, pages, None).await?;
        tokio::spawn(server.serve(shutdown.clone()));
    }
    let server = Server::builder()
        .add_service(RegistrationServer::new(kubelet))
        .serve_with_incoming(UnixListenerStream::new(listener));
    let refused = async {
        let refused = answer.wait_for(Option::is_some).await;
        refused.ok().and_then(|reason| reason.clone()).unwrap_or_default()
    };
    let outcome = tokio::select! {
        ended = server => ended.context("the registration server failed"),
        // As upstream, exits so that the kubelet restarts the container.
        reason = refused => Err(anyhow::anyhow!("the kubelet refused the registration: {reason}")),
        () = shutdown.cancelled() => Ok(()),
    };
    // The kubelet removes the driver from the CSINode when the socket is deleted.
    fs::remove_file(&socket).with_context(|| format!("cannot remove {}", socket.display()))?;
    outcome
}

/// Returns the driver's name, as soon as the driver responds.
async fn driver_name(args: &Registrar) -> Result<String> {
    let mut client = driver(&args.csi_address, args.timeout)?;
    loop {
        match client.get_plugin_info(Request::new(GetPluginInfoRequest {})).await {
            Ok(info) => return Ok(info.into_inner().name),
            Err(status) => eprintln!(
                "node-driver-registrar: the driver does not answer yet: {}",
                status.message()
            ),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// The registration service for the kubelet.
#[derive(Debug)]
struct Kubelet {
    info: PluginInfo,
    note: PathBuf,
    /// The kubelet's reason for a refusal.
    told: watch::Sender<Option<String>>,
}

#[tonic::async_trait]
impl Registration for Kubelet {
    async fn get_info(&self, _request: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        if status.plugin_registered {
            fs::write(&self.note, "")
                .map_err(|error| Status::internal(format!("cannot write {}: {error}", self.note.display())))?;
            eprintln!("node-driver-registrar: registered with the kubelet");
        } else {
            self.told.send_replace(Some(status.error));
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
