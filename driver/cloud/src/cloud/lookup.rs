// SPDX-License-Identifier: Apache-2.0
//! Looks by name, for those who have no id.

use super::Cloud;
use crate::api::block_storage::{BlockStorage, Volume};
use crate::error::CloudError;

impl Cloud {
    /// The project's volumes of exactly this name, in Cinder's order: names are not unique.
    pub async fn volumes_named(&self, name: &str) -> Result<Vec<Volume>, CloudError> {
        let cinder = BlockStorage::new(&self.inner.transport);
        let mut volumes = cinder.all(&[("name", name.to_owned())]).await?;
        volumes.retain(|volume| volume.name == name);
        Ok(volumes)
    }
}
