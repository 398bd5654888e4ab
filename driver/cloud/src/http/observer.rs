// SPDX-License-Identifier: Apache-2.0
//! What the rest of the program may learn about the traffic with OpenStack: enough for metrics, nothing secret.

use std::fmt::Debug;
use std::time::Duration;

/// Receives one call per request, login and wait. Implementations must return at once: they run on the request's path.
pub trait Observer: Send + Sync + Debug {
    /// A request was answered or given up. `service` is `block-storage`, `compute` or `identity`; `operation` is a name from a
    /// closed set such as `volume_get`; `code` is the HTTP status, 0 when there was no answer. Each attempt counts on its own.
    fn request(&self, service: &'static str, operation: &'static str, code: u16, elapsed: Duration) {
        let _ = (service, operation, code, elapsed);
    }

    /// Keystone was asked for a token; `ok` tells whether it gave one.
    fn token_issued(&self, ok: bool) {
        let _ = ok;
    }

    /// A wait for a volume ended, well or not. `operation` is `create`, `delete`, `attach`, `detach`, `extend` or `settle`; `waited` runs
    /// from the first accepted request to the end; `polls` counts the looks taken for this volume, shared lists included.
    fn wait_finished(&self, operation: &'static str, waited: Duration, polls: u32) {
        let _ = (operation, waited, polls);
    }

    /// Somebody joined (1) or left (-1) a queue: `wait` for what OpenStack has accepted, `attach` and `detach` for a turn at a
    /// server.
    fn queue_changed(&self, queue: &'static str, change: i8) {
        let _ = (queue, change);
    }
}

/// An observer that looks away.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl Observer for Unobserved {}
