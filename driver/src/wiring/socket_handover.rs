// SPDX-License-Identifier: Apache-2.0
//! Waits for the previous process on a node, which may still serve the socket.
//!
//! During an update, the old pod ends before the new one starts. When this driver replaces another installation, its
//! pod starts while the old one runs. The node is then without a driver only for a moment.

use std::io::ErrorKind;
use std::path::Path;

use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use crate::timing::TIMING;

/// Waits until no process serves the socket; `None` if the shutdown comes first.
pub(super) async fn wait(path: &Path, shutdown: &CancellationToken) -> Option<()> {
    let mut logged = false;
    while is_served(path).await {
        if !logged {
            tracing::warn!(socket = %path.display(), "another process serves the CSI socket; waiting until it ends");
            logged = true;
        }
        tokio::select! {
            () = tokio::time::sleep(TIMING.socket_check) => {}
            () = shutdown.cancelled() => return None,
        }
    }
    if logged {
        tracing::info!(socket = %path.display(), "the other process has ended");
    }
    Some(())
}

/// Whether a process serves the socket. If a process hangs, connections are queued until the queue is full.
async fn is_served(path: &Path) -> bool {
    match UnixStream::connect(path).await {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn wait_ends_with_previous_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("csi.sock");
        let shutdown = CancellationToken::new();
        assert_eq!(wait(&path, &shutdown).await, Some(()), "nobody is there");
        let other = tokio::net::UnixListener::bind(&path).expect("a socket");
        let waits = wait(&path, &shutdown);
        tokio::pin!(waits);
        tokio::select! {
            _ = &mut waits => panic!("it did not wait"),
            accepted = other.accept() => drop(accepted.expect("it looked")),
        }
        drop(other);
        assert_eq!(waits.await, Some(()), "the socket is still there and nobody serves it");
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_hanging_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("csi.sock");
        let _hangs = tokio::net::UnixListener::bind(&path).expect("a socket");
        let shutdown = CancellationToken::new();
        // Longer than it takes to fill the queue.
        let waits = tokio::time::timeout(TIMING.socket_check * 10_000, wait(&path, &shutdown));
        assert!(waits.await.is_err(), "nobody answers, but the socket is not free");
    }

    #[tokio::test]
    async fn shutdown_ends_wait() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("csi.sock");
        let _other = tokio::net::UnixListener::bind(&path).expect("a socket");
        let shutdown = CancellationToken::new();
        shutdown.cancel();
        assert_eq!(wait(&path, &shutdown).await, None);
    }
}
