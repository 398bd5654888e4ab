// SPDX-License-Identifier: Apache-2.0
//! Changes of volumes in the public API.

use super::Cloud;
use crate::api::block_storage::Volume;
use crate::error::CloudError;
use crate::ids::{GiB, VolumeId};
use crate::operations::volumes::expand::expand_volume;
use crate::operations::volumes::modify::{Changes, modify_volume};

impl Cloud {
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
