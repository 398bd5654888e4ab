// SPDX-License-Identifier: Apache-2.0
//! The public API of one cloud.

mod facts;
mod groups;
mod lists;
mod snapshots;
mod volumes;

mod handle;
mod lookup;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::api::block_storage::{BlockStorage, CreatedVolume, NewVolume, Volume};
use crate::api::compute::{Compute, Server};
use crate::config::CloudConfig;
use crate::context::Context;
use crate::error::CloudError;
use crate::http::auth::Token;
use crate::http::catalog::Region;
use crate::http::connection::Connection;
use crate::http::options::CloudOptions;
use crate::ids::{ServerId, VolumeId};
use crate::operations::attachments::attach::attach_volume;
use crate::operations::attachments::detach::detach_volume;
use crate::operations::attachments::{AttachOptions, AttachOutcome};
use crate::operations::volumes::create::create_volume;
use crate::operations::volumes::delete::delete_volume;
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

    /// Gets a volume; `None` if Cinder does not know it (404), or if the id is not a UUID.
    pub async fn volume(&self, volume: &VolumeId) -> Result<Option<Volume>, CloudError> {
        if !volume.is_uuid() {
            return Ok(None);
        }
        BlockStorage::new(&self.inner.transport).volume(volume).await
    }

    /// Gets a server; `None` if Nova does not know it (404), or if the id is not a UUID.
    pub async fn server(&self, server: &ServerId) -> Result<Option<Server>, CloudError> {
        if !server.is_uuid() {
            return Ok(None);
        }
        Compute::new(&self.inner.transport).server(server).await
    }

    /// Creates a volume, or adopts the one that an earlier call created under the same name, and waits until it is
    /// complete.
    ///
    /// The name is looked up first. A volume of this name with another size, type or zone is
    /// [`CloudError::AlreadyExists`]. Of several matching volumes, the oldest complete one is adopted and none is
    /// removed.
    ///
    /// The request is never repeated blindly: after an uncertain response the name is looked up again. A volume in
    /// `error` is removed only if its name and all metadata match. The error is then [`CloudError::VolumeFailed`] with
    /// Cinder's message.
    pub async fn create_volume(&self, new: NewVolume) -> Result<CreatedVolume, CloudError> {
        self.inner
            .invalidate_lists_after(create_volume(&self.inner, &new))
            .await
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

    /// Waits until each API node knows a resource of this id: up to ten seconds after the start of the process and after
    /// the creation of the resource. Returns whether it waited, so that an earlier 404 proves nothing.
    pub async fn wait_for_lag(&self, id: &str) -> bool {
        self.inner.wait_for_lag(id).await
    }

    /// Deletes a volume by its id, and waits until Cinder no longer knows it. A missing volume counts as deleted.
    ///
    /// An attached volume is [`CloudError::VolumeInUse`], one with snapshots [`CloudError::VolumeHasDependents`].
    pub async fn delete_volume(&self, volume: &VolumeId) -> Result<(), CloudError> {
        self.inner
            .invalidate_lists_after(delete_volume(&self.inner, volume))
            .await
    }

    /// Attaches a volume and waits for the end of the attachment. Does nothing if the volume is attached to the server
    /// already.
    ///
    /// If an attachment or detachment of the volume is pending, it waits for its end first. A volume that another
    /// server has is [`CloudError::AttachedElsewhere`].
    pub async fn attach(
        &self,
        volume: &VolumeId,
        server: &ServerId,
        options: AttachOptions,
    ) -> Result<AttachOutcome, CloudError> {
        let attachment = attach_volume(&self.inner, volume, server, options);
        self.inner.invalidate_lists_after(attachment).await
    }

    /// Detaches a volume from a server, or from all servers for `None`, and waits until Cinder and Nova agree on it.
    ///
    /// A missing volume, a missing server (404), or a volume that is not attached to the server counts as detached.
    /// Attachments of a deleted server that remain in Cinder are deleted.
    pub async fn detach(&self, volume: &VolumeId, server: Option<&ServerId>) -> Result<(), CloudError> {
        self.inner
            .invalidate_lists_after(detach_volume(&self.inner, volume, server))
            .await
    }
}
