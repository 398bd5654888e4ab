// SPDX-License-Identifier: Apache-2.0
//! Volumes and the calls on them.

use std::collections::BTreeMap;

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::resource::{ListItem, Resource, decode_resource};
use super::{BlockStorage, VolumeStatus, null_as_default};
use crate::api::pages::Item;
use crate::error::CloudError;
use crate::http::service::{MicroVersion, Service};
use crate::http::transport::Answer;
use crate::ids::{AttachmentId, BackupId, GiB, ServerId, SnapshotId, VolumeId};
use crate::memory_size::{MemorySize, memory_size};
use crate::metadata_keys;

/// The status with which Cinder answers a request in an unsupported microversion.
const NO_SUCH_VERSION: u16 = 406;
/// The first microversion in which Cinder creates volumes from backups.
const FROM_BACKUP: MicroVersion = MicroVersion(3, 47);
/// The first microversion in which Cinder extends volumes in use.
const EXTEND_IN_USE: MicroVersion = MicroVersion(3, 42);

/// An attachment in the answer about a volume. Cinder lists only complete attachments there.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct VolumeAttachment {
    #[serde(default)]
    pub attachment_id: Option<AttachmentId>,
    /// The server; `None` for a volume attached to a host.
    #[serde(default)]
    pub server_id: Option<ServerId>,
    /// The device name that Nova proposes. The guest may use another name.
    #[serde(default)]
    pub device: Option<String>,
    /// The time of the attachment, UTC without a zone, as Cinder writes it.
    #[serde(default)]
    pub attached_at: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Volume {
    pub id: VolumeId,
    /// Empty for a volume without a name.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    pub size: GiB,
    pub status: VolumeStatus,
    /// The name of the volume type.
    #[serde(default)]
    pub volume_type: Option<String>,
    /// The availability zone of Cinder.
    #[serde(default)]
    pub availability_zone: Option<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub metadata: BTreeMap<String, String>,
    /// The complete attachments.
    #[serde(default, deserialize_with = "null_as_default")]
    pub attachments: Vec<VolumeAttachment>,
    /// Whether several servers may attach it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub multiattach: bool,
    /// Whether its data is encrypted. The encryption header then takes a part of its size.
    #[serde(default, deserialize_with = "null_as_default")]
    pub encrypted: bool,
    /// The time of creation, UTC without a zone, as Cinder writes it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub created_at: String,
    /// The time of the last change, in the same form; `None` for a volume that never changed.
    #[serde(default)]
    pub updated_at: Option<String>,
    /// The progress of a migration to another backend. Cinder shows it to administrators only.
    #[serde(default)]
    pub migration_status: Option<String>,
    /// The state of the replication to a second backend.
    #[serde(default)]
    pub replication_status: Option<String>,
    /// The snapshot from which the volume was created.
    #[serde(default)]
    pub snapshot_id: Option<String>,
    /// The volume from which this volume was cloned.
    #[serde(default)]
    pub source_volid: Option<VolumeId>,
}

memory_size!(VolumeAttachment {
    attachment_id,
    server_id,
    device,
    attached_at,
});

memory_size!(Volume {
    id,
    name,
    size,
    status,
    volume_type,
    availability_zone,
    metadata,
    attachments,
    multiattach,
    encrypted,
    created_at,
    updated_at,
    migration_status,
    replication_status,
    snapshot_id,
    source_volid,
});

impl Volume {
    /// The servers to which the volume is attached.
    pub fn servers(&self) -> Vec<ServerId> {
        self.attachments
            .iter()
            .filter_map(|attachment| attachment.server_id.clone())
            .collect()
    }

    /// Whether Cinder migrates the data to another backend, as far as the project can see it.
    pub(crate) fn is_migrating(&self) -> bool {
        matches!(
            self.migration_status.as_deref(),
            Some("starting" | "migrating" | "completing")
        )
    }

    /// The backup from which the volume was restored. Cinder's own metadata takes precedence, because the backup may
    /// contain the driver's key.
    pub fn source_backup(&self) -> Option<&str> {
        let words = [metadata_keys::CINDERS_SOURCE_BACKUP, metadata_keys::SOURCE_BACKUP];
        words
            .into_iter()
            .find_map(|key| self.metadata.get(key))
            .map(String::as_str)
    }

    /// The source of the volume. Cinder records the snapshot or the volume, and metadata records the backup.
    pub fn source(&self) -> Option<Source> {
        let point = self.snapshot_id.as_deref().or_else(|| self.source_backup());
        match (point, &self.source_volid) {
            (Some(id), _) => Some(Source::PointInTime(id.to_owned())),
            (None, Some(id)) => Some(Source::Volume(id.clone())),
            (None, None) => None,
        }
    }

    /// The volume mode that the metadata records.
    pub fn mode(&self) -> Option<VolumeMode> {
        VolumeMode::recorded(&self.metadata)
    }

    /// Whether the status is that of a complete or incomplete attachment. Cinder replaces such a status when it
    /// deletes an attachment.
    pub(crate) fn is_in_attachment(&self) -> bool {
        matches!(
            self.status,
            VolumeStatus::InUse | VolumeStatus::Reserved | VolumeStatus::Attaching | VolumeStatus::Detaching
        )
    }

    /// Whether Ironic attached the volume to a machine. Such an attachment may name a machine that Nova does not
    /// know.
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

/// The source of a new volume, as the request names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A snapshot or a backup. Their ids have the same form, so only a query shows which one it is.
    PointInTime(String),
    /// Another volume.
    Volume(VolumeId),
}

impl MemorySize for Source {
    fn heap_size(&self) -> usize {
        match self {
            Self::PointInTime(id) => id.heap_size(),
            Self::Volume(id) => id.heap_size(),
        }
    }
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

    /// Reads the mode that the metadata of a volume or a backup records. An unknown value counts as `Block`, which
    /// permits less.
    pub fn recorded(metadata: &BTreeMap<String, String>) -> Option<Self> {
        let recorded = metadata.get(metadata_keys::VOLUME_MODE)?;
        let is_filesystem = recorded == Self::Filesystem.name();
        Some(if is_filesystem { Self::Filesystem } else { Self::Block })
    }
}

/// The parameters of a new volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewVolume {
    /// The name, by which a repeated creation finds the volume of the first one.
    pub name: String,
    pub size: GiB,
    /// The largest size with which an existing volume of this name is adopted; any size when `None`.
    #[serde(skip)]
    pub largest: Option<GiB>,
    /// The source of the data; an empty volume when `None`.
    #[serde(skip)]
    pub source: Option<Source>,
    /// The volume mode; `None` where the request has both modes.
    #[serde(skip)]
    pub mode: Option<VolumeMode>,
    /// Whether the volume may have a file system although its source was used as a raw device.
    #[serde(skip)]
    pub allow_mode_change: bool,
    /// Whether the volume must support several servers, which its type determines.
    #[serde(skip)]
    pub multiattach: bool,
    /// The type, by name or id; Cinder's default when `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<String>,
    /// The availability zone of Cinder; Cinder's choice when `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub availability_zone: Option<String>,
    /// The zones in which an existing volume of this name is adopted; any zone when empty. A repeated request may
    /// prefer another zone than the first one.
    #[serde(skip)]
    pub acceptable_zones: Vec<String>,
    /// A description for users.
    pub description: String,
    /// Metadata. The driver adopts an existing volume only if it has all these entries.
    pub metadata: BTreeMap<String, String>,
    /// Volumes with which it should share a backend, as a hint to Cinder's scheduler.
    #[serde(skip)]
    pub same_host: Vec<VolumeId>,
    /// Volumes with which it should not share a backend, as a hint to Cinder's scheduler.
    #[serde(skip)]
    pub different_host: Vec<VolumeId>,
    /// Metadata that may change later. The driver does not adopt an existing volume with other values.
    #[serde(skip)]
    pub mutable_metadata: BTreeMap<String, String>,
}

/// The resolved and checked source of a new volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Filling {
    Nothing,
    Snapshot(SnapshotId),
    Backup(BackupId),
    Volume(VolumeId),
}

/// A complete volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedVolume {
    pub volume: Volume,
    /// Whether the volume existed before this call.
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

impl Item for Volume {
    const KEY: &'static str = "volumes";

    fn marker(&self) -> &str {
        self.id.as_str()
    }
}

impl ListItem for Volume {
    const LIST: &'static str = "volume_list";
    const PATH: &'static [&'static str] = &["volumes", "detail"];
}

impl BlockStorage<'_> {
    /// Gets a volume; `None` when Cinder does not know it.
    pub(crate) async fn volume(&self, id: &VolumeId) -> Result<Option<Volume>, CloudError> {
        self.get(id.as_str(), None, &[]).await
    }

    /// Lists all volumes of this name. The configuration of Cinder decides which filters it honors, so the name is
    /// compared here too.
    pub(crate) async fn volumes_named(&self, name: &str) -> Result<Vec<Volume>, CloudError> {
        let filter = [("name", name.to_owned())];
        let is_named = |volume: Volume| (volume.name == name).then_some(volume);
        self.list(None, &filter, is_named).await
    }

    /// Lists all volumes of the project and returns the results of `map`. Volumes for which `map` returns `None` are
    /// omitted.
    pub(crate) async fn map_all<T: MemorySize>(
        &self,
        map: impl FnMut(Volume) -> Option<T>,
    ) -> Result<Vec<T>, CloudError> {
        self.list(None, &[], map).await
    }

    /// Requests a new volume. The driver does not repeat the request once it may have reached Cinder.
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
        request.creates = true;
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
        decode_resource(answer)
    }

    /// Requests a larger size. Only a Cinder with [`EXTEND_IN_USE`] extends a volume in use.
    pub(crate) async fn extend(&self, volume: &Volume, size: GiB) -> Result<Answer, CloudError> {
        let path = ["volumes", volume.id.as_str(), "action"];
        let object = format!("volume {}, {size}", volume.id);
        let mut request = Self::request("volume_expand", Method::POST, &path, object);
        request.body = Some(json!({ "os-extend": { "new_size": size } }));
        request.version = (volume.status == VolumeStatus::InUse).then_some(EXTEND_IN_USE);
        request.may_be_missing = true;
        self.transport.send(request).await
    }

    /// Whether Cinder can extend volumes in use.
    pub(crate) async fn extends_in_use(&self) -> Result<bool, CloudError> {
        Ok(self.transport.highest_version(Service::BlockStorage).await? >= Some(EXTEND_IN_USE))
    }

    /// Requests the deletion. The answer may be a 404.
    pub(crate) async fn delete(&self, id: &VolumeId) -> Result<Answer, CloudError> {
        self.remove::<Volume>("volume_delete", id.as_str(), None).await
    }
}
