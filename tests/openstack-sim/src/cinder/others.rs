//! Types, zones, limits and messages.

use serde_json::{Value, json};

use super::{Context, view};
use crate::api::{Fault, Reply};
use crate::config::VolumeType;
use crate::paging::Page;
use crate::state::UserMessage;

impl Context<'_> {
    pub(super) fn list_types(&self) -> Reply {
        let types: Vec<Value> = self
            .cloud
            .read(|world| world.rules.volume_types.iter().map(type_view).collect());
        Reply::json(200, json!({"volume_types": types}))
    }

    pub(super) fn get_type(&self, id: &str) -> Result<Reply, Fault> {
        self.cloud.read(|world| {
            let wanted = if id == "default" { None } else { Some(id) };
            Ok(Reply::json(
                200,
                json!({"volume_type": type_view(world.volume_type(wanted)?)}),
            ))
        })
    }

    pub(super) fn list_zones(&self) -> Reply {
        let zones: Vec<Value> = self.cloud.read(|world| {
            let zones = world.rules.zones.iter();
            zones
                .map(|name| json!({"zoneName": name, "zoneState": {"available": true}}))
                .collect()
        });
        Reply::json(200, json!({"availabilityZoneInfo": zones}))
    }

    pub(super) fn limits(&self) -> Reply {
        self.cloud.read(|world| {
            let quota = world.rules.quota;
            Reply::json(
                200,
                json!({"limits": {"rate": [], "absolute": {
                    "maxTotalVolumes": quota.volumes,
                    "maxTotalVolumeGigabytes": quota.gigabytes,
                    "maxTotalSnapshots": quota.snapshots,
                    "maxTotalBackups": 0,
                    "maxTotalBackupGigabytes": 0,
                    "totalVolumesUsed": world.volumes.len(),
                    "totalGigabytesUsed": world.gigabytes_used(),
                    "totalSnapshotsUsed": world.snapshots.len(),
                    "totalBackupsUsed": 0,
                    "totalBackupGigabytesUsed": 0,
                }}}),
            )
        })
    }

    pub(super) fn quota(&self) -> Reply {
        let usage = self.request.param("usage").is_some_and(super::volumes::is_true);
        self.cloud.read(|world| {
            let quota = world.rules.quota;
            let entry = |limit: i64, used: u64| {
                if usage {
                    json!({"limit": limit, "in_use": used, "reserved": 0})
                } else {
                    json!(limit)
                }
            };
            Reply::json(
                200,
                json!({"quota_set": {
                    "id": self.cloud.settings.identity.project_id,
                    "volumes": entry(quota.volumes, world.volumes.len() as u64),
                    "gigabytes": entry(quota.gigabytes, world.gigabytes_used()),
                    "snapshots": entry(quota.snapshots, world.snapshots.len() as u64),
                    "per_volume_gigabytes": entry(quota.per_volume_gigabytes, 0),
                }}),
            )
        })
    }

    pub(super) fn list_messages(&self) -> Result<Reply, Fault> {
        let page = Page::of(self.request, self.cloud.settings.page_limit)?;
        self.cloud.read(|world| {
            let wanted = self.request.param("resource_uuid");
            let found: Vec<&UserMessage> = world
                .messages
                .iter()
                .rev()
                .filter(|message| wanted.is_none_or(|volume| message.volume_id == volume))
                .collect();
            let found = page
                .cut(&found, |message| message.id.as_str())
                .map_err(|marker| no_message(&marker))?;
            let messages: Vec<Value> = found.iter().map(|message| message_view(message)).collect();
            Ok(Reply::json(200, json!({"messages": messages})))
        })
    }

    pub(super) fn get_message(&self, id: &str) -> Result<Reply, Fault> {
        self.cloud.read(|world| {
            let message = world
                .messages
                .iter()
                .find(|message| message.id == id)
                .ok_or_else(|| no_message(id))?;
            Ok(Reply::json(200, json!({"message": message_view(message)})))
        })
    }
}

fn no_message(id: &str) -> Fault {
    Fault::not_found(format!("Message {id} could not be found."))
}

fn message_view(message: &UserMessage) -> Value {
    json!({
        "id": message.id,
        "event_id": message.event_id,
        "user_message": message.text,
        "message_level": "ERROR",
        "created_at": view::time(message.created_at),
        "guaranteed_until": view::time(message.created_at),
        "request_id": message.request_id,
        "resource_type": "VOLUME",
        "resource_uuid": message.volume_id,
        "links": [],
    })
}

fn type_view(volume_type: &VolumeType) -> Value {
    let extra_specs = if volume_type.multiattach {
        json!({"multiattach": "<is> True"})
    } else {
        json!({})
    };
    json!({
        "id": volume_type.id,
        "name": volume_type.name,
        "is_public": true,
        "extra_specs": extra_specs,
        "description": null,
        "os-volume-type-access:is_public": true,
        "qos_specs_id": null,
    })
}
