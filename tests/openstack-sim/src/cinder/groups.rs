// SPDX-License-Identifier: Apache-2.0
//! Handlers for generic volume groups (3.13), their types (3.11) and their snapshots (3.14).

use serde::Deserialize;
use serde_json::{Value, json};

use super::listing::{Column, ListItem, Rules, is_true};
use super::{Context, view};
use crate::api::{Fault, Reply};
use crate::microversion::Version;
use crate::state::{Group, GroupSnapshot, GroupStatus, GroupType};
use crate::work;
use crate::world::{GroupChange, NewGroup, NewGroupSnapshot};

const GROUPS: Rules = Rules {
    name: "groups",
    no_marker: |marker| Fault::not_found(format!("Group {marker} could not be found.")),
    filters: &[("name", Version(3, 0))],
};

const SNAPSHOTS: Rules = Rules {
    name: "group_snapshots",
    no_marker: |marker| Fault::not_found(format!("GroupSnapshot {marker} could not be found.")),
    filters: &[
        ("name", Version(3, 29)),
        ("status", Version(3, 29)),
        ("group_id", Version(3, 29)),
    ],
};

const TYPES: Rules = Rules {
    name: "group_types",
    no_marker: |marker| Fault::not_found(format!("Group type {marker} could not be found.")),
    filters: &[("is_public", Version(3, 0)), ("name", Version(3, 0))],
};

/// A call on groups, their types or their snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum Call {
    List { detail: bool },
    Create,
    Get(String),
    Update(String),
    Delete(String),
    ResetStatus(String),
    OtherAction(String),
    ListTypes,
    GetType(String),
    ListSnapshots { detail: bool },
    CreateSnapshot,
    GetSnapshot(String),
    DeleteSnapshot(String),
    ResetSnapshot(String),
}

impl Call {
    pub(super) fn route(method: &str, path: &[&str], action: Option<&str>) -> Option<Self> {
        let own = |id: &&str| (*id).to_owned();
        Some(match (method, path) {
            ("GET", ["groups"]) => Self::List { detail: false },
            ("GET", ["groups", "detail"]) => Self::List { detail: true },
            ("POST", ["groups"]) => Self::Create,
            ("GET", ["groups", id]) => Self::Get(own(id)),
            ("PUT", ["groups", id]) => Self::Update(own(id)),
            ("POST", ["groups", id, "action"]) => match action {
                Some("delete") => Self::Delete(own(id)),
                Some("reset_status") => Self::ResetStatus(own(id)),
                _ => Self::OtherAction(own(id)),
            },
            ("GET", ["group_types"]) => Self::ListTypes,
            ("GET", ["group_types", id]) => Self::GetType(own(id)),
            ("GET", ["group_snapshots"]) => Self::ListSnapshots { detail: false },
            ("GET", ["group_snapshots", "detail"]) => Self::ListSnapshots { detail: true },
            ("POST", ["group_snapshots"]) => Self::CreateSnapshot,
            ("GET", ["group_snapshots", id]) => Self::GetSnapshot(own(id)),
            ("DELETE", ["group_snapshots", id]) => Self::DeleteSnapshot(own(id)),
            ("POST", ["group_snapshots", id, "action"]) if action == Some("reset_status") => {
                Self::ResetSnapshot(own(id))
            }
            _ => return None,
        })
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::List { detail: false } => "list_groups",
            Self::List { detail: true } => "list_groups_detail",
            Self::Create => "create_group",
            Self::Get(_) => "get_group",
            Self::Update(_) => "update_group",
            Self::Delete(_) => "delete_group",
            Self::ResetStatus(_) => "reset_group_status",
            Self::OtherAction(_) => "group_action",
            Self::ListTypes => "list_group_types",
            Self::GetType(_) => "get_group_type",
            Self::ListSnapshots { detail: false } => "list_group_snapshots",
            Self::ListSnapshots { detail: true } => "list_group_snapshots_detail",
            Self::CreateSnapshot => "create_group_snapshot",
            Self::GetSnapshot(_) => "get_group_snapshot",
            Self::DeleteSnapshot(_) => "delete_group_snapshot",
            Self::ResetSnapshot(_) => "reset_group_snapshot_status",
        }
    }

    pub(super) fn since(&self) -> Version {
        match self {
            Self::ListTypes | Self::GetType(_) => Version(3, 11),
            Self::ListSnapshots { .. } | Self::CreateSnapshot | Self::GetSnapshot(_) | Self::DeleteSnapshot(_) => {
                Version(3, 14)
            }
            Self::ResetSnapshot(_) => Version(3, 19),
            Self::ResetStatus(_) => Version(3, 20),
            _ => Version(3, 13),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Delete {
    #[serde(rename = "delete-volumes", default)]
    with_volumes: bool,
}

#[derive(Debug, Deserialize)]
struct Reset {
    status: GroupStatus,
}

impl Context<'_> {
    pub(super) fn on_groups(&self, call: &Call) -> Result<Reply, Fault> {
        match call {
            Call::List { detail } => self.list_groups(*detail),
            Call::Create => self.create_group(),
            Call::Get(id) => self.cloud.read(|world| {
                let group = self.group_view(world.group(id)?, || self.members(world, id));
                Ok(Reply::json(200, json!({"group": group})))
            }),
            Call::Update(id) => self.update_group(id),
            Call::Delete(id) => self.delete_group(id),
            Call::ResetStatus(id) => {
                self.cloud.read(|world| world.group(id).map(drop))?;
                let status = self.new_group_status("group:reset_status")?;
                self.cloud.change(|world| world.set_group_status(id, status));
                Ok(Reply::empty(202))
            }
            Call::OtherAction(id) => {
                self.cloud.read(|world| world.group(id).map(drop))?;
                Err(self.no_such_action())
            }
            Call::ListTypes => self.cloud.read(|world| {
                let view = |known: &GroupType| self.group_type_view(known);
                let mut body = self.list(&TYPES, world.rules.group_types.iter(), view)?;
                // Only this list names its links differently.
                if let Some(body) = body.as_object_mut()
                    && let Some(links) = body.remove("group_types_links")
                {
                    body.insert("group_type_links".to_owned(), links);
                }
                Ok(Reply::json(200, body))
            }),
            Call::GetType(id) => self.cloud.read(|world| {
                let view = self.group_type_view(world.group_type(id)?);
                Ok(Reply::json(200, json!({"group_type": view})))
            }),
            Call::ListSnapshots { detail } => self.cloud.read(|world| {
                let view = |snapshot: &GroupSnapshot| {
                    if *detail {
                        self.group_snapshot_view(snapshot)
                    } else {
                        json!({"id": snapshot.id, "name": snapshot.name})
                    }
                };
                Ok(Reply::json(
                    200,
                    self.list(&SNAPSHOTS, world.group_snapshots.values(), view)?,
                ))
            }),
            Call::CreateSnapshot => self.create_group_snapshot(),
            Call::GetSnapshot(id) => self.cloud.read(|world| {
                let view = self.group_snapshot_view(world.group_snapshot(id)?);
                Ok(Reply::json(200, json!({"group_snapshot": view})))
            }),
            Call::DeleteSnapshot(id) => {
                let members = self.cloud.change(|world| world.begin_delete_group_snapshot(id))?;
                work::delete_group_snapshot(self.cloud, id.clone(), members, self.request.work_fails.clone());
                Ok(Reply::empty(202))
            }
            Call::ResetSnapshot(id) => {
                self.cloud.read(|world| world.group_snapshot(id).map(drop))?;
                let status = self.new_group_status("group:reset_group_snapshot_status")?;
                self.cloud.change(|world| world.set_group_snapshot_status(id, status));
                Ok(Reply::empty(202))
            }
        }
    }

    fn new_group_status(&self, policy: &str) -> Result<GroupStatus, Fault> {
        if !self.token.admin {
            return Err(Fault::forbidden(policy));
        }
        let reset: Reset = self.request.object("reset_status")?;
        Ok(reset.status)
    }

    fn list_groups(&self, detail: bool) -> Result<Reply, Fault> {
        self.cloud.read(|world| {
            let view = |group: &Group| {
                if detail {
                    self.group_view(group, || self.members(world, &group.id))
                } else {
                    json!({"id": group.id, "name": group.name})
                }
            };
            Ok(Reply::json(200, self.list(&GROUPS, world.groups.values(), view)?))
        })
    }

    fn create_group(&self) -> Result<Reply, Fault> {
        let new: NewGroup = self.request.object("group")?;
        let group = self.cloud.change(|world| world.begin_group(new))?;
        work::create_group(self.cloud, group.id.clone(), self.request.work_fails.clone());
        Ok(Reply::json(202, json!({"group": {"id": group.id, "name": group.name}})))
    }

    fn update_group(&self, id: &str) -> Result<Reply, Fault> {
        let change: GroupChange = self.request.object("group")?;
        if self.cloud.change(|world| world.begin_group_change(id, &change))? {
            work::change_group(self.cloud, id.to_owned(), change, self.request.work_fails.clone());
        }
        Ok(Reply::empty(202))
    }

    fn delete_group(&self, id: &str) -> Result<Reply, Fault> {
        let delete: Delete = self.request.object("delete")?;
        let members = self
            .cloud
            .change(|world| world.begin_delete_group(id, delete.with_volumes))?;
        if let Some(members) = members {
            work::delete_group(self.cloud, id.to_owned(), members, self.request.work_fails.clone());
        }
        Ok(Reply::empty(202))
    }

    fn create_group_snapshot(&self) -> Result<Reply, Fault> {
        let new: NewGroupSnapshot = self.request.object("group_snapshot")?;
        let snapshot = self.cloud.change(|world| world.begin_group_snapshot(new))?;
        work::create_group_snapshot(self.cloud, snapshot.id.clone(), self.request.work_fails.clone());
        let view = json!({"id": snapshot.id, "name": snapshot.name, "group_type_id": snapshot.group_type});
        Ok(Reply::json(202, json!({"group_snapshot": view})))
    }

    fn members(&self, world: &crate::world::World, id: &str) -> Option<Vec<String>> {
        let lists_volumes = self.version >= Version(3, 25) && self.request.param("list_volume").is_some_and(is_true);
        lists_volumes.then(|| world.volumes_in_group(id).map(|volume| volume.id.clone()).collect())
    }

    fn group_view(&self, group: &Group, members: impl FnOnce() -> Option<Vec<String>>) -> Value {
        let mut view = json!({
            "id": group.id,
            "status": group.status.as_str(),
            "availability_zone": group.availability_zone,
            "created_at": view::time(group.created_at),
            "name": group.name,
            "description": group.description,
            "group_type": group.group_type,
            "volume_types": group.volume_types,
        });
        if self.version >= Version(3, 14) {
            view["group_snapshot_id"] = json!(group.group_snapshot_id);
            view["source_group_id"] = json!(group.source_group_id);
        }
        if let Some(members) = members() {
            view["volumes"] = json!(members);
        }
        if self.version >= Version(3, 38) {
            view["replication_status"] = json!("disabled");
        }
        if self.version >= Version(3, 58) && self.token.admin {
            view["project_id"] = json!(self.cloud.settings.identity.project_id);
        }
        view
    }

    fn group_snapshot_view(&self, snapshot: &GroupSnapshot) -> Value {
        let mut view = json!({
            "id": snapshot.id,
            "group_id": snapshot.group_id,
            "group_type_id": snapshot.group_type,
            "status": snapshot.status.as_str(),
            "created_at": view::time(snapshot.created_at),
            "name": snapshot.name,
            "description": snapshot.description,
        });
        if self.version >= Version(3, 58) && self.token.admin {
            view["project_id"] = json!(self.cloud.settings.identity.project_id);
        }
        view
    }

    /// Only administrators see the specs.
    fn group_type_view(&self, group_type: &GroupType) -> Value {
        let mut view = json!({
            "id": group_type.id,
            "name": group_type.name,
            "description": group_type.description,
            "is_public": group_type.is_public,
        });
        if self.token.admin {
            view["group_specs"] = json!(group_type.group_specs);
        }
        view
    }
}

impl ListItem for Group {
    fn id(&self) -> &str {
        &self.id
    }

    fn column(&self, name: &str) -> Option<Column> {
        Some(match name {
            "name" => Column::Text(self.name.clone()),
            "status" => Column::text(self.status.as_str()),
            "created_at" => Column::time(Some(self.created_at)),
            "updated_at" => Column::time(self.updated_at),
            _ => return None,
        })
    }
}

impl ListItem for GroupSnapshot {
    fn id(&self) -> &str {
        &self.id
    }

    fn column(&self, name: &str) -> Option<Column> {
        Some(match name {
            "name" => Column::Text(self.name.clone()),
            "status" => Column::text(self.status.as_str()),
            "group_id" => Column::text(&self.group_id),
            "created_at" => Column::time(Some(self.created_at)),
            "updated_at" => Column::time(self.updated_at),
            _ => return None,
        })
    }
}

impl ListItem for GroupType {
    const BY_ID: bool = false;

    fn id(&self) -> &str {
        &self.id
    }

    fn column(&self, name: &str) -> Option<Column> {
        Some(match name {
            "name" => Column::text(&self.name),
            "is_public" => Column::text(if self.is_public { "True" } else { "False" }),
            "created_at" | "updated_at" => Column::Time(None),
            _ => return None,
        })
    }
}
