// SPDX-License-Identifier: Apache-2.0
//! Expansion of volumes in the public API.

use super::Cloud;
use crate::api::block_storage::Volume;
use crate::error::CloudError;
use crate::ids::{GiB, VolumeId};
use crate::operations::volumes::expand::expand_volume;

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
}
