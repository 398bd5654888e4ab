// SPDX-License-Identifier: Apache-2.0
//! Handlers for snapshots.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use super::listing::{Column, ListItem, Rules};
use super::{Context, view};
use crate::api::{Fault, Reply};
use crate::microversion::Version;
use crate::state::{Snapshot, SnapshotStatus};
use crate::work;
use crate::world::{NewSnapshot, World};

const LIST: Rules = Rules {
    name: "snapshots",
    no_marker: |marker| Fault::not_found(format!("Snapshot {marker} could not be found.")),
    filters: &[
        ("name", Version(3, 0)),
        ("status", Version(3, 0)),
        ("volume_id", Version(3, 0)),
        ("metadata", Version(3, 22)),
        ("availability_zone", Version(3, 31)),
        ("consumes_quota", Version(3, 65)),
    ],
};

/// The microversion from which snapshots of attached volumes do not need `force`.
const IN_USE: Version = Version(3, 66);

/// A call on snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum Call {
    List { detail: bool },
    Create,
    Get(String),
    Update(String),
    Delete(String),
    ListMetadata(String),
    MergeMetadata(String),
    ReplaceMetadata(String),
    DeleteMetadata(String, String),
    ResetStatus(String),
    OtherAction(String),
}

impl Call {
    pub(super) fn route(method: &str, path: &[&str], action: Option<&str>) -> Option<Self> {
        let own = |id: &&str| (*id).to_owned();
        Some(match (method, path) {
            ("GET", []) => Self::List { detail: false },
            ("GET", ["detail"]) => Self::List { detail: true },
            ("POST", []) => Self::Create,
            ("GET", [id]) => Self::Get(own(id)),
            ("PUT", [id]) => Self::Update(own(id)),
            ("DELETE", [id]) => Self::Delete(own(id)),
            ("GET", [id, "metadata"]) => Self::ListMetadata(own(id)),
            ("POST", [id, "metadata"]) => Self::MergeMetadata(own(id)),
            ("PUT", [id, "metadata"]) => Self::ReplaceMetadata(own(id)),
            ("DELETE", [id, "metadata", key]) => Self::DeleteMetadata(own(id), own(key)),
            ("POST", [id, "action"]) if action == Some("os-reset_status") => Self::ResetStatus(own(id)),
            ("POST", [id, "action"]) => Self::OtherAction(own(id)),
            _ => return None,
        })
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::List { detail: false } => "list_snapshots",
            Self::List { detail: true } => "list_snapshots_detail",
            Self::Create => "create_snapshot",
            Self::Get(_) => "get_snapshot",
            Self::Update(_) => "update_snapshot",
            Self::Delete(_) => "delete_snapshot",
            Self::ListMetadata(_) => "list_snapshot_metadata",
            Self::MergeMetadata(_) => "merge_snapshot_metadata",
            Self::ReplaceMetadata(_) => "replace_snapshot_metadata",
            Self::DeleteMetadata(..) => "delete_snapshot_metadata",
            Self::ResetStatus(_) => "reset_snapshot_status",
            Self::OtherAction(_) => "snapshot_action",
        }
    }
}

#[derive(Debug, Deserialize)]
struct Update {
    name: Option<String>,
    description: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Reset {
    status: SnapshotStatus,
}

impl Context<'_> {
    pub(super) fn on_snapshots(&self, call: &Call) -> Result<Reply, Fault> {
        match call {
            Call::List { detail } => self.list_snapshots(*detail),
            Call::Create => self.create_snapshot(),
            Call::Get(id) => self.get_snapshot(id),
            Call::Update(id) => self.update_snapshot(id),
            Call::Delete(id) => {
                self.cloud.change(|world| world.begin_delete_snapshot(id))?;
                let (request_id, doom) = (self.request.id.clone(), self.request.work_fails.clone());
                work::delete_snapshot(self.cloud, id.clone(), request_id, doom);
                Ok(Reply::empty(202))
            }
            Call::ListMetadata(id) => self.snapshot_metadata(id),
            Call::MergeMetadata(id) => self.write_snapshot_metadata(id, false),
            Call::ReplaceMetadata(id) => self.write_snapshot_metadata(id, true),
            Call::DeleteMetadata(id, key) => {
                let removed = self.change_snapshot(id, |snapshot| snapshot.metadata.remove(key))?;
                removed
                    .map(|_| Reply::empty(200))
                    .ok_or_else(|| Fault::not_found(format!("Snapshot {id} has no metadata with key {key}.")))
            }
            Call::ResetStatus(id) => self.reset_snapshot(id),
            Call::OtherAction(id) => {
                self.cloud.read(|world| world.snapshot(id).map(drop))?;
                Err(self.no_such_action())
            }
        }
    }

    fn list_snapshots(&self, detail: bool) -> Result<Reply, Fault> {
        let listed = self.cloud.read(|world| {
            let view = |snapshot: &Snapshot| view::snapshot(self, snapshot, detail);
            self.list(&LIST, world.snapshots.values(), view)
        });
        listed.map(|body| Reply::json(200, body))
    }

    fn create_snapshot(&self) -> Result<Reply, Fault> {
        let new: NewSnapshot = self.request.object("snapshot")?;
        let free = self.version >= IN_USE;
        if free && new.force == Some(false) {
            return Err(Fault::bad_request(
                "Since microversion 3.66 the 'force' flag is invalid for this request.  For backward compatability, \
                 however, when the 'force' flag is passed with a value evaluating to True, it is silently ignored.",
            ));
        }
        let in_use = free || new.force == Some(true);
        let snapshot = self.cloud.change(|world| world.begin_snapshot(new, in_use))?;
        let (request_id, doom) = (self.request.id.clone(), self.request.work_fails.clone());
        work::create_snapshot(self.cloud, snapshot.clone(), request_id, doom);
        Ok(Reply::json(
            202,
            json!({"snapshot": view::snapshot(self, &snapshot, true)}),
        ))
    }

    fn get_snapshot(&self, id: &str) -> Result<Reply, Fault> {
        self.cloud.read(|world| {
            let snapshot = view::snapshot(self, world.snapshot(id)?, true);
            Ok(Reply::json(200, json!({"snapshot": snapshot})))
        })
    }

    fn update_snapshot(&self, id: &str) -> Result<Reply, Fault> {
        let update: Update = self.request.object("snapshot")?;
        self.change_snapshot(id, |snapshot| {
            snapshot.name = update.name.or(snapshot.name.take());
            snapshot.description = update.description.or(snapshot.description.take());
        })?;
        self.get_snapshot(id)
    }

    fn snapshot_metadata(&self, id: &str) -> Result<Reply, Fault> {
        let metadata = self
            .cloud
            .read(|world: &World| world.snapshot(id).map(|known| known.metadata.clone()))?;
        Ok(Reply::json(200, json!({"metadata": metadata})))
    }

    fn write_snapshot_metadata(&self, id: &str, replace: bool) -> Result<Reply, Fault> {
        let metadata: BTreeMap<String, String> = self.request.object("metadata")?;
        self.change_snapshot(id, |snapshot| {
            if replace {
                snapshot.metadata = metadata;
            } else {
                snapshot.metadata.extend(metadata);
            }
        })?;
        self.snapshot_metadata(id)
    }

    fn reset_snapshot(&self, id: &str) -> Result<Reply, Fault> {
        self.cloud.read(|world| world.snapshot(id).map(drop))?;
        if !self.token.admin {
            return Err(Fault::forbidden("volume_extension:snapshot_admin_actions:reset_status"));
        }
        let reset: Reset = self.request.object("os-reset_status")?;
        self.cloud.change(|world| world.set_snapshot_status(id, reset.status));
        Ok(Reply::empty(202))
    }

    fn change_snapshot<T>(&self, id: &str, change: impl FnOnce(&mut Snapshot) -> T) -> Result<T, Fault> {
        self.cloud.change(|world| {
            world.snapshot(id)?;
            world
                .snapshots
                .get_mut(id)
                .map(change)
                .ok_or_else(|| Fault::not_found(format!("Snapshot {id} could not be found.")))
        })
    }
}

impl ListItem for Snapshot {
    fn id(&self) -> &str {
        &self.id
    }

    fn column(&self, name: &str) -> Option<Column> {
        Some(match name {
            "name" | "display_name" => Column::Text(self.name.clone()),
            "status" => Column::text(self.status.as_str()),
            "volume_id" => Column::text(&self.volume_id),
            "size" | "volume_size" => Column::Number(self.size),
            "consumes_quota" => Column::text("true"),
            "created_at" => Column::time(Some(self.created_at)),
            "updated_at" => Column::time(self.updated_at),
            _ => return None,
        })
    }

    fn metadata(&self) -> Option<&BTreeMap<String, String>> {
        Some(&self.metadata)
    }
}
