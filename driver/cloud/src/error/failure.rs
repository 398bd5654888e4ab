// SPDX-License-Identifier: Apache-2.0
//! One failed exchange with OpenStack.

use std::fmt;
use std::time::Duration;

/// One failed exchange with OpenStack: the operation, its object, and the response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The operation. [`crate::Observer::request`] has the closed set of names, for instance `volume_create`.
    pub operation: &'static str,
    /// The object as text: `volume 1234…`, `server 1234…, volume 5678…`. May be empty.
    pub object: String,
    /// The HTTP status; `None` if there was no response.
    pub status: Option<u16>,
    /// The fault text of the service, or the failure of the connection.
    pub fault: String,
    /// `x-openstack-request-id` of the response, which identifies the request in the service's logs.
    pub request_id: Option<String>,
    /// Time from the first attempt to the failure, including retries.
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
