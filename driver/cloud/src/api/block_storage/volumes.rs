// SPDX-License-Identifier: Apache-2.0
//! Volumes, typed, and the calls on them.

use std::collections::BTreeMap;

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::resource::{Filter, ListItem, Resource, one};
use super::{BlockStorage, VolumeStatus, null_as_default};
use crate::error::CloudError;
use crate::http::service::{MicroVersion, Service};
use crate::http::transport::Answer;
use crate::ids::{AttachmentId, BackupId, GiB, ServerId, SnapshotId, VolumeId};
use crate::metadata_keys;

/// The status of Cinder's answer in a microversion that it does not have.
const NO_SUCH_VERSION: u16 = 406;
/// Since when Cinder makes volumes from backups.
const FROM_BACKUP: MicroVersion = MicroVersion(3, 47);
/// Since when Cinder grows volumes that are in use.
const EXTEND_IN_USE: MicroVersion = MicroVersion(3, 42);

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
    /// When the volume arrived, UTC without a zone, as Cinder writes it.
    #[serde(default)]
    pub attached_at: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Volume {
    pub id: VolumeId,
    /// Its name; empty when it has none.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    pub size: GiB,
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
    /// Whether its data is encrypted; a part of its size is for the keys then.
    #[serde(default, deserialize_with = "null_as_default")]
    pub encrypted: bool,
    /// When it was made, UTC without a zone, as Cinder writes it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub created_at: String,
    /// When its record changed last, in the same form; `None` when never.
    #[serde(default)]
    pub updated_at: Option<String>,
    /// How a move of its data to another backend goes; shown to administrators only.
    #[serde(default)]
    pub migration_status: Option<String>,
    /// How the copying to a second backend goes.
    #[serde(default)]
    pub replication_status: Option<String>,
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

    /// Whether its data is on its way to another backend, as far as that can be seen.
    pub(crate) fn is_migrating(&self) -> bool {
        matches!(
            self.migration_status.as_deref(),
            Some("starting" | "migrating" | "completing")
        )
    }

    /// The backup that the volume was restored from. Cinder's own word goes first: the mark may be one that the backup held.
    pub fn source_backup(&self) -> Option<&str> {
        let words = [metadata_keys::CINDERS_SOURCE_BACKUP, metadata_keys::SOURCE_BACKUP];
        words
            .into_iter()
            .find_map(|key| self.metadata.get(key))
            .map(String::as_str)
    }

    /// What it was made from: Cinder keeps the snapshot or the volume, and metadata the backup.
    pub fn source(&self) -> Option<Source> {
        let point = self.snapshot_id.as_deref().or_else(|| self.source_backup());
        match (point, &self.source_volid) {
            (Some(id), _) => Some(Source::PointInTime(id.to_owned())),
            (None, Some(id)) => Some(Source::Volume(id.clone())),
            (None, None) => None,
        }
    }

    /// The recorded mode.
    pub fn mode(&self) -> Option<VolumeMode> {
        VolumeMode::recorded(&self.metadata)
    }

    /// Whether its status is that of an attachment, complete or not. Cinder replaces such a status when an attachment is deleted.
    pub(crate) fn is_in_attachment(&self) -> bool {
        matches!(
            self.status,
            VolumeStatus::InUse | VolumeStatus::Reserved | VolumeStatus::Attaching | VolumeStatus::Detaching
        )
    }

    /// Whether Ironic attached the volume to a machine. Such an attachment may name a machine that Nova does not know.
    pub(crate) fn is_attached_by_ironic(&self) -> bool {
        self.metadata.keys().any(|key| key.starts_with("ironic_node_"))
    }

    /// The complete attachment to a server.
    pub fn attachment_to(&self, server: &ServerId) -> Option<&VolumeAttachment> {
        self.attachments
            .iter()
            .find(|attachment| attachment.server_id.as_ref() == Some(server))
    }
}

/// What a new volume is filled with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A snapshot or a backup: their ids are of one kind, and which of them it is shows when it is looked for.
    PointInTime(String),
    /// Another volume.
    Volume(VolumeId),
}

/// How pods use a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeMode {
    /// A raw device: users of the volume choose all its bytes.
    Block,
    /// With a file system that a node created.
    Filesystem,
}

impl VolumeMode {
    /// The name in Kubernetes and in metadata.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Block => "Block",
            Self::Filesystem => "Filesystem",
        }
    }

    /// Reads the mode that the metadata of a volume or a backup records. An unknown value counts as `Block`, which permits less.
    pub fn recorded(metadata: &BTreeMap<String, String>) -> Option<Self> {
        let recorded = metadata.get(metadata_keys::VOLUME_MODE)?;
        let is_filesystem = recorded == Self::Filesystem.name();
        Some(if is_filesystem { Self::Filesystem } else { Self::Block })
    }
}

/// What a new volume shall be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewVolume {
    /// The name, by which a repeated creation finds the first one's volume.
    pub name: String,
    pub size: GiB,
    /// The largest size with which a volume of this name, made earlier, is taken for the same one; any when `None`.
    #[serde(skip)]
    pub largest: Option<GiB>,
    /// What it is filled with; nothing when `None`.
    #[serde(skip)]
    pub source: Option<Source>,
    /// How pods use it; `None` where the request has both modes.
    #[serde(skip)]
    pub mode: Option<VolumeMode>,
    /// Whether it may have a file system although its source was used as a raw device.
    #[serde(skip)]
    pub allow_mode_change: bool,
    /// Whether several servers must be able to have it, which its type decides.
    #[serde(skip)]
    pub multiattach: bool,
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
    /// Volumes beside which it shall lie, as a hint to Cinder's scheduler.
    #[serde(skip)]
    pub same_host: Vec<VolumeId>,
    /// Volumes away from which it shall lie, as a hint.
    #[serde(skip)]
    pub different_host: Vec<VolumeId>,
    /// Metadata that may be changed later; a found volume that has other values is another one.
    #[serde(skip)]
    pub mutable_metadata: BTreeMap<String, String>,
}

/// What a new volume is filled with, found and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Filling {
    Nothing,
    Snapshot(SnapshotId),
    Backup(BackupId),
    Volume(VolumeId),
}

/// A volume that is there and complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedVolume {
    pub volume: Volume,
    /// Whether it was there before this call.
    pub adopted: bool,
}

impl Resource for Volume {
    const GET: &'static str = "volume_get";
    const COLLECTION: &'static str = "volumes";
    const KEY: &'static str = "volume";

    fn id(&self) -> &str {
        self.id.as_str()
    }
}

impl ListItem for Volume {
    const LIST: &'static str = "volume_list";
    const PATH: &'static [&'static str] = &["volumes", "detail"];
    const KEY: &'static str = "volumes";

    fn marker(&self) -> String {
        self.id.to_string()
    }
}

impl BlockStorage<'_> {
    /// `None`: Cinder does not know the volume.
    pub(crate) async fn volume(&self, id: &VolumeId) -> Result<Option<Volume>, CloudError> {
        self.get(id.as_str(), None, &[]).await
    }

    /// All volumes that match `filter`.
    pub(crate) async fn all(&self, filter: &[Filter]) -> Result<Vec<Volume>, CloudError> {
        self.list(None, filter, Some).await
    }

    /// All volumes of the project, each as `map` makes of it, which leaves out what it makes nothing of.
    pub(crate) async fn map_all<T>(&self, map: impl FnMut(Volume) -> Option<T>) -> Result<Vec<T>, CloudError> {
        self.list(None, &[], map).await
    }

    /// Asks for a new volume. The request is never repeated once it may have reached Cinder.
    pub(crate) async fn create(&self, new: &NewVolume, filling: &Filling) -> Result<Volume, CloudError> {
        let mut request = Self::request(
            "volume_create",
            Method::POST,
            &["volumes"],
            format!("volume {}", new.name),
        );
        let mut body = json!(new);
        match filling {
            Filling::Nothing => {}
            Filling::Snapshot(id) => body["snapshot_id"] = json!(id),
            Filling::Volume(id) => body["source_volid"] = json!(id),
            Filling::Backup(id) => {
                body["backup_id"] = json!(id);
                request.version = Some(FROM_BACKUP);
            }
        }
        let mut body = json!({ "volume": body });
        let hints = [("same_host", &new.same_host), ("different_host", &new.different_host)];
        let hints: serde_json::Map<_, _> = hints
            .into_iter()
            .filter(|(_, volumes)| !volumes.is_empty())
            .map(|(key, volumes)| (key.to_owned(), json!(volumes)))
            .collect();
        if !hints.is_empty() {
            body["OS-SCH-HNT:scheduler_hints"] = hints.into();
        }
        request.body = Some(body);
        request.makes = true;
        request.may_be_missing = true;
        let answer = match (self.transport.send(request).await, filling) {
            (Err(CloudError::BadRequest(failure)), Filling::Backup(id)) if failure.status == Some(NO_SUCH_VERSION) => {
                return Err(CloudError::CannotRestore {
                    backup: id.to_string(),
                    failure,
                });
            }
            (answer, _) => answer?,
        };
        if answer.missing() {
            // A type, zone or source that does not exist.
            return Err(CloudError::BadRequest(answer.into_failure()));
        }
        one(answer)
    }

    /// Asks for a larger size. What is in use is grown only by a Cinder that can do that.
    pub(crate) async fn extend(&self, volume: &Volume, size: GiB) -> Result<Answer, CloudError> {
        let path = ["volumes", volume.id.as_str(), "action"];
        let object = format!("volume {}, {size}", volume.id);
        let mut request = Self::request("volume_expand", Method::POST, &path, object);
        request.body = Some(json!({ "os-extend": { "new_size": size } }));
        request.version = (volume.status == VolumeStatus::InUse).then_some(EXTEND_IN_USE);
        request.may_be_missing = true;
        self.transport.send(request).await
    }

    /// Whether Cinder can grow volumes that are in use.
    pub(crate) async fn extends_in_use(&self) -> Result<bool, CloudError> {
        Ok(self.transport.highest_version(Service::BlockStorage).await? >= Some(EXTEND_IN_USE))
    }

    /// Asks for the deletion; the answer may be a 404.
    pub(crate) async fn delete(&self, id: &VolumeId) -> Result<Answer, CloudError> {
        self.remove::<Volume>("volume_delete", id.as_str(), None).await
    }
}
