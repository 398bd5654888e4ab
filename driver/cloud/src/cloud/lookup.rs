// SPDX-License-Identifier: Apache-2.0
//! Lookups by name, for callers without an id.

use super::Cloud;
use crate::api::block_storage::{BlockStorage, Volume};
use crate::error::CloudError;

impl Cloud {
    /// Lists the project's volumes of exactly this name, in Cinder's order. Names are not unique.
    pub async fn volumes_named(&self, name: &str) -> Result<Vec<Volume>, CloudError> {
        let cinder = BlockStorage::new(&self.inner.transport);
        let mut volumes = cinder.all(&[("name", name.to_owned())]).await?;
        volumes.retain(|volume| volume.name == name);
        Ok(volumes)
    }
}
