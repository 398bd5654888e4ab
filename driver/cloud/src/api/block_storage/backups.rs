// SPDX-License-Identifier: Apache-2.0
//! Backups and the calls on them.

use std::collections::BTreeMap;

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::resource::{Filter, ListItem, Resource, decode_id};
use super::status::statuses;
use super::{BlockStorage, null_as_default};
use crate::api::pages::Item;
use crate::error::CloudError;
use crate::http::service::{MicroVersion, Service};
use crate::http::transport::Answer;
use crate::ids::{BackupId, GiB, SnapshotId, VolumeId};
use crate::memory_size::{MemorySize, memory_size};

/// The first microversion in which backups have metadata.
const METADATA: MicroVersion = MicroVersion(3, 43);
/// The first microversion in which a request for a backup may name a zone.
const ZONE: MicroVersion = MicroVersion(3, 51);

statuses! {
    /// The status of a backup.
    BackupStatus {
        Creating = "creating",
        Available = "available",
        /// Cinder restores the backup to a volume.
        Restoring = "restoring",
        Deleting = "deleting",
        Error = "error",
        /// The deletion failed.
        ErrorDeleting = "error_deleting",
    }
}

impl BackupStatus {
    /// Whether the backup has all its data. A backup that is being restored becomes usable when the restore ends.
    pub fn is_complete(&self) -> bool {
        matches!(self, Self::Available | Self::Restoring)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Backup {
    pub id: BackupId,
    /// Empty for a backup without a name.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    pub status: BackupStatus,
    /// The volume of which this is a backup.
    pub volume_id: VolumeId,
    /// The size of the volume when the backup was requested; `None` while Cinder does not report it.
    #[serde(default)]
    pub size: Option<GiB>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub metadata: BTreeMap<String, String>,
    /// The time of the request, UTC without a zone, as Cinder writes it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub created_at: String,
    /// The time from which the data is, in the same form.
    #[serde(default)]
    pub data_timestamp: Option<String>,
    /// The snapshot from which the backup was taken.
    #[serde(default)]
    pub snapshot_id: Option<SnapshotId>,
    /// Whether the backup contains only the changes since the previous one.
    #[serde(default, deserialize_with = "null_as_default")]
    pub is_incremental: bool,
    /// Whether other backups are based on this one.
    #[serde(default, deserialize_with = "null_as_default")]
    pub has_dependent_backups: bool,
    /// The reason of a failure, as the backup service reports it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub fail_reason: String,
}

memory_size!(Backup {
    id,
    name,
    status,
    volume_id,
    size,
    metadata,
    created_at,
    data_timestamp,
    snapshot_id,
    is_incremental,
    has_dependent_backups,
    fail_reason,
});

/// The parameters of a new backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewBackup {
    /// The name, by which a repeated creation finds the backup of the first one.
    pub name: String,
    pub volume_id: VolumeId,
    /// Whether to store only the changes since the last backup. The first backup of a volume is always a full one.
    pub incremental: bool,
    /// The zone of the backup service; any zone when `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub availability_zone: Option<String>,
    /// A description for users.
    pub description: String,
    /// Metadata. The driver adopts an existing backup only if it has all these entries.
    pub metadata: BTreeMap<String, String>,
}

impl Resource for Backup {
    const GET: &'static str = "backup_get";
    const COLLECTION: &'static str = "backups";
    const KEY: &'static str = "backup";

    fn id(&self) -> &str {
        self.id.as_str()
    }
}

impl Item for Backup {
    const KEY: &'static str = "backups";

    fn marker(&self) -> &str {
        self.id.as_str()
    }
}

impl ListItem for Backup {
    const LIST: &'static str = "backup_list";
    const PATH: &'static [&'static str] = &["backups", "detail"];
}

impl BlockStorage<'_> {
    /// The microversion in which backups have metadata; `None` when this Cinder does not support it.
    async fn metadata_version(&self) -> Result<Option<MicroVersion>, CloudError> {
        let highest = self.transport.highest_version(Service::BlockStorage).await?;
        Ok(Some(METADATA).filter(|version| highest >= Some(*version)))
    }

    /// Gets a backup; `None` when Cinder does not know it.
    pub(crate) async fn backup(&self, id: &BackupId) -> Result<Option<Backup>, CloudError> {
        self.get(id.as_str(), self.metadata_version().await?, &[]).await
    }

    /// Lists all backups that match `filter`, and returns the results of `map`. Backups for which `map` returns `None`
    /// are omitted.
    pub(crate) async fn backups<T: MemorySize>(
        &self,
        filter: &[Filter],
        map: impl FnMut(Backup) -> Option<T>,
    ) -> Result<Vec<T>, CloudError> {
        self.list(self.metadata_version().await?, filter, map).await
    }

    /// Lists the backups of a volume like [`Self::backups`]. The configuration of Cinder decides which filters it
    /// honors, so the volume is compared here too.
    pub(crate) async fn backups_of<T: MemorySize>(
        &self,
        volume: &VolumeId,
        mut map: impl FnMut(Backup) -> Option<T>,
    ) -> Result<Vec<T>, CloudError> {
        let is_of_volume = |listed: &Backup| listed.volume_id.as_str().eq_ignore_ascii_case(volume.as_str());
        let filter = [("volume_id", volume.to_string())];
        self.backups(&filter, |backup| Some(backup).filter(is_of_volume).and_then(&mut map))
            .await
    }

    /// Lists all backups of this name. The name is compared here too.
    pub(crate) async fn backups_named(&self, name: &str) -> Result<Vec<Backup>, CloudError> {
        let filter = [("name", name.to_owned())];
        self.backups(&filter, |backup: Backup| (backup.name == name).then_some(backup))
            .await
    }

    /// Requests a backup of a snapshot; `None` when Cinder does not know the volume or the snapshot. The driver does
    /// not repeat the request once it may have reached Cinder.
    pub(crate) async fn create_backup(
        &self,
        new: &NewBackup,
        snapshot: &SnapshotId,
    ) -> Result<Option<BackupId>, CloudError> {
        let object = format!("backup {} of volume {}", new.name, new.volume_id);
        let mut request = Self::request("backup_create", Method::POST, &["backups"], object);
        request.creates = true;
        request.version = if new.availability_zone.is_some() {
            Some(ZONE)
        } else {
            self.metadata_version().await?
        };
        let mut body = json!(new);
        body["snapshot_id"] = json!(snapshot);
        // The volume may be in use, because Cinder reads the snapshot.
        body["force"] = json!(true);
        if request.version.is_none()
            && let Some(body) = body.as_object_mut()
        {
            body.remove("metadata");
        }
        request.body = Some(json!({ "backup": body }));
        request.may_be_missing = true;
        let answer = self.transport.send(request).await?;
        if answer.missing() {
            return Ok(None);
        }
        decode_id::<Backup>(answer).map(|id| Some(BackupId::new(id)))
    }

    /// Replaces the metadata of a backup. Only for a backup that has metadata.
    pub(crate) async fn set_backup_metadata(
        &self,
        id: &BackupId,
        metadata: &BTreeMap<String, String>,
    ) -> Result<(), CloudError> {
        let path = ["backups", id.as_str()];
        let mut request = Self::request("backup_update", Method::PUT, &path, format!("backup {id}"));
        request.version = Some(METADATA);
        request.body = Some(json!({ "backup": { "metadata": metadata } }));
        self.transport.send(request).await.map(drop)
    }

    /// Requests the deletion. The answer may be a 404.
    pub(crate) async fn delete_backup(&self, id: &BackupId) -> Result<Answer, CloudError> {
        self.remove::<Backup>("backup_delete", id.as_str(), None).await
    }
}
