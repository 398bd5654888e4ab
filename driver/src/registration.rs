// SPDX-License-Identifier: Apache-2.0
//! Registration with the kubelet, in place of the node-driver-registrar sidecar.
//!
//! The kubelet watches `plugins_registry` and asks whatever socket appears there who it is. Two things about that:
//!
//! * Its plugin manager sends the percent-encoded path of the socket as HTTP/2 authority, which a strict server refuses.
//!   With one `@` in the socket's name the encoded path is read as user information and is accepted.
//! * When a socket disappears or is replaced, the node's CSINode entry goes for a second, and pods cannot be scheduled to
//!   it. So the socket itself lives in `plugins/<driver>`, which the kubelet does not watch, and is never removed; what
//!   lies in `plugins_registry` is a symbolic link to it that survives restarts of the driver.
//!
//! The link is made when it is absent, and made anew, which makes the kubelet ask again, when the answer of NodeGetInfo
//! is not the one it was made with, or when it was dangling (a kubelet that started meanwhile ignored it).

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

/// Only the kubelet, which is root, registers plugins.
const SOCKET_MODE: u32 = 0o600;
/// The kubelet's registration takes any version of CSI from 1.0.
const CSI_VERSION: &str = "1.0.0";

/// What to register, and where.
#[derive(Debug, Clone)]
pub struct RegistrationConfig {
    /// The CSI driver's name.
    pub driver_name: String,
    /// The kubelet's root directory.
    pub kubelet_dir: PathBuf,
    /// The socket that serves CSI; `None` where CSI is served over TCP.
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

/// How far the registration has come, as far as this process knows.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RegistrationState {
    /// Nothing was offered, for this reason.
    Waiting(String),
    /// The link was made; the kubelet has not said what it thinks of it.
    Offered,
    /// The kubelet accepted, now or when an earlier process offered the same.
    Accepted,
    /// The kubelet refused, for this reason.
    Refused(RegistrationRefusal),
}

impl Registration {
    /// Checks what can be checked before anything is touched.
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

    /// Why the kubelet does not know this driver, as far as this process knows; `None` when all is well.
    pub fn problem(&self) -> Option<String> {
        match &*self.state() {
            RegistrationState::Waiting(reason) => Some(reason.clone()),
            RegistrationState::Offered => Some("the kubelet was offered this driver and has not answered yet".into()),
            RegistrationState::Accepted => None,
            RegistrationState::Refused(refusal) => Some(refusal.to_string()),
        }
    }

    /// Registers and stays registered until `shutdown`. Nothing is removed at the end: the next process goes on.
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

    /// Takes the registration away: the CSINode entry goes. Nothing there is fine.
    pub async fn withdraw(&self) -> Result<(), FilesError> {
        let files = self.files.clone();
        files::blocking(move || files.withdraw()).await?;
        *self.state() = RegistrationState::Waiting("--unregister removed the registration".into());
        Ok(())
    }

    /// The kubelet asks NodeGetInfo as soon as it sees the link, and backs off for up to two minutes when it gets no
    /// answer: so the link comes after the first answer.
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

    /// Serves until the shutdown, or until the socket is gone or cannot be had.
    async fn serve_once(&self, answer: &str, shutdown: &CancellationToken) {
        let bound = self.bind().await;
        let (listener, was_missing) = match bound {
            Ok(bound) => bound,
            Err(error) => return self.complain(&error),
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
        let look = async {
            let mut renew = was_missing;
            loop {
                let linked = self.link(answer, renew).await;
                // What could not be done is still to be done.
                renew &= linked.is_err();
                match linked {
                    Ok(files::Link::Made) => {
                        tracing::info!(driver = self.driver_name, "offered to the kubelet");
                        self.linked(RegistrationState::Offered);
                    }
                    // An earlier process's registration stands.
                    Ok(files::Link::Stands) => self.linked(RegistrationState::Accepted),
                    Ok(files::Link::SocketLost) => {
                        tracing::warn!("another process removed the registration socket; creating it again");
                        lost.cancel();
                        return;
                    }
                    Err(error) => self.complain(&error),
                }
                tokio::time::sleep(TIMING.registration_check).await;
            }
        };
        // The server ends by itself only when `lost` or the shutdown says so, or when it is broken.
        tokio::select! {
            ended = server => if let Err(error) = ended { self.complain(&error) },
            () = look => {}
        }
    }

    async fn bind(&self) -> Result<(UnixListener, bool), FilesError> {
        let files = self.files.clone();
        let was_missing = files::blocking(move || files.prepare()).await?;
        let listener = csi_kit::socket::bind(self.files.socket(), SOCKET_MODE)?;
        Ok((listener, was_missing))
    }

    async fn link(&self, answer: &str, renew: bool) -> Result<files::Link, FilesError> {
        let (files, answer) = (self.files.clone(), answer.to_owned());
        files::blocking(move || files.link(&answer, renew)).await
    }

    fn complain(&self, error: &dyn std::error::Error) {
        tracing::warn!(%error, retry_in = ?TIMING.registration_check, "cannot register with the kubelet");
        *self.state() = RegistrationState::Waiting(format!("cannot register with the kubelet: {error}"));
    }

    /// The link is as it should be. What the kubelet has said, perhaps while the link was being made, stays.
    fn linked(&self, state: RegistrationState) {
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
