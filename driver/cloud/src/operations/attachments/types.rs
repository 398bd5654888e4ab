// SPDX-License-Identifier: Apache-2.0
//! Options and result of an attachment.

use tokio_util::sync::CancellationToken;

use crate::api::block_storage::Volume;
use crate::ids::{ServerId, VolumeId};

/// The result of an attachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachOutcome {
    /// The device name that Nova chose. The guest may use another one.
    pub device: Option<String>,
    /// The volume with its attachment.
    pub volume: Option<Volume>,
    /// Whether the volume was attached before the request.
    pub already: bool,
}

/// The options of an attachment.
#[derive(Debug, Clone, Default)]
pub struct AttachOptions {
    /// Whether no other server may have the volume, even if it is a multiattach volume.
    pub exclusive: bool,
    /// The maximum number of volumes of CSI drivers at the server. `None`: only Nova's own limit. The check costs one
    /// request, and a list of the project's volumes for a server with at least as many volumes of any kind.
    pub server_limit: Option<u32>,
    /// Whether the node only reads. A volume that is attached in the other mode is
    /// [`CloudError::AttachedDifferently`](crate::CloudError::AttachedDifferently).
    pub read_only: bool,
    /// Cancels an attachment that waits in the queue of the server, before any request to Nova. The error is
    /// [`CloudError::Conflict`](crate::CloudError::Conflict). Has no effect after the request was sent.
    pub withdrawn: CancellationToken,
}

pub(super) fn pair(volume: &VolumeId, server: &ServerId) -> String {
    format!("volume {volume}, server {server}")
}
