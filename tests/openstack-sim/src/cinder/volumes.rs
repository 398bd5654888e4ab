//! Calls on volumes.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Context;
use super::view;
use crate::api::{Fault, Reply};
use crate::microversion::Version;
use crate::paging::Page;
use crate::state::{Volume, VolumeStatus};
use crate::work;
use crate::world::NewVolume;

/// The filters of Cinder's own `resource_filters.json`, each with the microversion that brought it.
const FILTERS: [(&str, Version); 11] = [
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
];

/// The keys of a create body since 3.53; before, others are passed over.
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

#[derive(Debug, Deserialize)]
struct Reset {
    status: Option<String>,
}

impl Context<'_> {
    pub(super) fn list_volumes(&self, detail: bool) -> Result<Reply, Fault> {
        let page = Page::of(self.request, self.cloud.settings.page_limit)?;
        let filters = self.filters()?;
        self.cloud.read(|world| {
            let mut found: Vec<&Volume> = world
                .volumes
                .values()
                .filter(|volume| filters.iter().all(|filter| matches(volume, filter)))
                .collect();
            self.sort(&mut found)?;
            let count = found.len();
            let found = page
                .cut(&found, |volume| volume.id.as_str())
                .map_err(|marker| Fault::not_found(format!("Volume {marker} could not be found.")))?;
            let volumes: Vec<Value> = found
                .iter()
                .map(|volume| {
                    if detail {
                        view::volume(self, world, volume)
                    } else {
                        view::volume_summary(self, volume)
                    }
                })
                .collect();
            let mut body = json!({"volumes": volumes});
            let last = found.last().map(|volume| volume.id.as_str());
            if let Some(links) = page.links(self.request, &self.cloud.settings.base_url, found.len(), last) {
                body["volumes_links"] = links;
            }
            if self.version >= Version(3, 45) && self.request.param("with_count").is_some_and(is_true) {
                body["count"] = json!(count);
            }
            Ok(Reply::json(200, body))
        })
    }

    /// The filters of the request. Unknown ones are passed over before 3.31 and refused since.
    fn filters(&self) -> Result<Vec<(String, String)>, Fault> {
        let generic = self.version >= Version(3, 31);
        let like = self.version >= Version(3, 34) && self.cloud.settings.like_filters;
        let known = |key: &str| {
            let key = if like {
                key.strip_suffix('~').unwrap_or(key)
            } else {
                key
            };
            FILTERS
                .iter()
                .any(|(name, since)| *name == key && (generic || self.version >= *since))
        };
        let paging = [
            "limit",
            "marker",
            "offset",
            "sort",
            "sort_key",
            "sort_dir",
            "with_count",
        ];
        let given = self
            .request
            .query
            .iter()
            .filter(|(key, _)| !paging.contains(&key.as_str()));
        let (good, bad): (Vec<_>, Vec<_>) = given.cloned().partition(|(key, _)| known(key));
        let bad: Vec<_> = bad
            .into_iter()
            .map(|(key, _)| key)
            .filter(|key| key != "all_tenants")
            .collect();
        if generic && !bad.is_empty() && !self.token.admin {
            return Err(Fault::bad_request(format!(
                "Invalid filters {} are found in query options.",
                bad.join(",")
            )));
        }
        Ok(good)
    }

    /// By `sort=key:dir,…` or `sort_key` and `sort_dir`; the newest first otherwise.
    fn sort(&self, volumes: &mut [&Volume]) -> Result<(), Fault> {
        let keys: Vec<(String, bool)> = if let Some(sort) = self.request.param("sort") {
            sort.split(',')
                .map(|part| part.split_once(':').unwrap_or((part, "desc")))
                .map(|(key, direction)| (key.to_owned(), direction == "asc"))
                .collect()
        } else {
            let key = self.request.param("sort_key").unwrap_or("created_at");
            vec![(key.to_owned(), self.request.param("sort_dir") == Some("asc"))]
        };
        if let Some((key, _)) = keys.iter().find(|(key, _)| sort_value_is_unknown(key)) {
            return Err(Fault::bad_request(format!(
                "Invalid input received: Sort key is invalid: {key}"
            )));
        }
        volumes.sort_by(|left, right| {
            let mut order = std::cmp::Ordering::Equal;
            for (key, ascending) in &keys {
                let by_key = compare(key, left, right);
                order = order.then(if *ascending { by_key } else { by_key.reverse() });
            }
            order.then_with(|| right.id.cmp(&left.id))
        });
        Ok(())
    }

    pub(super) fn create_volume(&self) -> Result<Reply, Fault> {
        let body: Map<String, Value> = self.request.object("volume")?;
        if self.version >= Version(3, 53)
            && let Some(key) = body.keys().find(|key| !CREATE_KEYS.contains(&key.as_str()))
        {
            return Err(Fault::bad_request(format!(
                "Invalid input for field/attribute volume. Additional properties are not allowed ('{key}' was unexpected)"
            )));
        }
        if body.get("backup_id").is_some_and(|id| !id.is_null()) && self.version >= Version(3, 47) {
            let id = body["backup_id"].as_str().unwrap_or_default();
            return Err(Fault::not_found(format!("Backup {id} could not be found.")));
        }
        if body.get("multiattach").is_some_and(|value| *value == json!(true)) {
            return Err(Fault::bad_request(
                "multiattach parameter has been removed. The default behavior is to use multiattach enabled volume types. \
                 Contact your administrator to create a multiattach enabled volume type and use it to create multiattach \
                 volumes.",
            ));
        }
        let new: NewVolume = serde_json::from_value(Value::Object(body))
            .map_err(|error| Fault::bad_request(format!("Invalid input for field/attribute volume. {error}")))?;
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
        if self.cloud.change(|world| world.begin_delete(id, cascade))? {
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

    pub(super) fn reset_status(&self, id: &str) -> Result<Reply, Fault> {
        self.cloud.read(|world| world.volume(id).map(drop))?;
        if !self.token.admin {
            return Err(Fault::new(
                403,
                "Policy doesn't allow volume_extension:volume_admin_actions:reset_status to be performed.",
            ));
        }
        let reset: Reset = self.request.object("os-reset_status")?;
        let status = reset.status.as_deref().map(|name| {
            VolumeStatus::from_name(name).ok_or_else(|| {
                Fault::bad_request(format!("Invalid input for field/attribute status. Value: {name}. '{name}' is not one of the states of a volume"))
            })
        });
        if let Some(status) = status.transpose()? {
            self.cloud.change(|world| world.set_status(id, status));
        }
        Ok(Reply::empty(202))
    }

    pub(super) fn other_action(&self, id: &str) -> Result<Reply, Fault> {
        self.cloud.read(|world| world.volume(id).map(drop))?;
        let action = self
            .request
            .action()
            .ok_or_else(|| Fault::bad_request("Malformed request body"))?;
        Err(Fault::bad_request(format!(
            "There is no such action: {action}. Verify the request body and Content-Type header and try again."
        )))
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

pub(super) fn is_true(text: &str) -> bool {
    matches!(
        text.to_ascii_lowercase().as_str(),
        "1" | "t" | "true" | "on" | "y" | "yes"
    )
}

fn matches(volume: &Volume, (key, value): &(String, String)) -> bool {
    if let Some(key) = key.strip_suffix('~') {
        return filter_value(volume, key).is_some_and(|actual| actual.contains(value.as_str()));
    }
    if key == "metadata" {
        // A Python dictionary, which is JSON but for its quotes.
        let wanted: Option<BTreeMap<String, String>> = serde_json::from_str(&value.replace('\'', "\"")).ok();
        return wanted.is_some_and(|wanted| {
            wanted
                .iter()
                .all(|(key, value)| volume.metadata.get(key) == Some(value))
        });
    }
    filter_value(volume, key).is_some_and(|actual| actual == *value)
}

fn filter_value(volume: &Volume, key: &str) -> Option<String> {
    match key {
        "name" => volume.name.clone(),
        "status" => Some(volume.status.to_string()),
        "availability_zone" => Some(volume.availability_zone.clone()),
        "size" => Some(volume.size.to_string()),
        "bootable" => Some("false".to_owned()),
        "consumes_quota" => Some("true".to_owned()),
        _ => None,
    }
}

fn sort_value_is_unknown(key: &str) -> bool {
    !["created_at", "updated_at", "id", "name", "size", "status"].contains(&key)
}

fn compare(key: &str, left: &Volume, right: &Volume) -> std::cmp::Ordering {
    match key {
        "updated_at" => left.updated_at.cmp(&right.updated_at),
        "id" => left.id.cmp(&right.id),
        "name" => left.name.cmp(&right.name),
        "size" => left.size.cmp(&right.size),
        "status" => left.status.as_str().cmp(right.status.as_str()),
        _ => left.created_at.cmp(&right.created_at),
    }
}
