// SPDX-License-Identifier: Apache-2.0
//! Servers and attachments in the public API.

use super::Cloud;
use crate::api::compute::{Compute, Server};
use crate::error::CloudError;
use crate::ids::{ServerId, VolumeId};
use crate::operations::attachments::attach::attach_volume;
use crate::operations::attachments::detach::detach_volume;
use crate::operations::attachments::{AttachOptions, AttachOutcome};

impl Cloud {
    /// Gets a server; `None` if Nova does not know it (404), or if the id is not a UUID.
    pub async fn server(&self, server: &ServerId) -> Result<Option<Server>, CloudError> {
        if !server.is_uuid() {
            return Ok(None);
        }
        Compute::new(&self.inner.transport).server(server).await
    }

    /// Attaches a volume and waits for the end of the attachment. Does nothing if the volume is attached to the server
    /// already.
    ///
    /// If an attachment or detachment of the volume is pending, it waits for its end first. A volume that another
    /// server has is [`CloudError::AttachedElsewhere`].
    pub async fn attach(
        &self,
        volume: &VolumeId,
        server: &ServerId,
        options: AttachOptions,
    ) -> Result<AttachOutcome, CloudError> {
        let attachment = attach_volume(&self.inner, volume, server, options);
        self.inner.invalidate_lists_after(attachment).await
    }

    /// Detaches a volume from a server, or from all servers for `None`, and waits until Cinder and Nova agree on it.
    ///
    /// A missing volume, a missing server (404), or a volume that is not attached to the server counts as detached.
    /// Attachments of a deleted server that remain in Cinder are deleted.
    pub async fn detach(&self, volume: &VolumeId, server: Option<&ServerId>) -> Result<(), CloudError> {
        self.inner
            .invalidate_lists_after(detach_volume(&self.inner, volume, server))
            .await
    }
}
