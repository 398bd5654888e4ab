// SPDX-License-Identifier: Apache-2.0
//! One failed exchange with OpenStack.

use std::fmt;
use std::time::Duration;

/// One failed exchange with OpenStack: what was attempted on what, and what came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The operation from the closed set that [`crate::Observer::request`] knows, for instance `volume_create`.
    pub operation: &'static str,
    /// The object, in words: `volume 1234…`, `server 1234…, volume 5678…`. May be empty.
    pub object: String,
    /// The HTTP status; `None` when there was no answer.
    pub status: Option<u16>,
    /// The fault text of the service, or what broke on the way to it.
    pub fault: String,
    /// `x-openstack-request-id` of the answer, the key to the service's own logs.
    pub request_id: Option<String>,
    /// Time from the first attempt to the failure, repeats included.
    pub elapsed: Duration,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operation)?;
        if !self.object.is_empty() {
            write!(f, " of {}", self.object)?;
        }
        match self.status {
            Some(status) => write!(f, ": HTTP {status}: {}", self.fault)?,
            None => write!(f, ": {}", self.fault)?,
        }
        write!(f, " (after {:.1} s", self.elapsed.as_secs_f64())?;
        if let Some(id) = &self.request_id {
            write!(f, ", request {id}")?;
        }
        f.write_str(")")
    }
}
