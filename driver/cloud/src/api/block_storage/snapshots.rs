// SPDX-License-Identifier: Apache-2.0
//! Snapshots and the calls on them.

use std::collections::BTreeMap;

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::resource::{Filter, ListItem, Resource, decode_resource};
use super::status::statuses;
use super::{BlockStorage, null_as_default};
use crate::error::CloudError;
use crate::http::service::{MicroVersion, Service};
use crate::http::transport::Answer;
use crate::ids::{GiB, SnapshotId, VolumeId};

/// The first microversion in which a snapshot contains the id of its group snapshot.
const GROUP_SNAPSHOTS: MicroVersion = MicroVersion(3, 14);

statuses! {
    /// The status of a snapshot.
    SnapshotStatus {
        Creating = "creating",
        Available = "available",
        /// Cinder takes a backup of the snapshot.
        BackingUp = "backing-up",
        Deleting = "deleting",
        Error = "error",
        /// The deletion failed.
        ErrorDeleting = "error_deleting",
    }
}

impl SnapshotStatus {
    /// Whether the snapshot has all its data. A snapshot that is being backed up becomes usable when the backup ends.
    pub fn is_complete(&self) -> bool {
        matches!(self, Self::Available | Self::BackingUp)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Snapshot {
    pub id: SnapshotId,
    /// Empty for a snapshot without a name.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    pub status: SnapshotStatus,
    /// The volume of which this is a snapshot.
    pub volume_id: VolumeId,
    /// The size of the volume when the snapshot was taken.
    pub size: GiB,
    #[serde(default, deserialize_with = "null_as_default")]
    pub metadata: BTreeMap<String, String>,
    /// The time of creation, UTC without a zone, as Cinder writes it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub created_at: String,
    /// The group snapshot of which this is a member. A member can be deleted only together with its group snapshot.
    #[serde(default)]
    pub group_snapshot_id: Option<String>,
}

/// The parameters of a new snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewSnapshot {
    /// The name, by which a repeated creation finds the snapshot of the first one.
    pub name: String,
    pub volume_id: VolumeId,
    /// Whether to take the snapshot of a volume in use, too.
    pub force: bool,
    /// A description for users.
    pub description: String,
    /// Metadata. The driver adopts an existing snapshot only if it has all these entries.
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
    /// The microversion with the ids of group snapshots; `None` when this Cinder does not support it.
    async fn group_version(&self) -> Result<Option<MicroVersion>, CloudError> {
        let highest = self.transport.highest_version(Service::BlockStorage).await?;
        Ok(Some(GROUP_SNAPSHOTS).filter(|version| highest >= Some(*version)))
    }

    /// Gets a snapshot; `None` when Cinder does not know it.
    pub(crate) async fn snapshot(&self, id: &SnapshotId) -> Result<Option<Snapshot>, CloudError> {
        self.get(id.as_str(), self.group_version().await?, &[]).await
    }

    /// Lists all snapshots that match `filter`.
    pub(crate) async fn snapshots(&self, filter: &[Filter]) -> Result<Vec<Snapshot>, CloudError> {
        self.list(self.group_version().await?, filter, Some).await
    }

    /// Lists all snapshots of a volume. The configuration of Cinder decides which filters it honors, so the volume is
    /// compared here too.
    pub(crate) async fn snapshots_of(&self, volume: &VolumeId) -> Result<Vec<Snapshot>, CloudError> {
        let mut snapshots = self.snapshots(&[("volume_id", volume.to_string())]).await?;
        snapshots.retain(|snapshot| snapshot.volume_id.as_str().eq_ignore_ascii_case(volume.as_str()));
        Ok(snapshots)
    }

    /// Requests a new snapshot; `None` when Cinder does not know the volume. The driver does not repeat the request
    /// once it may have reached Cinder.
    pub(crate) async fn create_snapshot(&self, new: &NewSnapshot) -> Result<Option<Snapshot>, CloudError> {
        let object = format!("snapshot {} of volume {}", new.name, new.volume_id);
        let mut request = Self::request("snapshot_create", Method::POST, &["snapshots"], object);
        request.creates = true;
        request.body = Some(json!({ "snapshot": new }));
        request.may_be_missing = true;
        let answer = self.transport.send(request).await?;
        if answer.missing() {
            Ok(None)
        } else {
            decode_resource(answer).map(Some)
        }
    }

    /// Requests the deletion. The answer may be a 404.
    pub(crate) async fn delete_snapshot(&self, id: &SnapshotId) -> Result<Answer, CloudError> {
        self.remove::<Snapshot>("snapshot_delete", id.as_str(), None).await
    }
}
