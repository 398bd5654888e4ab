// SPDX-License-Identifier: Apache-2.0
//! Lists and capacity in the public API.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Cloud;
use crate::api::block_storage::{BlockStorage, Volume, VolumeType};
use crate::api::compute::Server;
use crate::context::list_cache::ListedVolume;
use crate::error::CloudError;
use crate::ids::ServerId;
use crate::memory_size::MemorySize;
use crate::operations::capacity::{FreeCapacity, find_type, free_capacity, zones};
use crate::operations::listing::{listed_servers, listed_volumes};

impl Cloud {
    /// The free capacity for volumes of a type (by its name) in a zone of Cinder, as far as the project may read it.
    /// Cached for half a minute.
    pub async fn free_capacity(
        &self,
        volume_type: Option<&str>,
        zone: Option<&str>,
    ) -> Result<FreeCapacity, CloudError> {
        free_capacity(&self.inner, volume_type, zone).await
    }

    /// The zones that accept volumes. Cached for half a minute.
    pub async fn zones(&self) -> Result<Arc<Vec<String>>, CloudError> {
        zones(&self.inner).await
    }

    /// Gets a type that the project may use, by its name or id. Cached for half a minute.
    pub async fn volume_type(&self, wanted: &str) -> Result<Option<VolumeType>, CloudError> {
        find_type(&self.inner, wanted).await
    }

    /// Lists all volumes of the project, ordered by id. The list is cached for a few seconds and shared by concurrent
    /// callers. It is never older than the last change through this handle.
    pub async fn listed_volumes(&self) -> Result<Arc<Vec<ListedVolume>>, CloudError> {
        listed_volumes(&self.inner).await
    }

    /// Lists all volumes of the project without a cache, newest first. `map` converts each volume or drops it. Only the
    /// results are retained.
    pub async fn map_volumes<T: MemorySize>(&self, map: impl FnMut(Volume) -> Option<T>) -> Result<Vec<T>, CloudError> {
        BlockStorage::new(&self.inner.transport).map_all(map).await
    }

    /// Lists all servers of the project by id. Cached for some seconds.
    pub async fn listed_servers(&self) -> Result<Arc<BTreeMap<ServerId, Server>>, CloudError> {
        listed_servers(&self.inner).await
    }
}
