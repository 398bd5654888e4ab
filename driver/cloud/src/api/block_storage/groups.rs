// SPDX-License-Identifier: Apache-2.0
//! Groups of volumes, their types, and snapshots of whole groups.

use std::collections::BTreeMap;

use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use super::resource::{ListItem, Resource, decode_id};
use super::{BlockStorage, Volume, is_true, null_as_default};
use crate::api::pages::Item;
use crate::error::CloudError;
use crate::http::service::{MicroVersion, Service};
use crate::ids::VolumeId;
use crate::memory_size::memory_size;

/// The first microversion with groups and group snapshots, and with the group ids of volumes and snapshots.
pub(crate) const GROUP_SNAPSHOTS: MicroVersion = MicroVersion(3, 14);
/// The first microversion in which a group lists its volumes.
const GROUP_VOLUMES: MicroVersion = MicroVersion(3, 25);
/// The first microversion in which the list of group snapshots has pages.
const GROUP_SNAPSHOT_PAGES: MicroVersion = MicroVersion(3, 29);
/// Group spec: all snapshots of a group snapshot are from one point in time.
const CONSISTENT: &str = "consistent_group_snapshot_enabled";

/// A group type. Cinder shows its specs to administrators only.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct GroupType {
    pub(crate) id: String,
    pub(crate) name: String,
    #[serde(default)]
    group_specs: Option<BTreeMap<String, Option<String>>>,
}

memory_size!(GroupType { id, name, group_specs });

impl GroupType {
    /// Whether snapshots of such groups are from one point in time; `None` where Cinder does not show it.
    pub(crate) fn is_consistent(&self) -> Option<bool> {
        let specs = self.group_specs.as_ref()?;
        Some(specs.get(CONSISTENT).and_then(Option::as_deref).is_some_and(is_true))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Group {
    pub(crate) id: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) name: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) description: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) status: String,
    /// The id of the group type.
    #[serde(rename = "group_type", default, deserialize_with = "null_as_default")]
    pub(crate) type_id: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) created_at: String,
    /// Present in the answer about a single group, not in lists.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) volumes: Vec<VolumeId>,
}

memory_size!(Group {
    id,
    name,
    description,
    status,
    type_id,
    created_at,
    volumes,
});

/// The parameters of a new group.
#[derive(Debug)]
pub(crate) struct NewGroup<'a> {
    pub(crate) name: &'a str,
    pub(crate) description: &'a str,
    pub(crate) group_type: &'a str,
    /// Ids or names.
    pub(crate) volume_types: Vec<String>,
    pub(crate) availability_zone: Option<&'a str>,
}

/// A group snapshot. Its members are snapshots with its name and its id.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct GroupSnapshotRecord {
    pub(crate) id: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) name: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) description: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) group_id: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) status: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) created_at: String,
}

memory_size!(GroupSnapshotRecord {
    id,
    name,
    description,
    group_id,
    status,
    created_at,
});

/// A volume and the id of its group.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct GroupedVolume {
    #[serde(flatten)]
    pub(crate) volume: Volume,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) group_id: String,
}

impl Item for GroupType {
    const KEY: &'static str = "group_types";

    fn marker(&self) -> &str {
        &self.id
    }
}

impl ListItem for GroupType {
    const LIST: &'static str = "group_type_list";
    const PATH: &'static [&'static str] = &["group_types"];
}

impl Resource for Group {
    const GET: &'static str = "group_get";
    const COLLECTION: &'static str = "groups";
    const KEY: &'static str = "group";

    fn id(&self) -> &str {
        &self.id
    }
}

impl Item for Group {
    const KEY: &'static str = "groups";

    fn marker(&self) -> &str {
        &self.id
    }
}

impl ListItem for Group {
    const LIST: &'static str = "group_list";
    const PATH: &'static [&'static str] = &["groups", "detail"];
}

impl Resource for GroupSnapshotRecord {
    const GET: &'static str = "group_snapshot_get";
    const COLLECTION: &'static str = "group_snapshots";
    const KEY: &'static str = "group_snapshot";

    fn id(&self) -> &str {
        &self.id
    }
}

impl Item for GroupSnapshotRecord {
    const KEY: &'static str = "group_snapshots";

    fn marker(&self) -> &str {
        &self.id
    }
}

impl ListItem for GroupSnapshotRecord {
    const LIST: &'static str = "group_snapshot_list";
    const PATH: &'static [&'static str] = &["group_snapshots", "detail"];
}

impl Resource for GroupedVolume {
    const GET: &'static str = Volume::GET;
    const COLLECTION: &'static str = Volume::COLLECTION;
    const KEY: &'static str = <Volume as Resource>::KEY;

    fn id(&self) -> &str {
        self.volume.id.as_str()
    }
}

impl BlockStorage<'_> {
    /// Whether this Cinder has group snapshots.
    pub(crate) async fn knows_groups(&self) -> Result<bool, CloudError> {
        let highest = self.transport.highest_version(Service::BlockStorage).await?;
        Ok(highest >= Some(GROUP_VOLUMES))
    }

    /// Lists the group types that the project may use and for which `is_wanted` is true.
    pub(crate) async fn group_types(
        &self,
        is_wanted: impl Fn(&GroupType) -> bool,
    ) -> Result<Vec<GroupType>, CloudError> {
        self.list(Some(GROUP_SNAPSHOTS), &[], |listed| Some(listed).filter(&is_wanted))
            .await
    }

    /// Lists the groups of the project for which `is_wanted` is true.
    pub(crate) async fn groups(&self, is_wanted: impl Fn(&Group) -> bool) -> Result<Vec<Group>, CloudError> {
        self.list(Some(GROUP_SNAPSHOTS), &[], |listed| Some(listed).filter(&is_wanted))
            .await
    }

    /// Gets a group with its volumes; `None` when Cinder does not know it.
    pub(crate) async fn group(&self, id: &str) -> Result<Option<Group>, CloudError> {
        let with_volumes = [("list_volume", "true".to_owned())];
        self.get(id, Some(GROUP_VOLUMES), &with_volumes).await
    }

    /// Requests a new group and returns its id. The driver does not repeat the request once it may have reached
    /// Cinder.
    pub(crate) async fn create_group(&self, new: &NewGroup<'_>) -> Result<String, CloudError> {
        let object = format!("group {}", new.name);
        let mut request = Self::request("group_create", Method::POST, &["groups"], object);
        request.creates = true;
        request.version = Some(GROUP_SNAPSHOTS);
        let mut group = json!({
            "name": new.name,
            "description": new.description,
            "group_type": new.group_type,
            "volume_types": new.volume_types,
        });
        if let Some(zone) = new.availability_zone {
            group["availability_zone"] = json!(zone);
        }
        request.body = Some(json!({ "group": group }));
        decode_id::<Group>(self.transport.send(request).await?)
    }

    /// Requests to add and remove volumes of a group, and to change its description.
    pub(crate) async fn update_group(
        &self,
        id: &str,
        add: &[VolumeId],
        remove: &[VolumeId],
        description: Option<&str>,
    ) -> Result<(), CloudError> {
        let path = ["groups", id];
        let mut request = Self::request("group_update", Method::PUT, &path, format!("group {id}"));
        request.version = Some(GROUP_SNAPSHOTS);
        let ids = |volumes: &[VolumeId]| volumes.iter().map(VolumeId::as_str).collect::<Vec<_>>().join(",");
        let mut group = serde_json::Map::new();
        if !add.is_empty() {
            group.insert("add_volumes".into(), ids(add).into());
        }
        if !remove.is_empty() {
            group.insert("remove_volumes".into(), ids(remove).into());
        }
        if let Some(description) = description {
            group.insert("description".into(), description.into());
        }
        request.body = Some(json!({ "group": group }));
        self.transport.send(request).await.map(drop)
    }

    /// Requests the deletion of an empty group. Cinder rejects it for a group with volumes, so volumes are never
    /// deleted with their group.
    pub(crate) async fn delete_group(&self, id: &str) -> Result<(), CloudError> {
        let path = ["groups", id, "action"];
        let mut request = Self::request("group_delete", Method::POST, &path, format!("group {id}"));
        request.version = Some(GROUP_SNAPSHOTS);
        request.body = Some(json!({"delete": {"delete-volumes": false}}));
        request.may_be_missing = true;
        self.transport.send(request).await.map(drop)
    }

    /// Lists the group snapshots of the project for which `is_wanted` is true.
    pub(crate) async fn group_snapshots(
        &self,
        is_wanted: impl Fn(&GroupSnapshotRecord) -> bool,
    ) -> Result<Vec<GroupSnapshotRecord>, CloudError> {
        let highest = self.transport.highest_version(Service::BlockStorage).await?;
        let version = highest.map_or(GROUP_SNAPSHOTS, |highest| highest.min(GROUP_SNAPSHOT_PAGES));
        self.list(Some(version), &[], |listed| Some(listed).filter(&is_wanted))
            .await
    }

    /// Gets a group snapshot; `None` when Cinder does not know it.
    pub(crate) async fn group_snapshot(&self, id: &str) -> Result<Option<GroupSnapshotRecord>, CloudError> {
        self.get(id, Some(GROUP_SNAPSHOTS), &[]).await
    }

    /// Requests a snapshot of a group and returns its id. The driver does not repeat the request once it may have
    /// reached Cinder.
    pub(crate) async fn create_group_snapshot(
        &self,
        group: &str,
        name: &str,
        description: &str,
    ) -> Result<String, CloudError> {
        let object = format!("group snapshot {name}");
        let mut request = Self::request("group_snapshot_create", Method::POST, &["group_snapshots"], object);
        request.creates = true;
        request.version = Some(GROUP_SNAPSHOTS);
        request.body = Some(json!({
            "group_snapshot": {"group_id": group, "name": name, "description": description}
        }));
        decode_id::<GroupSnapshotRecord>(self.transport.send(request).await?)
    }

    /// Requests the deletion of a group snapshot and all its members. Returns `false` when Cinder does not know it.
    pub(crate) async fn delete_group_snapshot(&self, id: &str) -> Result<bool, CloudError> {
        let operation = "group_snapshot_delete";
        let answer = self
            .remove::<GroupSnapshotRecord>(operation, id, Some(GROUP_SNAPSHOTS))
            .await?;
        Ok(!answer.missing())
    }

    /// Gets a volume with its group; `None` when Cinder does not know it.
    pub(crate) async fn grouped_volume(&self, id: &VolumeId) -> Result<Option<GroupedVolume>, CloudError> {
        self.get(id.as_str(), Some(GROUP_SNAPSHOTS), &[]).await
    }
}
