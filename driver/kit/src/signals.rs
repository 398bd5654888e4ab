// SPDX-License-Identifier: Apache-2.0
//! Shutdown by signal.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Returns a token that is cancelled by the first SIGTERM or SIGINT. A second signal ends the process at once, with the
/// exit status that shells use for that signal.
///
/// Must be called inside a tokio runtime. Fails if the signal handlers cannot be installed.
pub fn shutdown() -> io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let cancelled = token.clone();
    tokio::spawn(async move {
        loop {
            let (name, status) = tokio::select! {
                Some(()) = terminate.recv() => ("SIGTERM", 128 + SignalKind::terminate().as_raw_value()),
                Some(()) = interrupt.recv() => ("SIGINT", 128 + SignalKind::interrupt().as_raw_value()),
                else => return,
            };
            if cancelled.is_cancelled() {
                warn!(signal = name, "second signal: ending at once");
                std::process::exit(status);
            }
            info!(signal = name, "shutting down");
            cancelled.cancel();
        }
    });
    Ok(token)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[tokio::test]
    async fn first_signal_cancels_token() {
        let token = shutdown().expect("installs the handlers");
        assert!(!token.is_cancelled());
        kill_process(getpid(), Signal::TERM).expect("sends");
        tokio::time::timeout(Duration::from_secs(10), token.cancelled())
            .await
            .expect("is cancelled");
    }
}
