// SPDX-License-Identifier: Apache-2.0
//! Groups of volumes, their types, and snapshots of whole groups.

use std::collections::BTreeMap;

use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use super::resource::{ListItem, Resource, id_of};
use super::{BlockStorage, Volume, is_true, null_as_default};
use crate::error::CloudError;
use crate::http::service::{MicroVersion, Service};
use crate::ids::VolumeId;

/// Groups, their snapshots, and in the answers about volumes and snapshots what they belong to.
pub(crate) const GROUP_SNAPSHOTS: MicroVersion = MicroVersion(3, 14);
/// A group names its volumes from here on.
const GROUP_VOLUMES: MicroVersion = MicroVersion(3, 25);
/// Lists of group snapshots have pages from here on.
const GROUP_SNAPSHOT_PAGES: MicroVersion = MicroVersion(3, 29);
/// Group spec: a snapshot of the group is of one moment.
const CONSISTENT: &str = "consistent_group_snapshot_enabled";

/// A type of groups. Its specs are shown to administrators only.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct GroupType {
    pub(crate) id: String,
    pub(crate) name: String,
    #[serde(default)]
    group_specs: Option<BTreeMap<String, Option<String>>>,
}

impl GroupType {
    /// Whether snapshots of such groups are of one moment; `None` where Cinder does not show it.
    pub(crate) fn is_consistent(&self) -> Option<bool> {
        let specs = self.group_specs.as_ref()?;
        Some(specs.get(CONSISTENT).and_then(Option::as_deref).is_some_and(is_true))
    }
}

/// A group of volumes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Group {
    pub(crate) id: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) name: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) description: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) status: String,
    /// The id of its type.
    #[serde(rename = "group_type", default, deserialize_with = "null_as_default")]
    pub(crate) type_id: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) created_at: String,
    /// Told of single groups only.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) volumes: Vec<VolumeId>,
}

/// What a new group shall be.
#[derive(Debug)]
pub(crate) struct NewGroup<'a> {
    pub(crate) name: &'a str,
    pub(crate) description: &'a str,
    pub(crate) group_type: &'a str,
    /// Ids or names.
    pub(crate) volume_types: Vec<String>,
    pub(crate) availability_zone: Option<&'a str>,
}

/// A snapshot of a group. Its members are snapshots that carry its name and its id.
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

/// A volume with the group that it is in.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct GroupedVolume {
    #[serde(flatten)]
    pub(crate) volume: Volume,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) group_id: String,
}

impl ListItem for GroupType {
    const LIST: &'static str = "group_type_list";
    const PATH: &'static [&'static str] = &["group_types"];
    const KEY: &'static str = "group_types";

    fn marker(&self) -> String {
        self.id.clone()
    }
}

impl Resource for Group {
    const GET: &'static str = "group_get";
    const COLLECTION: &'static str = "groups";
    const KEY: &'static str = "group";

    fn id(&self) -> &str {
        &self.id
    }
}

impl ListItem for Group {
    const LIST: &'static str = "group_list";
    const PATH: &'static [&'static str] = &["groups", "detail"];
    const KEY: &'static str = "groups";

    fn marker(&self) -> String {
        self.id.clone()
    }
}

impl Resource for GroupSnapshotRecord {
    const GET: &'static str = "group_snapshot_get";
    const COLLECTION: &'static str = "group_snapshots";
    const KEY: &'static str = "group_snapshot";

    fn id(&self) -> &str {
        &self.id
    }
}

impl ListItem for GroupSnapshotRecord {
    const LIST: &'static str = "group_snapshot_list";
    const PATH: &'static [&'static str] = &["group_snapshots", "detail"];
    const KEY: &'static str = "group_snapshots";

    fn marker(&self) -> String {
        self.id.clone()
    }
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
    /// Whether this Cinder has snapshots of groups.
    pub(crate) async fn knows_groups(&self) -> Result<bool, CloudError> {
        let highest = self.transport.highest_version(Service::BlockStorage).await?;
        Ok(highest >= Some(GROUP_VOLUMES))
    }

    /// The types of groups that the project may use.
    pub(crate) async fn group_types(&self) -> Result<Vec<GroupType>, CloudError> {
        self.list(Some(GROUP_SNAPSHOTS), &[], Some).await
    }

    /// All groups of the project.
    pub(crate) async fn groups(&self) -> Result<Vec<Group>, CloudError> {
        self.list(Some(GROUP_SNAPSHOTS), &[], Some).await
    }

    /// A group with its volumes; `None`: Cinder does not know it.
    pub(crate) async fn group(&self, id: &str) -> Result<Option<Group>, CloudError> {
        let with_volumes = [("list_volume", "true".to_owned())];
        self.get(id, Some(GROUP_VOLUMES), &with_volumes).await
    }

    /// Asks for a new group and returns its id. Never repeated once it may have reached Cinder.
    pub(crate) async fn create_group(&self, new: &NewGroup<'_>) -> Result<String, CloudError> {
        let object = format!("group {}", new.name);
        let mut request = Self::request("group_create", Method::POST, &["groups"], object);
        request.makes = true;
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
        id_of::<Group>(self.transport.send(request).await?)
    }

    /// Asks for volumes to be put into a group and taken out of it, and for another description.
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

    /// Asks for the deletion of an empty group. Cinder refuses it for one with volumes: they are never deleted with it.
    pub(crate) async fn delete_group(&self, id: &str) -> Result<(), CloudError> {
        let path = ["groups", id, "action"];
        let mut request = Self::request("group_delete", Method::POST, &path, format!("group {id}"));
        request.version = Some(GROUP_SNAPSHOTS);
        request.body = Some(json!({"delete": {"delete-volumes": false}}));
        request.may_be_missing = true;
        self.transport.send(request).await.map(drop)
    }

    /// All group snapshots of the project.
    pub(crate) async fn group_snapshots(&self) -> Result<Vec<GroupSnapshotRecord>, CloudError> {
        let highest = self.transport.highest_version(Service::BlockStorage).await?;
        let version = highest.map_or(GROUP_SNAPSHOTS, |highest| highest.min(GROUP_SNAPSHOT_PAGES));
        self.list(Some(version), &[], Some).await
    }

    /// A group snapshot; `None`: Cinder does not know it.
    pub(crate) async fn group_snapshot(&self, id: &str) -> Result<Option<GroupSnapshotRecord>, CloudError> {
        self.get(id, Some(GROUP_SNAPSHOTS), &[]).await
    }

    /// Asks for a snapshot of a group and returns its id. Never repeated once it may have reached Cinder.
    pub(crate) async fn create_group_snapshot(
        &self,
        group: &str,
        name: &str,
        description: &str,
    ) -> Result<String, CloudError> {
        let object = format!("group snapshot {name}");
        let mut request = Self::request("group_snapshot_create", Method::POST, &["group_snapshots"], object);
        request.makes = true;
        request.version = Some(GROUP_SNAPSHOTS);
        request.body = Some(json!({
            "group_snapshot": {"group_id": group, "name": name, "description": description}
        }));
        id_of::<GroupSnapshotRecord>(self.transport.send(request).await?)
    }

    /// Asks for the deletion of a group snapshot and all of its members. `false`: Cinder does not know it.
    pub(crate) async fn delete_group_snapshot(&self, id: &str) -> Result<bool, CloudError> {
        let operation = "group_snapshot_delete";
        let answer = self
            .remove::<GroupSnapshotRecord>(operation, id, Some(GROUP_SNAPSHOTS))
            .await?;
        Ok(!answer.missing())
    }

    /// A volume with its group; `None`: Cinder does not know it.
    pub(crate) async fn grouped_volume(&self, id: &VolumeId) -> Result<Option<GroupedVolume>, CloudError> {
        self.get(id.as_str(), Some(GROUP_SNAPSHOTS), &[]).await
    }
}
