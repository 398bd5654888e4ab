//! Groups of volumes, their types, and snapshots of whole groups.

use std::collections::BTreeMap;

use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use super::{BlockStorage, Link, Volume, is_true, null_as_default};
use crate::error::CloudError;
use crate::ids::VolumeId;
use crate::service::{MicroVersion, Service};
use crate::transport::Answer;

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

#[derive(Deserialize)]
struct TypesBody {
    group_types: Vec<GroupType>,
    #[serde(default)]
    group_type_links: Vec<Link>,
}

#[derive(Deserialize)]
struct GroupBody {
    group: Group,
}

#[derive(Deserialize)]
struct GroupsBody {
    groups: Vec<Group>,
    #[serde(default)]
    group_links: Vec<Link>,
}

#[derive(Deserialize)]
struct SnapshotBody {
    group_snapshot: GroupSnapshotRecord,
}

#[derive(Deserialize)]
struct SnapshotsBody {
    group_snapshots: Vec<GroupSnapshotRecord>,
    #[serde(default)]
    group_snapshot_links: Vec<Link>,
}

#[derive(Deserialize)]
struct VolumeBody {
    volume: GroupedVolume,
}

/// One page of a list: its items, whether there are more, and the marker for them.
type Page<T> = (Vec<T>, bool, Option<String>);

impl BlockStorage<'_> {
    /// Whether this Cinder has snapshots of groups.
    pub(crate) async fn knows_groups(&self) -> Result<bool, CloudError> {
        let highest = self.transport.highest_version(Service::BlockStorage).await?;
        Ok(highest >= Some(GROUP_VOLUMES))
    }

    /// The types of groups that the project may use.
    pub(crate) async fn group_types(&self) -> Result<Vec<GroupType>, CloudError> {
        self.pages("group_type_list", &["group_types"], GROUP_SNAPSHOTS, |answer| {
            let body = answer.json::<TypesBody>()?;
            let last = body.group_types.last().map(|last| last.id.clone());
            Ok((body.group_types, has_next(&body.group_type_links), last))
        })
        .await
    }

    /// All groups of the project.
    pub(crate) async fn groups(&self) -> Result<Vec<Group>, CloudError> {
        self.pages("group_list", &["groups", "detail"], GROUP_SNAPSHOTS, |answer| {
            let body = answer.json::<GroupsBody>()?;
            let last = body.groups.last().map(|last| last.id.clone());
            Ok((body.groups, has_next(&body.group_links), last))
        })
        .await
    }

    /// A group with its volumes; `None`: Cinder does not know it.
    pub(crate) async fn group(&self, id: &str) -> Result<Option<Group>, CloudError> {
        let path = ["groups", id];
        let mut request = Self::request("group_get", Method::GET, &path, format!("group {id}"));
        request.version = Some(GROUP_VOLUMES);
        request.query.push(("list_volume", "true".to_owned()));
        request.may_be_missing = true;
        let answer = self.transport.send(request).await?;
        if answer.missing() {
            return Ok(None);
        }
        Ok(Some(answer.json::<GroupBody>()?.group))
    }

    /// Asks for a new group and returns its id. Never repeated once it may have reached Cinder.
    pub(crate) async fn create_group(&self, new: &NewGroup<'_>) -> Result<String, CloudError> {
        #[derive(Deserialize)]
        struct Made {
            group: MadeGroup,
        }
        #[derive(Deserialize)]
        struct MadeGroup {
            id: String,
        }
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
        Ok(self.transport.send(request).await?.json::<Made>()?.group.id)
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
        let path = ["group_snapshots", "detail"];
        self.pages("group_snapshot_list", &path, version, |answer| {
            let body = answer.json::<SnapshotsBody>()?;
            let last = body.group_snapshots.last().map(|last| last.id.clone());
            Ok((body.group_snapshots, has_next(&body.group_snapshot_links), last))
        })
        .await
    }

    /// A group snapshot; `None`: Cinder does not know it.
    pub(crate) async fn group_snapshot(&self, id: &str) -> Result<Option<GroupSnapshotRecord>, CloudError> {
        let path = ["group_snapshots", id];
        let object = format!("group snapshot {id}");
        let mut request = Self::request("group_snapshot_get", Method::GET, &path, object);
        request.version = Some(GROUP_SNAPSHOTS);
        request.may_be_missing = true;
        let answer = self.transport.send(request).await?;
        if answer.missing() {
            return Ok(None);
        }
        Ok(Some(answer.json::<SnapshotBody>()?.group_snapshot))
    }

    /// Asks for a snapshot of a group and returns its id. Never repeated once it may have reached Cinder.
    pub(crate) async fn create_group_snapshot(
        &self,
        group: &str,
        name: &str,
        description: &str,
    ) -> Result<String, CloudError> {
        #[derive(Deserialize)]
        struct Made {
            group_snapshot: MadeSnapshot,
        }
        #[derive(Deserialize)]
        struct MadeSnapshot {
            id: String,
        }
        let object = format!("group snapshot {name}");
        let mut request = Self::request("group_snapshot_create", Method::POST, &["group_snapshots"], object);
        request.makes = true;
        request.version = Some(GROUP_SNAPSHOTS);
        request.body = Some(json!({
            "group_snapshot": {"group_id": group, "name": name, "description": description}
        }));
        Ok(self.transport.send(request).await?.json::<Made>()?.group_snapshot.id)
    }

    /// Asks for the deletion of a group snapshot and all of its members. `false`: Cinder does not know it.
    pub(crate) async fn delete_group_snapshot(&self, id: &str) -> Result<bool, CloudError> {
        let path = ["group_snapshots", id];
        let object = format!("group snapshot {id}");
        let mut request = Self::request("group_snapshot_delete", Method::DELETE, &path, object);
        request.version = Some(GROUP_SNAPSHOTS);
        request.may_be_missing = true;
        Ok(!self.transport.send(request).await?.missing())
    }

    /// A volume with its group; `None`: Cinder does not know it.
    pub(crate) async fn grouped_volume(&self, id: &VolumeId) -> Result<Option<GroupedVolume>, CloudError> {
        let path = ["volumes", id.as_str()];
        let mut request = Self::request("volume_get", Method::GET, &path, format!("volume {id}"));
        request.version = Some(GROUP_SNAPSHOTS);
        request.may_be_missing = true;
        let answer = self.transport.send(request).await?;
        if answer.missing() {
            return Ok(None);
        }
        Ok(Some(answer.json::<VolumeBody>()?.volume))
    }

    /// All items of a list, page by page.
    async fn pages<T>(
        &self,
        operation: &'static str,
        path: &[&str],
        version: MicroVersion,
        read: impl Fn(Answer) -> Result<Page<T>, CloudError>,
    ) -> Result<Vec<T>, CloudError> {
        let mut items = Vec::new();
        let mut marker: Option<String> = None;
        loop {
            let mut request = Self::request(operation, Method::GET, path, path.join(" "));
            request.version = Some(version);
            request.query.extend(marker.clone().map(|marker| ("marker", marker)));
            let (page, more, last) = read(self.transport.send(request).await?)?;
            items.extend(page);
            // A service that ignores the marker would have us turn for ever.
            if !more || last.is_none() || last == marker {
                return Ok(items);
            }
            marker = last;
        }
    }
}

fn has_next(links: &[Link]) -> bool {
    links.iter().any(|link| link.rel == "next")
}
