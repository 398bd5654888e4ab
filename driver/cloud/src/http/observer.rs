// SPDX-License-Identifier: Apache-2.0
//! Reports the traffic with OpenStack to the rest of the program: enough for metrics, no secrets.

use std::fmt::Debug;
use std::time::Duration;

use jiff::Timestamp;

/// Receives one call per request, login and wait. Implementations must return at once, because they block the
/// request.
pub trait Observer: Send + Sync + Debug {
    /// A request was answered or failed. `service` is `block-storage`, `compute` or `identity`. `operation` is a name
    /// from a closed set such as `volume_get`. `code` is the HTTP status, or 0 without a response. Each attempt
    /// counts separately.
    fn request(&self, service: &'static str, operation: &'static str, code: u16, elapsed: Duration) {
        let _ = (service, operation, code, elapsed);
    }

    /// A login at Keystone ended; `ok` is true when Keystone issued a token.
    fn token_issued(&self, ok: bool) {
        let _ = ok;
    }

    /// A wait for a volume ended, successfully or not. `operation` is `create`, `delete`, `attach`, `detach`,
    /// `extend` or `settle`. `waited` is the time from the first accepted request to the end. `polls` counts the
    /// polls for this volume, which include shared lists.
    fn wait_finished(&self, operation: &'static str, waited: Duration, polls: u32) {
        let _ = (operation, waited, polls);
    }

    /// A task joined (1) or left (-1) a queue: `wait` for operations that OpenStack has accepted, `attach` and
    /// `detach` for a turn at a server.
    fn queue_changed(&self, queue: &'static str, change: i8) {
        let _ = (queue, change);
    }

    /// The driver sends no requests to `service` until `end`, because it requested a pause. A time in the past ends
    /// the pause.
    fn service_paused(&self, service: &'static str, end: Timestamp) {
        let _ = (service, end);
    }
}

/// An observer that ignores all calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoopObserver;

impl Observer for NoopObserver {}
