// SPDX-License-Identifier: Apache-2.0
//! Handles interrupts.

use std::future::Future;

use tokio::signal::unix::{SignalKind, signal};

/// Runs the work to completion. Cancels it at SIGINT, SIGTERM or SIGHUP and returns `None`.
pub(crate) async fn unless_interrupted<T>(work: impl Future<Output = T>) -> Option<T> {
    let signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
    let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = signals else {
        // Without handlers, a signal ends this process, and the keeper process cleans up.
        return Some(work.await);
    };
    tokio::select! {
        result = work => Some(result),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
        _ = hangup.recv() => None,
    }
}
