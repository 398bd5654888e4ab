// SPDX-License-Identifier: Apache-2.0
//! Changes of volumes, and the lists and numbers about them, through the front door.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Cloud;
use crate::api::block_storage::{BlockStorage, Volume, VolumeType};
use crate::api::compute::Server;
use crate::context::list_cache::ListedVolume;
use crate::error::CloudError;
use crate::ids::{ServerId, VolumeId};
use crate::operations::capacity::{FreeCapacity, free_capacity, type_named, zones};
use crate::operations::listing::{listed_servers, listed_volumes};
use crate::operations::modify::{Changes, modify_volume};

impl Cloud {
    /// Whether both are handles of one cloud.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Gives a volume another type and other metadata, waits for it, and returns the volume as it is then. What it has already
    /// costs no request that changes anything. What cannot be is [`CloudError::CannotModify`] before anything was changed; a change
    /// of type that Cinder gave up is [`CloudError::RetypeFailed`].
    pub async fn modify_volume(&self, volume: &VolumeId, changes: &Changes) -> Result<Volume, CloudError> {
        let change = Box::pin(modify_volume(&self.inner, volume, changes));
        self.inner.then_forget_lists(change).await
    }

    /// What fits into the cloud, as far as the project may know: volumes of a type (by its name) in a zone of Cinder's. Kept for half
    /// a minute.
    pub async fn free_capacity(
        &self,
        volume_type: Option<&str>,
        zone: Option<&str>,
    ) -> Result<FreeCapacity, CloudError> {
        free_capacity(&self.inner, volume_type, zone).await
    }

    /// The zones that take volumes. Kept for half a minute.
    pub async fn zones(&self) -> Result<Arc<Vec<String>>, CloudError> {
        zones(&self.inner).await
    }

    /// A type that the project may use, by its name or id. Kept for half a minute.
    pub async fn volume_type(&self, wanted: &str) -> Result<Option<VolumeType>, CloudError> {
        type_named(&self.inner, wanted).await
    }

    /// All volumes of the project, in the order of their ids. Kept for a few seconds, and shared by all who ask meanwhile; never older
    /// than the last change that was made through this cloud's handle.
    pub async fn listed_volumes(&self) -> Result<Arc<Vec<ListedVolume>>, CloudError> {
        listed_volumes(&self.inner).await
    }

    /// All volumes of the project as they are now, newest first, each as `map` makes of it, which leaves out what it makes nothing of.
    /// No more than one page of Cinder's is held in full.
    pub async fn map_volumes<T>(&self, map: impl FnMut(Volume) -> Option<T>) -> Result<Vec<T>, CloudError> {
        BlockStorage::new(&self.inner.transport).map_all(map).await
    }

    /// All servers of the project, by their ids. Kept for some seconds.
    pub async fn listed_servers(&self) -> Result<Arc<BTreeMap<ServerId, Server>>, CloudError> {
        listed_servers(&self.inner).await
    }
}
