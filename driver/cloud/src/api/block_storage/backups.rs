// SPDX-License-Identifier: Apache-2.0
//! Backups, typed, and the calls on them.

use std::collections::BTreeMap;

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::resource::{Filter, ListItem, Resource, id_of};
use super::status::statuses;
use super::{BlockStorage, null_as_default};
use crate::error::CloudError;
use crate::http::service::{MicroVersion, Service};
use crate::http::transport::Answer;
use crate::ids::{BackupId, GiB, SnapshotId, VolumeId};

/// Since when backups have metadata.
const METADATA: MicroVersion = MicroVersion(3, 43);
/// Since when a backup can be asked for in a zone.
const ZONE: MicroVersion = MicroVersion(3, 51);

statuses! {
    /// The status of a backup.
    BackupStatus {
        Creating = "creating",
        Available = "available",
        /// A volume is being filled from it.
        Restoring = "restoring",
        Deleting = "deleting",
        Error = "error",
        /// Failed to be deleted.
        ErrorDeleting = "error_deleting",
    }
}

impl BackupStatus {
    /// Whether the data is there: a backup that is being restored can be used as soon as that is done.
    pub fn is_complete(&self) -> bool {
        matches!(self, Self::Available | Self::Restoring)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Backup {
    pub id: BackupId,
    /// Its name; empty when it has none.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    pub status: BackupStatus,
    /// The volume that it is one of.
    pub volume_id: VolumeId,
    /// The volume's size at that time; `None` while Cinder does not say.
    #[serde(default)]
    pub size: Option<GiB>,
    /// Metadata, as written by whoever made the backup.
    #[serde(default, deserialize_with = "null_as_default")]
    pub metadata: BTreeMap<String, String>,
    /// When it was asked for, UTC without a zone, as Cinder writes it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub created_at: String,
    /// When its data was frozen, in the same form.
    #[serde(default)]
    pub data_timestamp: Option<String>,
    /// The snapshot that it was made from.
    #[serde(default)]
    pub snapshot_id: Option<SnapshotId>,
    /// Whether it holds only what changed since the one before.
    #[serde(default, deserialize_with = "null_as_default")]
    pub is_incremental: bool,
    /// Whether there are incremental ones built on it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub has_dependent_backups: bool,
    /// Why it failed, in the words of the backup service.
    #[serde(default, deserialize_with = "null_as_default")]
    pub fail_reason: String,
}

/// What a new backup shall be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewBackup {
    /// The name, by which a repeated creation finds the first one's backup.
    pub name: String,
    /// The volume to back up.
    pub volume_id: VolumeId,
    /// Whether only what changed since the last backup shall be kept; a full one is made where there is none.
    pub incremental: bool,
    /// The zone of the backup service; any when `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub availability_zone: Option<String>,
    /// A description for people.
    pub description: String,
    /// Metadata; a found backup is taken for ours only when it has all of it.
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

impl ListItem for Backup {
    const LIST: &'static str = "backup_list";
    const PATH: &'static [&'static str] = &["backups", "detail"];
    const KEY: &'static str = "backups";

    fn marker(&self) -> String {
        self.id.to_string()
    }
}

impl BlockStorage<'_> {
    /// The version that tells of metadata, where this Cinder has it.
    async fn with_metadata(&self) -> Result<Option<MicroVersion>, CloudError> {
        let highest = self.transport.highest_version(Service::BlockStorage).await?;
        Ok(Some(METADATA).filter(|wanted| highest >= Some(*wanted)))
    }

    /// `None`: Cinder does not know the backup.
    pub(crate) async fn backup(&self, id: &BackupId) -> Result<Option<Backup>, CloudError> {
        self.get(id.as_str(), self.with_metadata().await?, &[]).await
    }

    /// All backups that match `filter`.
    pub(crate) async fn backups(&self, filter: &[Filter]) -> Result<Vec<Backup>, CloudError> {
        self.list(self.with_metadata().await?, filter, Some).await
    }

    /// All backups of a volume. The configuration of Cinder decides which filters it honours, so the volume is compared here, too.
    pub(crate) async fn backups_of(&self, volume: &VolumeId) -> Result<Vec<Backup>, CloudError> {
        let mut backups = self.backups(&[("volume_id", volume.to_string())]).await?;
        backups.retain(|backup| backup.volume_id.as_str().eq_ignore_ascii_case(volume.as_str()));
        Ok(backups)
    }

    /// Asks for a backup of a snapshot; `None` when Cinder does not know the volume or the snapshot. Never repeated once it may
    /// have reached Cinder.
    pub(crate) async fn create_backup(
        &self,
        new: &NewBackup,
        snapshot: &SnapshotId,
    ) -> Result<Option<BackupId>, CloudError> {
        let object = format!("backup {} of volume {}", new.name, new.volume_id);
        let mut request = Self::request("backup_create", Method::POST, &["backups"], object);
        request.makes = true;
        request.version = if new.availability_zone.is_some() {
            Some(ZONE)
        } else {
            self.with_metadata().await?
        };
        let mut body = json!(new);
        body["snapshot_id"] = json!(snapshot);
        // The volume may be in use; it is the snapshot that is read.
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
        id_of::<Backup>(answer).map(|id| Some(BackupId::new(id)))
    }

    /// Replaces the metadata of a backup that has some.
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

    /// Asks for the deletion; the answer may be a 404.
    pub(crate) async fn delete_backup(&self, id: &BackupId) -> Result<Answer, CloudError> {
        self.remove::<Backup>("backup_delete", id.as_str(), None).await
    }
}
