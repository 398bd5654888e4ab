// SPDX-License-Identifier: Apache-2.0
//! Options and result of an attachment.

use tokio_util::sync::CancellationToken;

use crate::api::block_storage::Volume;
use crate::ids::{ServerId, VolumeId};

/// A volume that is attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachOutcome {
    /// The device name that Nova thought of; the guest may see another one.
    pub device: Option<String>,
    /// The volume as it was seen attached.
    pub volume: Option<Volume>,
    /// Whether it was there before it was asked for.
    pub already: bool,
}

/// How to attach.
#[derive(Debug, Clone, Default)]
pub struct AttachOptions {
    /// Whether no other server may have the volume, even if it is a multiattach one.
    pub exclusive: bool,
    /// How many volumes of CSI drivers the server may have; Nova's own limit when `None`. Checked beforehand: one more request, and a
    /// list of the project's volumes for a server that has as many volumes of any kind.
    pub server_limit: Option<u32>,
    /// Whether the node only reads. A volume that the server has in the other mode is [`CloudError::AttachedDifferently`].
    pub read_only: bool,
    /// Ends an attachment that waits for its turn at the server, before anything was asked of Nova: the error is
    /// [`CloudError::Conflict`]. Once the request is on its way this changes nothing.
    pub withdrawn: CancellationToken,
}

pub(super) fn pair(volume: &VolumeId, server: &ServerId) -> String {
    format!("volume {volume}, server {server}")
}
