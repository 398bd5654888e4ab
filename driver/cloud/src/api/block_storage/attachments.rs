// SPDX-License-Identifier: Apache-2.0
//! Cinder's attachments API, which also lists incomplete attachments.

use std::fmt;

use reqwest::Method;
use serde::Deserialize;

use super::{BlockStorage, null_as_default};
use crate::api::pages::{Item, decode_list};
use crate::error::CloudError;
use crate::http::service::{MicroVersion, Service};
use crate::ids::{AttachmentId, ServerId, VolumeId};
use crate::memory_size::memory_size;

/// The first microversion with the attachments API.
const ATTACHMENTS: MicroVersion = MicroVersion(3, 27);

/// An incomplete or complete attachment, as the attachments API lists it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Attachment {
    pub(crate) id: AttachmentId,
    #[serde(default)]
    pub(crate) instance: Option<ServerId>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) status: String,
}

memory_size!(Attachment { id, instance, status });

impl Attachment {
    /// Whether the volume is attached.
    pub(crate) fn is_complete(&self) -> bool {
        self.status == "attached"
    }
}

impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attachment {} ({}", self.id, self.status)?;
        match &self.instance {
            Some(server) => write!(f, ", server {server})"),
            None => f.write_str(", no server)"),
        }
    }
}

#[derive(Deserialize)]
struct AttachmentSummary {
    #[serde(flatten)]
    attachment: Attachment,
    volume_id: VolumeId,
}

impl Item for AttachmentSummary {
    const KEY: &'static str = "attachments";
}

impl BlockStorage<'_> {
    /// Lists the attachments of a volume, including incomplete ones; `None` for a Cinder without the attachments API.
    pub(crate) async fn attachments(&self, id: &VolumeId) -> Result<Option<Vec<Attachment>>, CloudError> {
        if self.transport.highest_version(Service::BlockStorage).await? < Some(ATTACHMENTS) {
            return Ok(None);
        }
        let mut request = Self::request("attachment_list", Method::GET, &["attachments"], format!("volume {id}"));
        request.version = Some(ATTACHMENTS);
        request.query.push(("volume_id", id.to_string()));
        // The driver deletes stale attachments by id. The volume is compared here too, so that an ignored filter
        // never exposes the attachments of other volumes.
        let of_volume = |listed: &AttachmentSummary| listed.volume_id.as_str().eq_ignore_ascii_case(id.as_str());
        let attachment = |listed| Some(listed).filter(of_volume).map(|listed| listed.attachment);
        decode_list(self.transport.send(request).await?, attachment).map(Some)
    }

    /// Deletes a stale attachment, which has no server.
    pub(crate) async fn delete_attachment(&self, id: &AttachmentId, object: &str) -> Result<(), CloudError> {
        let path = ["attachments", id.as_str()];
        let mut request = Self::request("attachment_delete", Method::DELETE, &path, object);
        request.version = Some(ATTACHMENTS);
        request.may_be_missing = true;
        self.transport.send(request).await.map(|_| ())
    }
}
