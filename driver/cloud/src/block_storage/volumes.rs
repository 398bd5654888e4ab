//! Volumes, typed, and the calls on them.

use std::collections::BTreeMap;

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{BlockStorage, Link, VolumeStatus, null_as_default};
use crate::error::CloudError;
use crate::ids::{AttachmentId, GiB, ServerId, VolumeId};
use crate::transport::Answer;

/// An attachment as the volume shows it: only those that are complete are listed by Cinder.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct VolumeAttachment {
    /// The attachment's own id.
    #[serde(default)]
    pub attachment_id: Option<AttachmentId>,
    /// The server; `None` for a volume attached to a host.
    #[serde(default)]
    pub server_id: Option<ServerId>,
    /// The device name that Nova thought of; the guest may see another one.
    #[serde(default)]
    pub device: Option<String>,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Volume {
    /// Its id.
    pub id: VolumeId,
    /// Its name; empty when it has none.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    /// Its size.
    pub size: GiB,
    /// Its status.
    pub status: VolumeStatus,
    /// The name of its type.
    #[serde(default)]
    pub volume_type: Option<String>,
    /// The availability zone of Cinder.
    #[serde(default)]
    pub availability_zone: Option<String>,
    /// Metadata, as written by whoever made the volume.
    #[serde(default, deserialize_with = "null_as_default")]
    pub metadata: BTreeMap<String, String>,
    /// The attachments that are complete.
    #[serde(default, deserialize_with = "null_as_default")]
    pub attachments: Vec<VolumeAttachment>,
    /// Whether more than one server may have it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub multiattach: bool,
    /// When it was made, UTC without a zone, as Cinder writes it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub created_at: String,
    /// The snapshot that it was made from.
    #[serde(default)]
    pub snapshot_id: Option<String>,
    /// The volume that it was made from.
    #[serde(default)]
    pub source_volid: Option<VolumeId>,
}

impl Volume {
    /// The servers that have the volume.
    pub fn servers(&self) -> Vec<ServerId> {
        self.attachments
            .iter()
            .filter_map(|attachment| attachment.server_id.clone())
            .collect()
    }

    /// The complete attachment to a server.
    pub fn attachment_to(&self, server: &ServerId) -> Option<&VolumeAttachment> {
        self.attachments
            .iter()
            .find(|attachment| attachment.server_id.as_ref() == Some(server))
    }
}

/// What a new volume shall be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewVolume {
    /// The name, by which a repeated creation finds the first one's volume.
    pub name: String,
    /// The size.
    pub size: GiB,
    /// The type, by name or id; Cinder's default when `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<String>,
    /// The availability zone of Cinder; Cinder's choice when `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub availability_zone: Option<String>,
    /// The zones in which a volume of this name, made earlier, is taken for the same one; any zone when empty. A repeated
    /// request may prefer another zone than the first one did.
    #[serde(skip)]
    pub acceptable_zones: Vec<String>,
    /// A description for people.
    pub description: String,
    /// Metadata; a found volume is taken for ours only when it has all of it.
    pub metadata: BTreeMap<String, String>,
}

/// A volume that is there and complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// The volume.
    pub volume: Volume,
    /// Whether it was there before this call.
    pub adopted: bool,
}

/// Some volumes, and where the next ones begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumePage {
    /// The volumes.
    pub volumes: Vec<Volume>,
    /// The marker for the next page; `None` at the end.
    pub next: Option<VolumeId>,
}

#[derive(Deserialize)]
struct VolumeBody {
    volume: Volume,
}

#[derive(Deserialize)]
struct VolumesBody {
    volumes: Vec<Volume>,
    #[serde(default)]
    volumes_links: Vec<Link>,
}

impl BlockStorage<'_> {
    /// `None`: Cinder does not know the volume.
    pub(crate) async fn volume(&self, id: &VolumeId) -> Result<Option<Volume>, CloudError> {
        let path = ["volumes", id.as_str()];
        let mut request = Self::request("volume_get", Method::GET, &path, format!("volume {id}"));
        request.may_be_missing = true;
        let answer = self.transport.send(request).await?;
        if answer.missing() {
            Ok(None)
        } else {
            Ok(Some(answer.json::<VolumeBody>()?.volume))
        }
    }

    /// One page of volumes that match `filter`.
    pub(crate) async fn page(
        &self,
        filter: &[(&'static str, String)],
        limit: Option<u32>,
        marker: Option<&VolumeId>,
    ) -> Result<VolumePage, CloudError> {
        let object = match filter {
            [] => "volumes".to_owned(),
            [(key, value), ..] => format!("volumes with {key} {value}"),
        };
        let mut request = Self::request("volume_list", Method::GET, &["volumes", "detail"], object);
        request.query.extend_from_slice(filter);
        request.query.extend(limit.map(|limit| ("limit", limit.to_string())));
        request
            .query
            .extend(marker.map(|marker| ("marker", marker.to_string())));
        let body = self.transport.send(request).await?.json::<VolumesBody>()?;
        let more = body.volumes_links.iter().any(|link| link.rel == "next");
        let next = body.volumes.last().filter(|_| more).map(|volume| volume.id.clone());
        Ok(VolumePage {
            volumes: body.volumes,
            next,
        })
    }

    /// All volumes that match `filter`, page by page, after `marker`.
    pub(crate) async fn all(
        &self,
        filter: &[(&'static str, String)],
        marker: Option<&VolumeId>,
    ) -> Result<Vec<Volume>, CloudError> {
        let mut page = self.page(filter, None, marker).await?;
        let mut volumes = std::mem::take(&mut page.volumes);
        while let Some(marker) = page.next.take() {
            page = self.page(filter, None, Some(&marker)).await?;
            // A service that ignores the marker would have us turn for ever.
            if page.next.as_ref() == Some(&marker) {
                break;
            }
            volumes.append(&mut page.volumes);
        }
        Ok(volumes)
    }

    /// Asks for a new volume. The request is never repeated once it may have reached Cinder.
    pub(crate) async fn create(&self, new: &NewVolume) -> Result<Volume, CloudError> {
        let mut request = Self::request(
            "volume_create",
            Method::POST,
            &["volumes"],
            format!("volume {}", new.name),
        );
        request.body = Some(json!({ "volume": new }));
        request.may_be_missing = true;
        let answer = self.transport.send(request).await?;
        if answer.missing() {
            // A type, zone or source that does not exist.
            return Err(CloudError::BadRequest(answer.into_failure()));
        }
        Ok(answer.json::<VolumeBody>()?.volume)
    }

    /// Asks for the deletion; the answer may be a 404.
    pub(crate) async fn delete(&self, id: &VolumeId) -> Result<Answer, CloudError> {
        let path = ["volumes", id.as_str()];
        let mut request = Self::request("volume_delete", Method::DELETE, &path, format!("volume {id}"));
        request.may_be_missing = true;
        self.transport.send(request).await
    }
}
