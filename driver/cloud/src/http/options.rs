// SPDX-License-Identifier: Apache-2.0
//! How to talk to a cloud, whichever it is.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use csi_sources::Sources;

use crate::config::CloudConfig;
use crate::error::CloudError;
use crate::http::client::HttpClient;
use crate::http::observer::Observer;

/// How to talk to a cloud, apart from which one.
#[derive(Debug, Clone)]
pub struct CloudOptions {
    /// Sent as `User-Agent`.
    pub user_agent: String,
    /// How long one HTTP exchange may take.
    pub request_timeout: Duration,
    /// How long one operation (create, delete, attach, detach) may take with all its waits.
    pub operation_timeout: Duration,
    /// Whether the credentials came with a request rather than from this process's own configuration: then their refusal is
    /// [`CloudError::Unauthenticated`](crate::CloudError::Unauthenticated), the requester's own affair.
    pub credentials_of_request: bool,
    /// The id of the project in which the cloud works; any project when `None`. Nothing is sent with a token of another one.
    pub project: Option<String>,
    /// How long a volume may be on its way to or from a server before the operation ends with an error that says what to do
    /// about it. What OpenStack has begun goes on.
    pub stuck_after: Duration,
    /// Who hears about requests, logins and waits.
    pub observer: Arc<dyn Observer>,
    /// Who makes the HTTP clients.
    pub connector: Arc<dyn Connect>,
    /// Where wall time and random numbers come from.
    pub sources: Sources,
}

/// Makes the client of a cloud, once for each configuration that comes into use.
pub trait Connect: Send + Sync + Debug {
    /// A client for the cloud of this configuration. Sends no request: an error is about the configuration.
    fn connect(&self, config: &CloudConfig, options: &CloudOptions) -> Result<Arc<dyn HttpClient>, CloudError>;
}
