// SPDX-License-Identifier: Apache-2.0
//! Volumes through the front door, beyond making and removing them.

use super::Cloud;
use crate::api::block_storage::Volume;
use crate::error::CloudError;
use crate::ids::{GiB, VolumeId};
use crate::operations::volumes::expand::expand_volume;

impl Cloud {
    /// Makes a volume at least this large and returns it with the size that was read back. Does nothing for one that is large
    /// enough; one that grows already is waited for. What is in use grows where Cinder has 3.42, else it is
    /// [`CloudError::OnlineExpansion`]; a growth that ended without the size is [`CloudError::ExpandFailed`].
    pub async fn expand_volume(&self, volume: &VolumeId, size: GiB) -> Result<Volume, CloudError> {
        self.inner
            .then_forget_lists(expand_volume(&self.inner, volume, size))
            .await
    }
}
