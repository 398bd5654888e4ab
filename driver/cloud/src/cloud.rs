// SPDX-License-Identifier: Apache-2.0
//! The public API of one cloud.

mod attachments;
mod facts;
mod groups;
mod handle;
mod lists;
mod snapshots;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::config::CloudConfig;
use crate::context::Context;
use crate::error::CloudError;
use crate::http::auth::Token;
use crate::http::catalog::Region;
use crate::http::connection::Connection;
use crate::http::options::CloudOptions;
use crate::poll::Progress;

pub use facts::CloudService;
pub use handle::Cloud;

/// The result of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// The project of the token.
    pub project_id: String,
    pub project_name: String,
    pub user_id: String,
    /// The expiry of the token. The driver fetches a new one earlier.
    pub expires_at: Timestamp,
    /// The service types in the catalogue.
    pub services: Vec<String>,
    /// The region in use: the configured one, otherwise the only one in the catalogue. `None` if the catalogue names no
    /// region.
    pub region: Option<String>,
}

impl Login {
    fn new(token: &Token, connection: &Connection) -> Result<Self, CloudError> {
        let region = connection.region(token)?.and_then(Region::name).map(str::to_owned);
        let mut services: Vec<String> = token.catalog.iter().map(|entry| entry.kind.clone()).collect();
        services.sort();
        services.dedup();
        Ok(Self {
            project_id: token.project_id.clone(),
            project_name: token.project_name.clone(),
            user_id: token.user_id.clone(),
            expires_at: token.expires_at,
            services,
            region,
        })
    }
}

impl Cloud {
    /// Prepares a cloud without a request. An error concerns the configuration, for instance an unreadable CA file or
    /// an invalid URL. The caller must install the TLS provider of the process first.
    pub fn new(config: CloudConfig, options: CloudOptions) -> Result<Self, CloudError> {
        Ok(Self {
            inner: Arc::new(Context::new(config, options)?),
        })
    }

    /// The configuration in use. [`Cloud::reload`] may replace it, so callers should read it again instead of storing
    /// it.
    pub fn config(&self) -> Arc<CloudConfig> {
        self.inner.config()
    }

    /// Logs in with another configuration of the same cloud. On success, all operations use it from now on, pending
    /// ones included. On an error nothing changes.
    ///
    /// Refuses another project or region. Such a configuration is for another cloud, which would answer 404 for the
    /// volumes of this one.
    pub async fn reload(&self, config: CloudConfig) -> Result<Login, CloudError> {
        let connection = Arc::new(Connection::new(&config, &self.inner.options)?);
        let previous = self.inner.transport.connection();
        let token = connection.keystone().token().await;
        let token = token.map_err(|error| self.inner.transport.for_caller(error))?;
        let other = |what: &str, old: &str, new: &str| {
            CloudError::Setup(format!(
                "the new configuration is for {what} {new}, and {old} is in use; the volumes there would be taken for deleted. If \
                 this is meant, restart the driver"
            ))
        };
        // The current credentials may be the ones of the wrong project.
        let project = match self.inner.transport.project() {
            Some(own) => Some(own.to_owned()),
            None => previous.keystone().project_id().await,
        };
        if let Some(project) = project.filter(|id| *id != token.project_id) {
            return Err(other("project", &project, &token.project_id));
        }
        // Without a configured region the driver stays in the current one, whatever the catalogue lists now.
        let region = previous.known_region();
        if let Some(region) = region {
            connection.default_region(region);
        }
        let login = Login::new(&token, &connection)?;
        let regions = region.and_then(Region::name).zip(login.region.as_deref());
        if let Some((old, new)) = regions.filter(|(old, new)| old != new) {
            return Err(other("region", old, new));
        }
        self.inner.reconnect(config, connection);
        Ok(login)
    }

    /// The wall clock time of [`CloudOptions::sources`].
    pub fn now(&self) -> Timestamp {
        self.inner.options.sources.now()
    }

    /// Whether both handles share one session.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Logs in, or returns the current login. Callers use it to check credentials.
    pub async fn login(&self) -> Result<Login, CloudError> {
        let transport = &self.inner.transport;
        let connection = transport.connection();
        let token = connection.keystone().token().await;
        token
            .and_then(|token| Login::new(&token, &connection))
            .map_err(|error| transport.for_caller(error))
    }

    /// Checks that the credentials in use lead to [`CloudOptions::project`], and logs in if the token is missing.
    /// Passes if no project is set.
    pub async fn check_project(&self) -> Result<(), CloudError> {
        self.inner.transport.check_project().await
    }

    /// Progress of the pending operation on a volume in this process, by the volume's id or, for a creation, by its
    /// name. `None` if no operation is pending. Sends no request.
    pub fn progress(&self, volume: &str) -> Option<Progress> {
        self.inner.watch.progress(volume)
    }

    /// Whether this process created the resource of this id a moment ago. Until the database lag has passed, a 404 does
    /// not prove that such a resource is missing: an API node with a lagging database does not show it.
    pub fn has_new(&self, id: &str) -> bool {
        self.inner.is_new(id)
    }

    /// Returns how long a 404 does not prove that a resource of this id is missing; `None` if it does.
    pub fn unknown_for(&self, id: &str) -> Option<Duration> {
        self.inner.unknown_for(id)
    }

    /// Reads a resource with `read`. If a 404 does not prove that the resource is missing, reads it again when each API
    /// node must know it: ten seconds after the start of the process and after the creation of the resource.
    pub async fn confirm<T, L: Future<Output = Result<Option<T>, CloudError>>>(
        &self,
        id: &str,
        read: impl Fn() -> L,
    ) -> Result<Option<T>, CloudError> {
        self.inner.confirm(id, read).await
    }
}
