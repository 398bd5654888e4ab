// SPDX-License-Identifier: Apache-2.0
//! Snapshots and the calls on them.

use std::collections::BTreeMap;

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::resource::{Filter, ListItem, Resource, decode_resource};
use super::status::statuses;
use super::{BlockStorage, null_as_default};
use crate::api::pages::Item;
use crate::error::CloudError;
use crate::http::service::{MicroVersion, Service};
use crate::http::transport::Answer;
use crate::ids::{GiB, SnapshotId, VolumeId};
use crate::memory_size::{MemorySize, memory_size};

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

memory_size!(Snapshot {
    id,
    name,
    status,
    volume_id,
    size,
    metadata,
    created_at,
    group_snapshot_id,
});

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

impl Item for Snapshot {
    const KEY: &'static str = "snapshots";

    fn marker(&self) -> &str {
        self.id.as_str()
    }
}

impl ListItem for Snapshot {
    const LIST: &'static str = "snapshot_list";
    const PATH: &'static [&'static str] = &["snapshots", "detail"];
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

    /// Lists all snapshots that match `filter`, and returns the results of `map`. Snapshots for which `map` returns
    /// `None` are omitted.
    pub(crate) async fn snapshots<T: MemorySize>(
        &self,
        filter: &[Filter],
        map: impl FnMut(Snapshot) -> Option<T>,
    ) -> Result<Vec<T>, CloudError> {
        self.list(self.group_version().await?, filter, map).await
    }

    /// Lists the snapshots of a volume like [`Self::snapshots`]. The configuration of Cinder decides which filters it
    /// honors, so the volume is compared here too.
    pub(crate) async fn snapshots_of<T: MemorySize>(
        &self,
        volume: &VolumeId,
        mut map: impl FnMut(Snapshot) -> Option<T>,
    ) -> Result<Vec<T>, CloudError> {
        let is_of_volume = |listed: &Snapshot| listed.volume_id.as_str().eq_ignore_ascii_case(volume.as_str());
        let filter = [("volume_id", volume.to_string())];
        self.snapshots(&filter, |snapshot| {
            Some(snapshot).filter(is_of_volume).and_then(&mut map)
        })
        .await
    }

    /// Lists the snapshots of this name for which `is_wanted` is true. The name is compared here too.
    pub(crate) async fn snapshots_named(
        &self,
        name: &str,
        is_wanted: impl Fn(&Snapshot) -> bool,
    ) -> Result<Vec<Snapshot>, CloudError> {
        let filter = [("name", name.to_owned())];
        let matches = |listed: &Snapshot| listed.name == name && is_wanted(listed);
        self.snapshots(&filter, |snapshot| Some(snapshot).filter(matches)).await
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
