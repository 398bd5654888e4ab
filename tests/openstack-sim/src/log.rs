// SPDX-License-Identifier: Apache-2.0
//! The record of the requests that the cloud answered.

use jiff::Timestamp;
use serde::Serialize;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogEntry {
    /// When the answer was ready.
    pub at: Timestamp,
    /// `keystone`, `cinder` or `nova`.
    pub service: &'static str,
    /// HTTP method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Name of the operation, for instance `create_volume`; `unknown` where the service has no such path.
    pub operation: &'static str,
    /// HTTP status; 0 where a fault cut the connection.
    pub status: u16,
    /// The request id that the answer carried.
    pub request_id: String,
    /// The microversion that was asked for, for instance `3.34`.
    pub micro_version: Option<String>,
    /// What the client calls itself.
    pub user_agent: String,
    /// Milliseconds from the request to the answer.
    pub elapsed_ms: u64,
}
