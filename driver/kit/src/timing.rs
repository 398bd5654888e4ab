// SPDX-License-Identifier: Apache-2.0
//! Intervals, timeouts and retries of this crate.

use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Timing {
    /// Timeout between two requests of a client, and of reading a response.
    pub(crate) idle_timeout: Duration,
    /// Timeout of sending a request after its first byte.
    pub(crate) head_timeout: Duration,
    /// Timeout of open connections after the start of the shutdown.
    pub(crate) drain_timeout: Duration,
    /// Timeout of a check, unless [`crate::admin::HealthChecks::check_timeout`] sets another one. It is shorter than
    /// the usual timeouts of probes, so that the reason reaches the kubelet's event.
    pub(crate) check_timeout: Duration,
    /// Minimum interval between checks of the certificate files.
    pub(crate) certificate_check: Duration,
    /// Timeout of a TLS handshake.
    pub(crate) handshake_timeout: Duration,
    /// Pause after a failed accept. The usual cause is a lack of file descriptors.
    pub(crate) accept_retry: Duration,
}

/// The values of the product, which tests use as well.
pub(crate) const TIMING: Timing = Timing {
    idle_timeout: Duration::from_secs(30),
    head_timeout: Duration::from_secs(10),
    drain_timeout: Duration::from_secs(2),
    check_timeout: Duration::from_secs(3),
    certificate_check: Duration::from_secs(10),
    handshake_timeout: Duration::from_secs(5),
    accept_retry: Duration::from_millis(500),
};
