// SPDX-License-Identifier: Apache-2.0
//! Options of the connection to a cloud that do not depend on the cloud.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use csi_sources::Sources;

use crate::config::CloudConfig;
use crate::error::CloudError;
use crate::http::client::HttpClient;
use crate::http::observer::Observer;

/// Options that apply to any cloud.
#[derive(Debug, Clone)]
pub struct CloudOptions {
    /// Sent as `User-Agent`.
    pub user_agent: String,
    /// The time limit of one HTTP exchange.
    pub request_timeout: Duration,
    /// The time limit of one operation (create, delete, attach, detach) with all its waits.
    pub operation_timeout: Duration,
    /// Whether the credentials come with a request rather than from this process's own configuration. If so, a
    /// rejected login is [`CloudError::Unauthenticated`], which the requester has to resolve.
    pub credentials_of_request: bool,
    /// The id of the project in which the cloud works; any project when `None`. Nothing is sent with a token of
    /// another project.
    pub project: Option<String>,
    /// The time limit for attaching or detaching a volume, after which the operation ends with an error that names a
    /// remedy. An operation that OpenStack has begun continues.
    pub stuck_after: Duration,
    /// Receives requests, logins and waits.
    pub observer: Arc<dyn Observer>,
    /// Creates the HTTP clients.
    pub connector: Arc<dyn Connect>,
    /// The source of wall time and random numbers.
    pub sources: Sources,
}

/// Creates the client of a cloud, once for each configuration that comes into use.
pub trait Connect: Send + Sync + Debug {
    /// Creates a client for the cloud of this configuration. Sends no request, so an error always concerns the
    /// configuration.
    fn connect(&self, config: &CloudConfig, options: &CloudOptions) -> Result<Arc<dyn HttpClient>, CloudError>;
}
