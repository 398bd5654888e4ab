// SPDX-License-Identifier: Apache-2.0
//! The endpoint of the gRPC server: a unix socket in a directory of the kubelet, or a TCP address.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;

use csi_kit::endpoint::Endpoint;
use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use super::{Rpcs, RunError};

/// The mode of the CSI socket. The kubelet and the sidecars run as root or in the driver's group.
const SOCKET_MODE: u32 = 0o660;
/// The mode of the socket's directory if the node creates it: for root and the driver's group.
const SOCKET_DIR_MODE: u32 = 0o750;

/// Creates the directory of a node's socket. It is a directory of the kubelet that no other program creates.
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

/// A bound endpoint of the gRPC server.
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
    /// Serves RPCs until `shutdown`, and then until the running RPCs have ended.
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
