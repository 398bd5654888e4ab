// SPDX-License-Identifier: Apache-2.0
//! Where gRPC is served: a unix socket in a directory of the kubelet's, or a TCP address.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;

use csi_kit::endpoint::Endpoint;
use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use super::{Rpcs, RunError};

/// Who may open the CSI socket: the kubelet and the sidecars run as root or in our group.
const SOCKET_MODE: u32 = 0o660;
/// The directory of the CSI socket, where the node has to make it: root and our group.
const SOCKET_DIR_MODE: u32 = 0o750;

/// A node's socket is in a directory of the kubelet's that nobody else makes.
pub(super) fn make_socket_directory(endpoint: &Endpoint) -> Result<(), RunError> {
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
pub(super) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    pub(super) async fn bind(endpoint: &Endpoint) -> Result<Self, RunError> {
        match endpoint {
            Endpoint::Unix(path) => Ok(Self::Unix(csi_kit::socket::bind(path, SOCKET_MODE)?)),
            Endpoint::Tcp(address) => {
                tracing::warn!(%address, "CSI over TCP has neither encryption nor authentication; use a unix socket");
                address.bind().await.map(Self::Tcp).map_err(RunError::Listen)
            }
        }
    }
    /// Serves the RPCs until `shutdown`, and until those that are under way have ended.
    pub(super) async fn serve(self, rpcs: Rpcs, shutdown: CancellationToken) -> Result<(), tonic::transport::Error> {
        let (server, stopped) = (Server::builder(), shutdown.cancelled_owned());
        match self {
            Self::Unix(socket) => {
                let incoming = UnixListenerStream::new(socket);
                server.serve_with_incoming_shutdown(rpcs, incoming, stopped).await
            }
            Self::Tcp(socket) => {
                let incoming = TcpListenerStream::new(socket);
                server.serve_with_incoming_shutdown(rpcs, incoming, stopped).await
            }
        }
    }
}
