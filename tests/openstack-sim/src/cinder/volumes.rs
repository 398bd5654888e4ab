// SPDX-License-Identifier: Apache-2.0
//! Handlers for volumes.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::listing::{Column, ListItem, Rules, is_true};
use super::{Context, view};
use crate::api::{Fault, Reply};
use crate::microversion::Version;
use crate::state::Volume;
use crate::work;
use crate::world::NewVolume;

/// Filters of Cinder's default `resource_filters.json`, with the microversion of each.
const LIST: Rules = Rules {
    name: "volumes",
    no_marker: |marker| Fault::not_found(format!("Volume {marker} could not be found.")),
    filters: &[
        ("name", Version(3, 0)),
        ("status", Version(3, 0)),
        ("metadata", Version(3, 0)),
        ("bootable", Version(3, 0)),
        ("migration_status", Version(3, 0)),
        ("availability_zone", Version(3, 0)),
        ("group_id", Version(3, 10)),
        ("size", Version(3, 0)),
        ("created_at", Version(3, 60)),
        ("updated_at", Version(3, 60)),
        ("consumes_quota", Version(3, 65)),
    ],
};

/// Allowed keys of a create body since 3.53; before, unknown keys are ignored.
const CREATE_KEYS: [&str; 16] = [
    "name",
    "description",
    "display_name",
    "display_description",
    "volume_type",
    "metadata",
    "snapshot_id",
    "source_volid",
    "consistencygroup_id",
    "size",
    "availability_zone",
    "multiattach",
    "image_id",
    "imageRef",
    "group_id",
    "backup_id",
];

/// Key of the hints in a create body, next to the volume.
const HINTS: &str = "OS-SCH-HNT:scheduler_hints";

#[derive(Debug, Deserialize)]
struct Update {
    name: Option<String>,
    description: Option<String>,
    metadata: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
struct Extend {
    new_size: u64,
}

impl Context<'_> {
    pub(super) fn list_volumes(&self, detail: bool) -> Result<Reply, Fault> {
        self.cloud.read(|world| {
            let view = |volume: &Volume| {
                if detail {
                    view::volume(self, world, volume)
                } else {
                    view::volume_summary(self, volume)
                }
            };
            Ok(Reply::json(200, self.list(&LIST, world.volumes.values(), view)?))
        })
    }

    pub(super) fn create_volume(&self) -> Result<Reply, Fault> {
        let mut body: Map<String, Value> = self.request.object("volume")?;
        if self.version >= Version(3, 53)
            && let Some(key) = body.keys().find(|key| !CREATE_KEYS.contains(&key.as_str()))
        {
            return Err(Fault::bad_request(format!(
                "Invalid input for field/attribute volume. Additional properties are not allowed ('{key}' was unexpected)"
            )));
        }
        for (key, since) in [("group_id", Version(3, 13)), ("backup_id", Version(3, 47))] {
            if self.version < since {
                body.remove(key);
            }
        }
        if body.get("multiattach").is_some_and(|value| *value == json!(true)) {
            return Err(Fault::bad_request(
                "multiattach parameter has been removed. The default behavior is to use multiattach enabled volume types. \
                 Contact your administrator to create a multiattach enabled volume type and use it to create multiattach \
                 volumes.",
            ));
        }
        let mut new: NewVolume = serde_json::from_value(Value::Object(body))
            .map_err(|error| Fault::bad_request(format!("Invalid input for field/attribute volume. {error}")))?;
        new.scheduler_hints = self.scheduler_hints()?;
        let volume = self.cloud.change(|world| world.begin_create(new))?;
        work::create_volume(
            self.cloud,
            volume.clone(),
            self.request.id.clone(),
            self.request.work_fails.clone(),
        );
        let body = self.cloud.read(|world| view::volume(self, world, &volume));
        Ok(Reply::json(202, json!({"volume": body})))
    }

    /// Returns the hints `same_host` and `different_host`: one or more volume ids each. Names are not accepted.
    fn scheduler_hints(&self) -> Result<BTreeMap<String, Vec<String>>, Fault> {
        let Some(hints) = self.request.optional_object::<Map<String, Value>>(HINTS)? else {
            return Ok(BTreeMap::new());
        };
        let mut known = BTreeMap::new();
        for key in ["same_host", "different_host"] {
            let Some(value) = hints.get(key) else { continue };
            let ids: Option<Vec<String>> = match value {
                Value::Array(ids) => ids.iter().map(|id| id.as_str().map(str::to_owned)).collect(),
                one => one.as_str().map(|id| vec![id.to_owned()]),
            };
            let is_valid = |ids: &Vec<String>| {
                let different: BTreeSet<&String> = ids.iter().collect();
                different.len() == ids.len() && ids.iter().all(|id| uuid::Uuid::parse_str(id).is_ok())
            };
            let Some(ids) = ids.filter(is_valid) else {
                return Err(Fault::bad_request(format!(
                    "Invalid input for field/attribute {key}. Value: {value}. {value} is not valid under any of the given schemas"
                )));
            };
            known.insert(key.to_owned(), ids);
        }
        Ok(known)
    }

    pub(super) fn get_volume(&self, id: &str) -> Result<Reply, Fault> {
        self.cloud.read(|world| {
            let volume = world.volume(id)?;
            Ok(Reply::json(200, json!({"volume": view::volume(self, world, volume)})))
        })
    }

    pub(super) fn update_volume(&self, id: &str) -> Result<Reply, Fault> {
        let update: Update = self.request.object("volume")?;
        self.cloud.change(|world| {
            let Some(volume) = world.volumes.get_mut(id) else {
                return world.volume(id).map(drop);
            };
            volume.name = update.name.or(volume.name.take());
            volume.description = update.description.or(volume.description.take());
            if let Some(metadata) = update.metadata {
                volume.metadata = metadata;
            }
            Ok(())
        })?;
        self.get_volume(id)
    }

    pub(super) fn delete_volume(&self, id: &str) -> Result<Reply, Fault> {
        let cascade = self.request.param("cascade").is_some_and(is_true);
        let force = self.version >= Version(3, 23) && self.request.param("force").is_some_and(is_true);
        if force && !self.token.admin {
            self.cloud.read(|world| world.volume(id).map(drop))?;
            return Err(Fault::forbidden("volume:force_delete"));
        }
        if self.cloud.change(|world| world.begin_delete(id, cascade, force))? {
            work::delete_volume(
                self.cloud,
                id.to_owned(),
                self.request.id.clone(),
                self.request.work_fails.clone(),
            );
        }
        Ok(Reply::empty(202))
    }

    pub(super) fn extend_volume(&self, id: &str) -> Result<Reply, Fault> {
        let extend: Extend = self.request.object("os-extend")?;
        let in_use = self.version >= Version(3, 42);
        self.cloud
            .change(|world| world.begin_extend(id, extend.new_size, in_use))?;
        let (request_id, doom) = (self.request.id.clone(), self.request.work_fails.clone());
        work::extend_volume(self.cloud, id.to_owned(), extend.new_size, request_id, doom);
        Ok(Reply::empty(202))
    }

    pub(super) fn other_action(&self, id: &str) -> Result<Reply, Fault> {
        self.cloud.read(|world| world.volume(id).map(drop))?;
        Err(self.no_such_action())
    }

    /// Returns the error of every resource for an unknown action.
    pub(super) fn no_such_action(&self) -> Fault {
        match self.request.action() {
            Some(action) => Fault::bad_request(format!(
                "There is no such action: {action}. Verify the request body and Content-Type header and try again."
            )),
            None => Fault::bad_request("Malformed request body"),
        }
    }

    pub(super) fn list_metadata(&self, id: &str) -> Result<Reply, Fault> {
        self.cloud
            .read(|world| Ok(Reply::json(200, json!({"metadata": world.volume(id)?.metadata}))))
    }

    pub(super) fn write_metadata(&self, id: &str, replace: bool) -> Result<Reply, Fault> {
        let metadata: BTreeMap<String, String> = self.request.object("metadata")?;
        self.cloud.change(|world| {
            let Some(volume) = world.volumes.get_mut(id) else {
                return world.volume(id).map(drop);
            };
            if replace {
                volume.metadata = metadata;
            } else {
                volume.metadata.extend(metadata);
            }
            Ok(())
        })?;
        self.list_metadata(id)
    }

    pub(super) fn delete_metadata(&self, id: &str, key: &str) -> Result<Reply, Fault> {
        self.cloud.change(|world| {
            let Some(volume) = world.volumes.get_mut(id) else {
                return world.volume(id).map(drop);
            };
            volume
                .metadata
                .remove(key)
                .map(drop)
                .ok_or_else(|| Fault::not_found(format!("Volume {id} has no metadata with key {key}.")))
        })?;
        Ok(Reply::empty(200))
    }
}

impl ListItem for Volume {
    fn id(&self) -> &str {
        &self.id
    }

    fn column(&self, name: &str) -> Option<Column> {
        Some(match name {
            "name" | "display_name" => Column::Text(self.name.clone()),
            "status" => Column::text(self.status.as_str()),
            "availability_zone" => Column::text(&self.availability_zone),
            "size" => Column::Number(self.size),
            "bootable" => Column::text("false"),
            "consumes_quota" => Column::text("true"),
            "group_id" => Column::Text(self.group_id.clone()),
            "migration_status" => Column::Text(self.migration_status.clone()),
            "created_at" => Column::time(Some(self.created_at)),
            "updated_at" => Column::time(self.updated_at),
            _ => return None,
        })
    }

    fn metadata(&self) -> Option<&BTreeMap<String, String>> {
        Some(&self.metadata)
    }
}
