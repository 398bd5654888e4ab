// SPDX-License-Identifier: Apache-2.0
//! The socket's handover on a node: the process before this one may still serve the socket.
//!
//! On an update the old pod has ended before the new one starts. When this driver takes the place of another installation it is there
//! beside it before that ends, so that the node is without a driver for a moment only.

use std::io::ErrorKind;
use std::path::Path;

use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use crate::timing::TIMING;

/// Waits until nobody serves the socket; `None` when the shutdown comes first.
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

/// Whether a process has the socket. One that hangs lets connections queue up, until no further one is taken.
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
    async fn the_turn_comes_when_the_process_before_ends() {
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
    async fn a_process_that_hangs_is_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("csi.sock");
        let _hangs = tokio::net::UnixListener::bind(&path).expect("a socket");
        let shutdown = CancellationToken::new();
        // Longer than it takes to fill its queue.
        let waits = tokio::time::timeout(TIMING.socket_check * 10_000, wait(&path, &shutdown));
        assert!(waits.await.is_err(), "nobody answers, but the socket is not free");
    }

    #[tokio::test]
    async fn a_shutdown_ends_the_wait() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("csi.sock");
        let _other = tokio::net::UnixListener::bind(&path).expect("a socket");
        let shutdown = CancellationToken::new();
        shutdown.cancel();
        assert_eq!(wait(&path, &shutdown).await, None);
    }
}
