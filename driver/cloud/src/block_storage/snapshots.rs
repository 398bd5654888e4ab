//! Snapshots, typed, and the calls on them.

use std::collections::BTreeMap;
use std::fmt;

use reqwest::Method;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;

use super::{BlockStorage, Link, null_as_default};
use crate::error::CloudError;
use crate::ids::{GiB, SnapshotId, VolumeId};
use crate::marks;
use crate::pace::Kind;
use crate::service::{MicroVersion, Service};
use crate::transport::{Answer, Transport};
use crate::watch::Watched;

/// The filter by metadata.
const METADATA: &str = "metadata";

/// Since when a snapshot tells of the group snapshot that it belongs to.
const GROUP_SNAPSHOTS: MicroVersion = MicroVersion(3, 14);
/// Since when snapshots are found by their metadata.
const BY_METADATA: MicroVersion = MicroVersion(3, 22);

/// The status of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SnapshotStatus {
    /// Being made.
    Creating,
    /// Complete.
    Available,
    /// A backup of it is being made.
    BackingUp,
    /// Being deleted.
    Deleting,
    /// Failed.
    Error,
    /// Failed to be deleted.
    ErrorDeleting,
    /// Any other status, as Cinder writes it.
    Other(String),
}

impl SnapshotStatus {
    /// The status as Cinder writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Creating => "creating",
            Self::Available => "available",
            Self::BackingUp => "backing-up",
            Self::Deleting => "deleting",
            Self::Error => "error",
            Self::ErrorDeleting => "error_deleting",
            Self::Other(text) => text,
        }
    }

    /// Whether the data is there: a snapshot that is backed up can be used as soon as that is done.
    pub fn is_complete(&self) -> bool {
        matches!(self, Self::Available | Self::BackingUp)
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

impl fmt::Display for SnapshotStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for SnapshotStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let known = [
            Self::Creating,
            Self::Available,
            Self::BackingUp,
            Self::Deleting,
            Self::Error,
            Self::ErrorDeleting,
        ];
        let known = known.into_iter().find(|status| status.as_str() == text);
        Ok(known.unwrap_or(Self::Other(text)))
    }
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Snapshot {
    /// Its id.
    pub id: SnapshotId,
    /// Its name; empty when it has none.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    /// Its status.
    pub status: SnapshotStatus,
    /// The volume that it was taken of.
    pub volume_id: VolumeId,
    /// The volume's size at that time.
    pub size: GiB,
    /// Metadata, as written by whoever made the snapshot.
    #[serde(default, deserialize_with = "null_as_default")]
    pub metadata: BTreeMap<String, String>,
    /// When it was made, UTC without a zone, as Cinder writes it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub created_at: String,
    /// The group snapshot of Cinder that it belongs to and that it can be deleted with only.
    #[serde(default)]
    pub group_snapshot_id: Option<String>,
}

impl Snapshot {
    /// The group snapshot that it is a member of, whether Cinder cut that or the members were taken one by one.
    pub fn group(&self) -> Option<&str> {
        let mark = || self.metadata.get(marks::GROUP_SNAPSHOT).map(String::as_str);
        self.group_snapshot_id.as_deref().or_else(mark)
    }
}

/// What a new snapshot shall be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewSnapshot {
    /// The name, by which a repeated creation finds the first one's snapshot.
    pub name: String,
    /// The volume to take it of.
    pub volume_id: VolumeId,
    /// Whether it is taken of a volume that is in use, too.
    pub force: bool,
    /// A description for people.
    pub description: String,
    /// Metadata; a found snapshot is taken for ours only when it has all of it.
    pub metadata: BTreeMap<String, String>,
}

/// Some snapshots, and where the next ones begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnapshotPage {
    /// The snapshots.
    pub(crate) snapshots: Vec<Snapshot>,
    /// The marker for the next page; `None` at the end.
    pub(crate) next: Option<SnapshotId>,
}

#[derive(Deserialize)]
struct SnapshotBody {
    snapshot: Snapshot,
}

#[derive(Deserialize)]
struct SnapshotsBody {
    snapshots: Vec<Snapshot>,
    #[serde(default)]
    snapshots_links: Vec<Link>,
}

impl BlockStorage<'_> {
    /// The version that tells of groups, where this Cinder has it.
    async fn with_groups(&self) -> Result<Option<MicroVersion>, CloudError> {
        let highest = self.transport.highest_version(Service::BlockStorage).await?;
        Ok(Some(GROUP_SNAPSHOTS).filter(|wanted| highest >= Some(*wanted)))
    }

    /// `None`: Cinder does not know the snapshot.
    pub(crate) async fn snapshot(&self, id: &SnapshotId) -> Result<Option<Snapshot>, CloudError> {
        let path = ["snapshots", id.as_str()];
        let mut request = Self::request("snapshot_get", Method::GET, &path, format!("snapshot {id}"));
        request.version = self.with_groups().await?;
        request.may_be_missing = true;
        let answer = self.transport.send(request).await?;
        if answer.missing() {
            Ok(None)
        } else {
            Ok(Some(answer.json::<SnapshotBody>()?.snapshot))
        }
    }

    /// One page of snapshots that match `filter`.
    pub(crate) async fn snapshot_page(
        &self,
        filter: &[(&'static str, String)],
        limit: Option<u32>,
        marker: Option<&SnapshotId>,
    ) -> Result<SnapshotPage, CloudError> {
        let object = match filter {
            [] => "snapshots".to_owned(),
            [(key, value), ..] => format!("snapshots with {key} {value}"),
        };
        let mut request = Self::request("snapshot_list", Method::GET, &["snapshots", "detail"], object);
        request.version = self.with_groups().await?;
        if filter.iter().any(|(key, _)| *key == METADATA) {
            request.version = Some(BY_METADATA);
        }
        request.query.extend_from_slice(filter);
        request.query.extend(limit.map(|limit| ("limit", limit.to_string())));
        request
            .query
            .extend(marker.map(|marker| ("marker", marker.to_string())));
        let body = self.transport.send(request).await?.json::<SnapshotsBody>()?;
        let more = body.snapshots_links.iter().any(|link| link.rel == "next");
        let next = body.snapshots.last().filter(|_| more);
        Ok(SnapshotPage {
            next: next.map(|snapshot| snapshot.id.clone()),
            snapshots: body.snapshots,
        })
    }

    /// All snapshots that match `filter`, page by page.
    pub(crate) async fn snapshots(&self, filter: &[(&'static str, String)]) -> Result<Vec<Snapshot>, CloudError> {
        let mut page = self.snapshot_page(filter, None, None).await?;
        let mut snapshots = std::mem::take(&mut page.snapshots);
        while let Some(marker) = page.next.take() {
            page = self.snapshot_page(filter, None, Some(&marker)).await?;
            // A service that ignores the marker would have us turn for ever.
            if page.next.as_ref() == Some(&marker) {
                break;
            }
            snapshots.append(&mut page.snapshots);
        }
        Ok(snapshots)
    }

    /// All snapshots with this in their metadata. A Cinder that cannot look for it is asked for all.
    pub(crate) async fn marked_snapshots(&self, key: &str, value: &str) -> Result<Vec<Snapshot>, CloudError> {
        let highest = self.transport.highest_version(Service::BlockStorage).await?;
        // As Python writes it; keys and values of ours need no escapes.
        let filter = [(METADATA, format!("{{'{key}': '{value}'}}"))];
        let filter: &[_] = if highest >= Some(BY_METADATA) { &filter } else { &[] };
        let mut found = self.snapshots(filter).await?;
        found.retain(|snapshot| snapshot.metadata.get(key).is_some_and(|marked| marked == value));
        Ok(found)
    }

    /// Asks for a new snapshot; `None` when Cinder does not know the volume. Never repeated once it may have reached Cinder.
    pub(crate) async fn create_snapshot(&self, new: &NewSnapshot) -> Result<Option<Snapshot>, CloudError> {
        let object = format!("snapshot {} of volume {}", new.name, new.volume_id);
        let mut request = Self::request("snapshot_create", Method::POST, &["snapshots"], object);
        request.makes = true;
        request.body = Some(json!({ "snapshot": new }));
        request.may_be_missing = true;
        let answer = self.transport.send(request).await?;
        if answer.missing() {
            Ok(None)
        } else {
            Ok(Some(answer.json::<SnapshotBody>()?.snapshot))
        }
    }

    /// Asks for the deletion; the answer may be a 404.
    pub(crate) async fn delete_snapshot(&self, id: &SnapshotId) -> Result<Answer, CloudError> {
        let path = ["snapshots", id.as_str()];
        let mut request = Self::request("snapshot_delete", Method::DELETE, &path, format!("snapshot {id}"));
        request.may_be_missing = true;
        self.transport.send(request).await
    }
}

impl Watched for Snapshot {
    type Id = SnapshotId;
    type Status = SnapshotStatus;

    fn id(&self) -> &SnapshotId {
        &self.id
    }

    fn status(&self) -> &SnapshotStatus {
        &self.status
    }

    fn operation(kind: Kind) -> &'static str {
        match kind {
            Kind::Create => "snapshot",
            Kind::Delete => "snapshot_delete",
            _ => "snapshot_settle",
        }
    }

    fn under_way(kind: Kind) -> SnapshotStatus {
        match kind {
            Kind::Create => SnapshotStatus::Creating,
            Kind::Delete => SnapshotStatus::Deleting,
            _ => SnapshotStatus::BackingUp,
        }
    }

    async fn get(transport: &Transport, id: &SnapshotId) -> Result<Option<Self>, CloudError> {
        BlockStorage::new(transport).snapshot(id).await
    }
}
