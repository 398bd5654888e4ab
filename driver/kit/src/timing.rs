// SPDX-License-Identifier: Apache-2.0
//! Every interval, timeout and retry of this crate.

use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Timing {
    /// How long a client may take between two requests, or to read a response.
    pub(crate) idle_timeout: Duration,
    /// How long a client may take to send a request after its first byte.
    pub(crate) head_timeout: Duration,
    /// How long open connections may take to end after shutdown was asked for.
    pub(crate) drain_timeout: Duration,
    /// How long a check may take, unless [`HealthChecks::check_timeout`] sets another limit. Shorter than the timeouts that probes
    /// usually have, so that the reason reaches the kubelet's event.
    pub(crate) check_timeout: Duration,
    /// How often the files are looked at, at most.
    pub(crate) certificate_check: Duration,
    /// How long a client may take to shake hands.
    pub(crate) handshake_timeout: Duration,
    /// Pause after the kernel had no connection to give, for want of file descriptors as a rule.
    pub(crate) accept_retry: Duration,
}

/// What holds in the product and in tests alike.
pub(crate) const TIMING: Timing = Timing {
    idle_timeout: Duration::from_secs(30),
    head_timeout: Duration::from_secs(10),
    drain_timeout: Duration::from_secs(2),
    check_timeout: Duration::from_secs(3),
    certificate_check: Duration::from_secs(10),
    handshake_timeout: Duration::from_secs(5),
    accept_retry: Duration::from_millis(500),
};
