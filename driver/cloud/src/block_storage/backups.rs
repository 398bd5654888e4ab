//! Backups, typed, and the calls on them.

use std::collections::BTreeMap;
use std::fmt;

use reqwest::Method;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;

use super::{BlockStorage, Link, null_as_default};
use crate::error::CloudError;
use crate::ids::{BackupId, GiB, SnapshotId, VolumeId};
use crate::pace::Kind;
use crate::service::{MicroVersion, Service};
use crate::transport::{Answer, Transport};
use crate::watch::Watched;

/// Since when backups have metadata.
const METADATA: MicroVersion = MicroVersion(3, 43);
/// Since when a backup can be asked for in a zone.
const ZONE: MicroVersion = MicroVersion(3, 51);

/// The status of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum BackupStatus {
    /// Being made.
    Creating,
    /// Complete.
    Available,
    /// A volume is being filled from it.
    Restoring,
    /// Being deleted.
    Deleting,
    /// Failed.
    Error,
    /// Failed to be deleted.
    ErrorDeleting,
    /// Any other status, as Cinder writes it.
    Other(String),
}

impl BackupStatus {
    /// The status as Cinder writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Creating => "creating",
            Self::Available => "available",
            Self::Restoring => "restoring",
            Self::Deleting => "deleting",
            Self::Error => "error",
            Self::ErrorDeleting => "error_deleting",
            Self::Other(text) => text,
        }
    }

    /// Whether the data is there: a backup that is being restored can be used as soon as that is done.
    pub fn is_complete(&self) -> bool {
        matches!(self, Self::Available | Self::Restoring)
    }

    /// Whether it has failed for good.
    pub fn is_error(&self) -> bool {
        match self {
            Self::Error | Self::ErrorDeleting => true,
            Self::Other(text) => text.starts_with("error"),
            _ => false,
        }
    }
}

impl fmt::Display for BackupStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for BackupStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let known = [
            Self::Creating,
            Self::Available,
            Self::Restoring,
            Self::Deleting,
            Self::Error,
            Self::ErrorDeleting,
        ];
        let known = known.into_iter().find(|status| status.as_str() == text);
        Ok(known.unwrap_or(Self::Other(text)))
    }
}

/// A backup.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Backup {
    /// Its id.
    pub id: BackupId,
    /// Its name; empty when it has none.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    /// Its status.
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

/// Some backups, and where the next ones begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BackupPage {
    /// The backups.
    pub(crate) backups: Vec<Backup>,
    /// The marker for the next page; `None` at the end.
    pub(crate) next: Option<BackupId>,
}

#[derive(Deserialize)]
struct BackupBody {
    backup: Backup,
}

#[derive(Deserialize)]
struct BackupsBody {
    backups: Vec<Backup>,
    #[serde(default)]
    backup_links: Vec<Link>,
    #[serde(default)]
    backups_links: Vec<Link>,
}

/// All that the answer to a creation holds.
#[derive(Deserialize)]
struct MadeBody {
    backup: Made,
}

#[derive(Deserialize)]
struct Made {
    id: BackupId,
}

impl BlockStorage<'_> {
    /// The version that tells of metadata, where this Cinder has it.
    async fn with_metadata(&self) -> Result<Option<MicroVersion>, CloudError> {
        let highest = self.transport.highest_version(Service::BlockStorage).await?;
        Ok(Some(METADATA).filter(|wanted| highest >= Some(*wanted)))
    }

    /// `None`: Cinder does not know the backup.
    pub(crate) async fn backup(&self, id: &BackupId) -> Result<Option<Backup>, CloudError> {
        let path = ["backups", id.as_str()];
        let mut request = Self::request("backup_get", Method::GET, &path, format!("backup {id}"));
        request.version = self.with_metadata().await?;
        request.may_be_missing = true;
        let answer = self.transport.send(request).await?;
        if answer.missing() {
            Ok(None)
        } else {
            Ok(Some(answer.json::<BackupBody>()?.backup))
        }
    }

    /// One page of backups that match `filter`.
    pub(crate) async fn backup_page(
        &self,
        filter: &[(&'static str, String)],
        limit: Option<u32>,
        marker: Option<&BackupId>,
    ) -> Result<BackupPage, CloudError> {
        let object = match filter {
            [] => "backups".to_owned(),
            [(key, value), ..] => format!("backups with {key} {value}"),
        };
        let mut request = Self::request("backup_list", Method::GET, &["backups", "detail"], object);
        request.version = self.with_metadata().await?;
        request.query.extend_from_slice(filter);
        request.query.extend(limit.map(|limit| ("limit", limit.to_string())));
        request
            .query
            .extend(marker.map(|marker| ("marker", marker.to_string())));
        let body = self.transport.send(request).await?.json::<BackupsBody>()?;
        let mut links = body.backups_links.iter().chain(&body.backup_links);
        let more = links.any(|link| link.rel == "next");
        let next = body.backups.last().filter(|_| more);
        Ok(BackupPage {
            next: next.map(|backup| backup.id.clone()),
            backups: body.backups,
        })
    }

    /// All backups that match `filter`, page by page.
    pub(crate) async fn backups(&self, filter: &[(&'static str, String)]) -> Result<Vec<Backup>, CloudError> {
        let mut page = self.backup_page(filter, None, None).await?;
        let mut backups = std::mem::take(&mut page.backups);
        while let Some(marker) = page.next.take() {
            page = self.backup_page(filter, None, Some(&marker)).await?;
            // A service that ignores the marker would have us turn for ever.
            if page.next.as_ref() == Some(&marker) {
                break;
            }
            backups.append(&mut page.backups);
        }
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
            Ok(None)
        } else {
            Ok(Some(answer.json::<MadeBody>()?.backup.id))
        }
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
        let path = ["backups", id.as_str()];
        let mut request = Self::request("backup_delete", Method::DELETE, &path, format!("backup {id}"));
        request.may_be_missing = true;
        self.transport.send(request).await
    }
}

impl Watched for Backup {
    type Id = BackupId;
    type Status = BackupStatus;

    fn id(&self) -> &BackupId {
        &self.id
    }

    fn status(&self) -> &BackupStatus {
        &self.status
    }

    fn operation(kind: Kind) -> &'static str {
        match kind {
            Kind::Create => "backup",
            Kind::Delete => "backup_delete",
            _ => "backup_settle",
        }
    }

    fn under_way(kind: Kind) -> BackupStatus {
        match kind {
            Kind::Create => BackupStatus::Creating,
            Kind::Delete => BackupStatus::Deleting,
            _ => BackupStatus::Restoring,
        }
    }

    async fn get(transport: &Transport, id: &BackupId) -> Result<Option<Self>, CloudError> {
        BlockStorage::new(transport).backup(id).await
    }
}
