//! The turn on a node: the process before this one may still serve the socket.
//!
//! On an update the old pod has ended before the new one starts. When this driver takes the place of another installation it is there
//! beside it before that ends, so that the node is without a driver for a moment only.

use std::path::Path;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

/// How often it is looked whether somebody serves.
const LOOK: Duration = Duration::from_millis(100);

/// Waits until nobody serves the socket; `None` when the shutdown comes first.
pub(super) async fn wait(path: &Path, shutdown: &CancellationToken) -> Option<()> {
    let mut told = false;
    while UnixStream::connect(path).await.is_ok() {
        if !told {
            tracing::warn!(socket = %path.display(), "another process serves the CSI socket; waiting until it ends");
            told = true;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = shutdown.cancelled() => return None,
        }
    }
    if told {
        tracing::info!(socket = %path.display(), "the other process has ended");
    }
    Some(())
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
