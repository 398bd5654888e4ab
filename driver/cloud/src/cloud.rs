// SPDX-License-Identifier: Apache-2.0
//! One cloud, ready to use: the crate's front door.

mod facts;
mod groups;
mod modify;
mod snapshots;
mod volumes;

mod handle;
mod lookup;

use std::sync::Arc;

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
use crate::operations::access_mode::attach_in_mode;
use crate::operations::attachments::{AttachOptions, AttachOutcome, detach};
use crate::operations::deletion::volume::delete_volume;
use crate::operations::volumes::create::create_volume;
use crate::poll::Progress;

pub use facts::CloudService;
pub use handle::Cloud;

/// What a login told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// The project worked in.
    pub project_id: String,
    pub project_name: String,
    pub user_id: String,
    /// When the token ends; a new one is fetched before.
    pub expires_at: Timestamp,
    /// The service types in the catalogue.
    pub services: Vec<String>,
    /// The region in use: the configured one, else the only one of the catalogue. `None` where the catalogue names none.
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
    /// Prepares everything and asks nobody yet: an error is about the configuration (a CA file that cannot be read, a bad URL).
    /// The TLS provider of the process must be installed before.
    pub fn new(config: CloudConfig, options: CloudOptions) -> Result<Self, CloudError> {
        Ok(Self {
            inner: Arc::new(Context::new(config, options)?),
        })
    }

    /// The configuration in use. [`Cloud::reload`] may replace it: ask again rather than keep it.
    pub fn config(&self) -> Arc<CloudConfig> {
        self.inner.config()
    }

    /// Tries to log in with another configuration of the same cloud, and uses it from then on, for whatever is under way too. On
    /// an error nothing changes. Another project or region is another cloud, whose "no such volume" would be false for the volumes
    /// of this one, and is refused.
    pub async fn reload(&self, config: CloudConfig) -> Result<Login, CloudError> {
        let connection = Arc::new(Connection::new(&config, &self.inner.options)?);
        let before = self.inner.transport.connection();
        let token = connection.keystone().token().await;
        let token = token.map_err(|error| self.inner.transport.for_caller(error))?;
        let other = |what: &str, old: &str, new: &str| {
            CloudError::Setup(format!(
                "the new configuration is for {what} {new}, and {old} is in use; the volumes there would be taken for deleted. If \
                 this is meant, restart the driver"
            ))
        };
        // The connection in use may be the one that leads to the wrong project.
        let project = match self.inner.transport.project() {
            Some(own) => Some(own.to_owned()),
            None => before.keystone().project_id().await,
        };
        if let Some(project) = project.filter(|id| *id != token.project_id) {
            return Err(other("project", &project, &token.project_id));
        }
        // Without a configured region the driver stays where it is, whatever the catalogue lists now.
        let region = before.known_region();
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

    /// The wall time, by [`CloudOptions::sources`].
    pub fn now(&self) -> Timestamp {
        self.inner.options.sources.now()
    }

    /// Whether both are handles of one session.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Logs in, or tells about the login that is in use. Whoever wants to know whether credentials are good asks here.
    pub async fn login(&self) -> Result<Login, CloudError> {
        let transport = &self.inner.transport;
        let connection = transport.connection();
        let token = connection.keystone().token().await;
        token
            .and_then(|token| Login::new(&token, &connection))
            .map_err(|error| transport.for_caller(error))
    }

    /// Checks that the credentials in use lead to [`CloudOptions::project`], and logs in if the token is missing. Passes without such a
    /// project.
    pub async fn check_project(&self) -> Result<(), CloudError> {
        self.inner.transport.check_project().await
    }

    /// How far the operation on a volume has come that is under way in this process, by the volume's id or, for a creation, by
    /// its name; `None` when nothing is waited for. Asks nobody.
    pub fn progress(&self, volume: &str) -> Option<Progress> {
        self.inner.watch.progress(volume)
    }

    /// A volume; `None` when Cinder does not know it, or the id is no UUID.
    pub async fn volume(&self, volume: &VolumeId) -> Result<Option<Volume>, CloudError> {
        if !volume.is_uuid() {
            return Ok(None);
        }
        BlockStorage::new(&self.inner.transport).volume(volume).await
    }

    /// A server; `None` when Nova does not know it, or the id is no UUID.
    pub async fn server(&self, server: &ServerId) -> Result<Option<Server>, CloudError> {
        if !server.is_uuid() {
            return Ok(None);
        }
        Compute::new(&self.inner.transport).server(server).await
    }

    /// Makes a volume, or finds the one that an earlier call with the same name made, and waits until it is complete.
    ///
    /// The name is looked up first. A volume of this name with another size, type or zone is [`CloudError::AlreadyExists`]; of
    /// several equal ones the oldest complete one is taken, and none is removed. The request is never repeated blindly: after an
    /// uncertain answer the name is looked up again. A volume in `error` is removed only if it carries the name and all of the
    /// metadata; then [`CloudError::VolumeFailed`] tells Cinder's message.
    pub async fn create_volume(&self, new: NewVolume) -> Result<CreatedVolume, CloudError> {
        self.inner.then_forget_lists(create_volume(&self.inner, &new)).await
    }

    /// Whether this process created the resource of this id here a moment ago. For that time a 404 does not mean that it does not exist:
    /// an API node with a lagging database does not show it.
    pub fn has_new(&self, id: &str) -> bool {
        self.inner.is_new(id)
    }

    /// Deletes a volume, by its id, and waits until Cinder no longer knows it. A volume that is not there is deleted. An attached
    /// one is [`CloudError::VolumeInUse`], one with snapshots [`CloudError::VolumeHasDependents`].
    pub async fn delete_volume(&self, volume: &VolumeId) -> Result<(), CloudError> {
        self.inner.then_forget_lists(delete_volume(&self.inner, volume)).await
    }

    /// Attaches a volume and waits until it has arrived. Does nothing for one that is there. A volume on its way from or to a
    /// server is waited for; one that another server has is [`CloudError::AttachedElsewhere`].
    pub async fn attach(
        &self,
        volume: &VolumeId,
        server: &ServerId,
        options: AttachOptions,
    ) -> Result<AttachOutcome, CloudError> {
        let attachment = attach_in_mode(&self.inner, volume, server, options);
        self.inner.then_forget_lists(attachment).await
    }

    /// Detaches a volume from a server, or from all with `None`, and waits until Cinder and Nova agree on it. A volume or a server
    /// that is not there, or not together, is detached. What a deleted server left behind in Cinder is cleared away.
    pub async fn detach(&self, volume: &VolumeId, server: Option<&ServerId>) -> Result<(), CloudError> {
        self.inner.then_forget_lists(detach(&self.inner, volume, server)).await
    }
}
