//! One cloud, ready to use: the crate's front door.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::block_storage::{NewVolume, Volume, VolumePage};
use crate::compute::Server;
use crate::config::CloudConfig;
use crate::error::CloudError;
use crate::ids::{ServerId, VolumeId};
use crate::observer::{Observer, Unobserved};

/// How to talk to a cloud, apart from which one.
#[derive(Debug, Clone)]
pub struct CloudOptions {
    /// Sent as `User-Agent`.
    pub user_agent: String,
    /// How long one HTTP exchange may take.
    pub request_timeout: Duration,
    /// How long one operation (create, delete, attach, detach) may take with all its waits.
    pub operation_timeout: Duration,
    /// Who hears about requests, logins and waits.
    pub observer: Arc<dyn Observer>,
}

impl Default for CloudOptions {
    fn default() -> Self {
        Self {
            user_agent: concat!("cinder-csi/", env!("CARGO_PKG_VERSION")).to_owned(),
            request_timeout: Duration::from_secs(60),
            operation_timeout: Duration::from_mins(10),
            observer: Arc::new(Unobserved),
        }
    }
}

/// What a login told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// The project worked in.
    pub project_id: String,
    /// Its name.
    pub project_name: String,
    /// The user.
    pub user_id: String,
    /// When the token ends; a new one is fetched before.
    pub expires_at: Timestamp,
    /// The service types in the catalogue.
    pub services: Vec<String>,
}

/// A volume that is attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// The device name that Nova thought of; the guest may see another one.
    pub device: Option<String>,
}

/// One cloud. Cheap to clone; clones share the session, the token and the watch.
#[derive(Debug, Clone)]
pub struct Cloud {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: CloudConfig,
}

#[allow(clippy::todo, clippy::unused_async, missing_docs)]
impl Cloud {
    pub fn new(config: CloudConfig, options: CloudOptions) -> Result<Self, CloudError> { let _ = options; Ok(Self { inner: Arc::new(Inner { config }) }) }
    pub fn config(&self) -> &CloudConfig { &self.inner.config }
    pub async fn login(&self) -> Result<Login, CloudError> { todo!() }
    pub async fn volume(&self, volume: &VolumeId) -> Result<Option<Volume>, CloudError> { let _ = volume; todo!() }
    pub async fn server(&self, server: &ServerId) -> Result<Option<Server>, CloudError> { let _ = server; todo!() }
    pub async fn list_volumes(&self, limit: Option<u32>, marker: Option<&VolumeId>) -> Result<VolumePage, CloudError> { let _ = (limit, marker); todo!() }
    pub async fn create_volume(&self, new: NewVolume) -> Result<Volume, CloudError> { let _ = new; todo!() }
    pub async fn delete_volume(&self, volume: &VolumeId) -> Result<(), CloudError> { let _ = volume; todo!() }
    pub async fn attach(&self, volume: &VolumeId, server: &ServerId) -> Result<Attached, CloudError> { let _ = (volume, server); todo!() }
    pub async fn detach(&self, volume: &VolumeId, server: Option<&ServerId>) -> Result<(), CloudError> { let _ = (volume, server); todo!() }
}
