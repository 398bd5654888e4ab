// SPDX-License-Identifier: Apache-2.0
//! Volumes in the public API.

use super::Cloud;
use crate::api::block_storage::{BlockStorage, CreatedVolume, NewVolume, Volume};
use crate::error::CloudError;
use crate::ids::{GiB, VolumeId};
use crate::operations::volumes::create::create_volume;
use crate::operations::volumes::delete::delete_volume;
use crate::operations::volumes::expand::expand_volume;
use crate::operations::volumes::modify::{Changes, modify_volume};

impl Cloud {
    /// Gets a volume; `None` if Cinder does not know it (404), or if the id is not a UUID.
    pub async fn volume(&self, volume: &VolumeId) -> Result<Option<Volume>, CloudError> {
        if !volume.is_uuid() {
            return Ok(None);
        }
        BlockStorage::new(&self.inner.transport).volume(volume).await
    }

    /// Lists the project's volumes of exactly this name, in Cinder's order. Names are not unique.
    pub async fn volumes_named(&self, name: &str) -> Result<Vec<Volume>, CloudError> {
        BlockStorage::new(&self.inner.transport).volumes_named(name).await
    }

    /// Creates a volume, or adopts the one that an earlier call created under the same name, and waits until it is
    /// complete.
    ///
    /// The driver searches for the name first. A volume of this name with another size, type or zone is
    /// [`CloudError::AlreadyExists`]. Of several matching volumes, the oldest complete one is adopted and none is
    /// removed.
    ///
    /// After an uncertain response, it does not repeat the request, but searches for the name again. A volume in `error`
    /// is removed only if its name and all metadata match. The error is then [`CloudError::VolumeFailed`] with Cinder's
    /// message.
    pub async fn create_volume(&self, new: NewVolume) -> Result<CreatedVolume, CloudError> {
        self.inner
            .invalidate_lists_after(create_volume(&self.inner, &new))
            .await
    }

    /// Deletes a volume by its id, and waits until Cinder no longer knows it. A missing volume counts as deleted.
    ///
    /// An attached volume is [`CloudError::VolumeInUse`], one with snapshots [`CloudError::VolumeHasDependents`].
    pub async fn delete_volume(&self, volume: &VolumeId) -> Result<(), CloudError> {
        self.inner
            .invalidate_lists_after(delete_volume(&self.inner, volume))
            .await
    }

    /// Expands a volume to at least this size, and returns it with the size that Cinder then shows. Does nothing for a
    /// volume that is large enough. Waits for an expansion that is pending already.
    ///
    /// The expansion of a volume in use needs microversion 3.42 of Cinder, otherwise it is
    /// [`CloudError::OnlineExpansion`]. An expansion that ended without the size is [`CloudError::ExpandFailed`].
    pub async fn expand_volume(&self, volume: &VolumeId, size: GiB) -> Result<Volume, CloudError> {
        self.inner
            .invalidate_lists_after(expand_volume(&self.inner, volume, size))
            .await
    }

    /// Changes the type and the metadata of a volume, waits for the result, and returns the volume. If the volume has
    /// the requested type and metadata already, no modifying request is sent.
    ///
    /// An impossible change is [`CloudError::CannotModify`], before anything was changed. A change of type that Cinder
    /// abandoned is [`CloudError::RetypeFailed`].
    pub async fn modify_volume(&self, volume: &VolumeId, changes: &Changes) -> Result<Volume, CloudError> {
        let change = Box::pin(modify_volume(&self.inner, volume, changes));
        self.inner.invalidate_lists_after(change).await
    }
}
