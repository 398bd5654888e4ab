// SPDX-License-Identifier: Apache-2.0
//! Snapshots, typed, and the calls on them.

use std::collections::BTreeMap;

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::resource::{Filter, ListItem, Resource, one};
use super::status::statuses;
use super::{BlockStorage, null_as_default};
use crate::error::CloudError;
use crate::http::service::{MicroVersion, Service};
use crate::http::transport::Answer;
use crate::ids::{GiB, SnapshotId, VolumeId};

/// Since when a snapshot tells of the group snapshot that it belongs to.
const GROUP_SNAPSHOTS: MicroVersion = MicroVersion(3, 14);

statuses! {
    /// The status of a snapshot.
    SnapshotStatus {
        Creating = "creating",
        Available = "available",
        /// A backup of it is being made.
        BackingUp = "backing-up",
        Deleting = "deleting",
        Error = "error",
        /// Failed to be deleted.
        ErrorDeleting = "error_deleting",
    }
}

impl SnapshotStatus {
    /// Whether the data is there: a snapshot that is backed up can be used as soon as that is done.
    pub fn is_complete(&self) -> bool {
        matches!(self, Self::Available | Self::BackingUp)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Snapshot {
    pub id: SnapshotId,
    /// Its name; empty when it has none.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
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

impl Resource for Snapshot {
    const GET: &'static str = "snapshot_get";
    const COLLECTION: &'static str = "snapshots";
    const KEY: &'static str = "snapshot";

    fn id(&self) -> &str {
        self.id.as_str()
    }
}

impl ListItem for Snapshot {
    const LIST: &'static str = "snapshot_list";
    const PATH: &'static [&'static str] = &["snapshots", "detail"];
    const KEY: &'static str = "snapshots";

    fn marker(&self) -> String {
        self.id.to_string()
    }
}

impl BlockStorage<'_> {
    /// The version that tells of groups, where this Cinder has it.
    async fn with_groups(&self) -> Result<Option<MicroVersion>, CloudError> {
        let highest = self.transport.highest_version(Service::BlockStorage).await?;
        Ok(Some(GROUP_SNAPSHOTS).filter(|wanted| highest >= Some(*wanted)))
    }

    /// `None`: Cinder does not know the snapshot.
    pub(crate) async fn snapshot(&self, id: &SnapshotId) -> Result<Option<Snapshot>, CloudError> {
        self.get(id.as_str(), self.with_groups().await?, &[]).await
    }

    /// All snapshots that match `filter`.
    pub(crate) async fn snapshots(&self, filter: &[Filter]) -> Result<Vec<Snapshot>, CloudError> {
        self.list(self.with_groups().await?, filter, Some).await
    }

    /// All snapshots of a volume. The configuration of Cinder decides which filters it honours, so the volume is compared here, too.
    pub(crate) async fn snapshots_of(&self, volume: &VolumeId) -> Result<Vec<Snapshot>, CloudError> {
        let mut snapshots = self.snapshots(&[("volume_id", volume.to_string())]).await?;
        snapshots.retain(|snapshot| snapshot.volume_id.as_str().eq_ignore_ascii_case(volume.as_str()));
        Ok(snapshots)
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
            one(answer).map(Some)
        }
    }

    /// Asks for the deletion; the answer may be a 404.
    pub(crate) async fn delete_snapshot(&self, id: &SnapshotId) -> Result<Answer, CloudError> {
        self.remove::<Snapshot>("snapshot_delete", id.as_str(), None).await
    }
}
