// SPDX-License-Identifier: Apache-2.0
//! Registers the driver with the kubelet, in place of the node-driver-registrar sidecar.
//!
//! The kubelet watches `plugins_registry` and sends a GetInfo request to every socket that appears there. Two
//! properties matter:
//!
//! * Its plugin manager sends the percent-encoded path of the socket as the HTTP/2 authority, which a strict server
//!   refuses. With one `@` in the socket's name, the server parses the encoded path as user information and accepts it.
//! * When a socket disappears or is replaced, the kubelet briefly removes the driver from the node's CSINode. No pods
//!   are scheduled there in this time. The socket is therefore in `plugins/<driver>`, which the kubelet does not watch,
//!   and is never removed. `plugins_registry` contains a symbolic link to it that survives restarts of the driver.
//!
//! The driver creates the link if it is missing. It replaces the link, so that the kubelet sends GetInfo again, in two
//! cases. The response to NodeGetInfo may have changed since the link was created. Or the link was dangling, and a
//! kubelet that started in the meantime ignored it.

use std::path::PathBuf;
use std::sync::Arc;

use csi_proto::csi::v1::NodeGetInfoResponse;
use csi_proto::pluginregistration::v1::registration_server::{Registration as Kubelet, RegistrationServer};
use csi_proto::pluginregistration::v1::{
    CSI_PLUGIN, InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use parking_lot::{Mutex, MutexGuard};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::node::NodeService;
use crate::timing::TIMING;

mod files;
mod refusal;

pub use error::RegistrationError;
pub use files::FilesError;
use refusal::RegistrationRefusal;

/// Only the kubelet, which runs as root, registers plugins.
const SOCKET_MODE: u32 = 0o600;
/// The kubelet's registration accepts any version of CSI from 1.0.
const CSI_VERSION: &str = "1.0.0";

/// The driver and the directories of its registration.
#[derive(Debug, Clone)]
pub struct RegistrationConfig {
    pub driver_name: String,
    pub kubelet_dir: PathBuf,
    /// The socket that serves CSI; `None` if CSI is served over TCP.
    pub csi_socket: Option<PathBuf>,
}

/// The registration of one driver. Cheap to clone; clones share its state.
#[derive(Debug, Clone)]
pub struct Registration {
    files: files::Files,
    driver_name: String,
    csi_socket: PathBuf,
    state: Arc<Mutex<RegistrationState>>,
}

/// The state of the registration, as known to this process.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RegistrationState {
    /// The driver is not offered, for this reason.
    Waiting(String),
    /// The link was created, and the kubelet has not responded.
    Offered,
    /// The kubelet accepted the driver, now or when an earlier process offered it.
    Accepted,
    /// The kubelet refused the driver, for this reason.
    Refused(RegistrationRefusal),
}

impl Registration {
    /// Validates the configuration. Does not touch any file.
    pub fn new(config: RegistrationConfig) -> Result<Self, RegistrationError> {
        let RegistrationConfig {
            driver_name,
            kubelet_dir,
            csi_socket,
        } = config;
        let files = files::Files::new(&kubelet_dir, &driver_name)?;
        let csi_socket = match csi_socket {
            Some(path) if path.starts_with(&kubelet_dir) => path,
            other => {
                let endpoint = other.map_or_else(|| "tcp".to_owned(), |path| path.display().to_string());
                return Err(RegistrationError::Endpoint {
                    endpoint,
                    kubelet_dir,
                    driver_name,
                });
            }
        };
        let state = RegistrationState::Waiting("the registration with the kubelet has not begun".into());
        Ok(Self {
            files,
            driver_name,
            csi_socket,
            state: Arc::new(Mutex::new(state)),
        })
    }

    /// The reason why the kubelet may not know this driver; `None` if it is registered.
    pub fn problem(&self) -> Option<String> {
        match &*self.state() {
            RegistrationState::Waiting(reason) => Some(reason.clone()),
            RegistrationState::Offered => Some("the kubelet was offered this driver and has not answered yet".into()),
            RegistrationState::Accepted => None,
            RegistrationState::Refused(refusal) => Some(refusal.to_string()),
        }
    }

    /// Registers the driver and maintains the registration until `shutdown`. The files remain for the next process.
    pub async fn serve(self, node: NodeService, shutdown: CancellationToken) {
        let work = async {
            let info = self.node_info(&node).await;
            let answer = files::render(&info, &self.csi_socket);
            loop {
                self.serve_once(&answer, &shutdown).await;
                tokio::time::sleep(TIMING.registration_check).await;
            }
        };
        tokio::select! {
            () = work => {}
            () = shutdown.cancelled() => {}
        }
    }

    /// Removes the registration, so that the kubelet removes the driver from CSINode. Succeeds if there is none.
    pub async fn withdraw(&self) -> Result<(), FilesError> {
        let files = self.files.clone();
        files::blocking(move || files.withdraw()).await?;
        *self.state() = RegistrationState::Waiting("--unregister removed the registration".into());
        Ok(())
    }

    /// Waits for the first response of NodeGetInfo.
    ///
    /// The kubelet calls NodeGetInfo as soon as it sees the link, and backs off for up to two minutes after an error.
    /// The link is therefore created after the first success.
    async fn node_info(&self, node: &NodeService) -> NodeGetInfoResponse {
        let mut pause = TIMING.node_info_retry_first;
        loop {
            match node.info().await {
                Ok(info) => return info,
                Err(error) => {
                    tracing::warn!(%error, retry_in = ?pause, "cannot register with the kubelet yet");
                    *self.state() = RegistrationState::Waiting(error.to_string());
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(TIMING.node_info_retry_max);
        }
    }

    /// Serves the socket until `shutdown`, or until the socket disappears or cannot be bound.
    async fn serve_once(&self, answer: &str, shutdown: &CancellationToken) {
        let bound = self.bind().await;
        let (listener, was_missing) = match bound {
            Ok(bound) => bound,
            Err(error) => return self.report_error(&error),
        };
        let lost = CancellationToken::new();
        let stop = lost.clone();
        let end = shutdown.clone();
        let server = Server::builder()
            .add_service(RegistrationServer::new(self.clone()))
            .serve_with_incoming_shutdown(UnixListenerStream::new(listener), async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = end.cancelled() => {}
                }
            });
        let checks = async {
            let mut renew = was_missing;
            loop {
                let linked = self.link(answer, renew).await;
                // The renewal is retried until it succeeds.
                renew &= linked.is_err();
                match linked {
                    Ok(files::LinkState::Created) => {
                        tracing::info!(driver = self.driver_name, "offered to the kubelet");
                        self.record_link(RegistrationState::Offered);
                    }
                    // The registration of an earlier process is valid.
                    Ok(files::LinkState::Valid) => self.record_link(RegistrationState::Accepted),
                    Ok(files::LinkState::SocketLost) => {
                        tracing::warn!("another process removed the registration socket; creating it again");
                        lost.cancel();
                        return;
                    }
                    Err(error) => self.report_error(&error),
                }
                tokio::time::sleep(TIMING.registration_check).await;
            }
        };
        // The server ends only after `lost` or `shutdown`, or if it fails.
        tokio::select! {
            ended = server => if let Err(error) = ended { self.report_error(&error) },
            () = checks => {}
        }
    }

    async fn bind(&self) -> Result<(UnixListener, bool), FilesError> {
        let files = self.files.clone();
        let was_missing = files::blocking(move || files.prepare()).await?;
        let listener = csi_kit::socket::bind(self.files.socket(), SOCKET_MODE)?;
        Ok((listener, was_missing))
    }

    async fn link(&self, answer: &str, renew: bool) -> Result<files::LinkState, FilesError> {
        let (files, answer) = (self.files.clone(), answer.to_owned());
        files::blocking(move || files.link(&answer, renew)).await
    }

    fn report_error(&self, error: &dyn std::error::Error) {
        tracing::warn!(%error, retry_in = ?TIMING.registration_check, "cannot register with the kubelet");
        *self.state() = RegistrationState::Waiting(format!("cannot register with the kubelet: {error}"));
    }

    /// Records a valid link. A response of the kubelet, which may have arrived in the meantime, is retained.
    fn record_link(&self, state: RegistrationState) {
        let mut current = self.state();
        if matches!(*current, RegistrationState::Waiting(_)) {
            *current = state;
        }
    }

    fn state(&self) -> MutexGuard<'_, RegistrationState> {
        self.state.lock()
    }
}

#[tonic::async_trait]
impl Kubelet for Registration {
    async fn get_info(&self, _request: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: CSI_PLUGIN.to_owned(),
            name: self.driver_name.clone(),
            endpoint: self.csi_socket.display().to_string(),
            supported_versions: vec![CSI_VERSION.to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        *self.state() = if status.plugin_registered {
            tracing::info!(driver = self.driver_name, "registered with the kubelet");
            RegistrationState::Accepted
        } else {
            let refusal = RegistrationRefusal::parse(&status.error);
            let (driver, reason) = (&self.driver_name, refusal.reason());
            tracing::error!(driver, reason, error = status.error, "{refusal}");
            RegistrationState::Refused(refusal)
        };
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

mod error;
#[cfg(test)]
mod tests;
