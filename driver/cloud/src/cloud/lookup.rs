//! Looks of those who do not know much: a name, or an id and not what it is.

use reqwest::Method;

use super::Cloud;
use crate::block_storage::{BlockStorage, Volume};
use crate::error::CloudError;
use crate::ids::VolumeId;
use crate::transport::{Request, Service};

impl Cloud {
    /// The project's volumes of exactly this name, in Cinder's order: names are not unique.
    pub async fn volumes_named(&self, name: &str) -> Result<Vec<Volume>, CloudError> {
        let cinder = BlockStorage::new(&self.inner.transport);
        let mut volumes = cinder.all(&[("name", name.to_owned())], None).await?;
        volumes.retain(|volume| volume.name == name);
        Ok(volumes)
    }

    /// Whether Cinder has a snapshot or a backup of this id; no for an id that is no UUID.
    pub async fn has_point_in_time(&self, id: &str) -> Result<bool, CloudError> {
        if !VolumeId::new(id).is_uuid() {
            return Ok(false);
        }
        for (collection, operation) in [("snapshots", "snapshot_get"), ("backups", "backup_get")] {
            let path = [collection, id];
            let object = format!("snapshot or backup {id}");
            let mut request = Request::new(Service::BlockStorage, operation, Method::GET, &path, object);
            request.may_be_missing = true;
            if !self.inner.transport.send(request).await?.missing() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
