// SPDX-License-Identifier: Apache-2.0
//! The request log of the cloud.

use jiff::Timestamp;
use serde::Serialize;

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogEntry {
    /// Time of the response.
    pub at: Timestamp,
    /// `keystone`, `cinder` or `nova`.
    pub service: &'static str,
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Operation name, for example `create_volume`; `unknown` for an unknown path.
    pub operation: &'static str,
    /// HTTP status; 0 if a fault rule closed the connection.
    pub status: u16,
    /// Request id of the response.
    pub request_id: String,
    /// Requested microversion, for example `3.34`.
    pub micro_version: Option<String>,
    /// User-Agent header.
    pub user_agent: String,
    /// Milliseconds from the request to the response.
    pub elapsed_ms: u64,
}
