// SPDX-License-Identifier: Apache-2.0
//! Handlers for backups.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::listing::{Column, ListItem, Rules};
use super::{Context, view};
use crate::api::{Fault, Reply};
use crate::microversion::Version;
use crate::state::{Backup, BackupStatus};
use crate::work;
use crate::world::{NewBackup, NewVolume};

const LIST: Rules = Rules {
    name: "backups",
    no_marker: |marker| Fault::not_found(format!("Backup {marker} could not be found.")),
    filters: &[
        ("name", Version(3, 0)),
        ("status", Version(3, 0)),
        ("volume_id", Version(3, 0)),
    ],
};

/// A call on backups.
#[derive(Debug, Clone, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum Call {
    List { detail: bool },
    Create,
    Get(String),
    Update(String),
    Delete(String),
    Restore(String),
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
            ("POST", [id, "restore"]) => Self::Restore(own(id)),
            ("POST", [id, "action"]) if action == Some("os-reset_status") => Self::ResetStatus(own(id)),
            ("POST", [id, "action"]) => Self::OtherAction(own(id)),
            _ => return None,
        })
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::List { detail: false } => "list_backups",
            Self::List { detail: true } => "list_backups_detail",
            Self::Create => "create_backup",
            Self::Get(_) => "get_backup",
            Self::Update(_) => "update_backup",
            Self::Delete(_) => "delete_backup",
            Self::Restore(_) => "restore_backup",
            Self::ResetStatus(_) => "reset_backup_status",
            Self::OtherAction(_) => "backup_action",
        }
    }

    pub(super) fn since(&self) -> Version {
        match self {
            Self::Update(_) => Version(3, 9),
            _ => Version(3, 0),
        }
    }
}

#[derive(Debug, Deserialize)]
struct Update {
    name: Option<String>,
    description: Option<String>,
    metadata: Option<std::collections::BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
struct Restore {
    volume_id: Option<String>,
    name: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Reset {
    status: BackupStatus,
}

impl Context<'_> {
    pub(super) fn on_backups(&self, call: &Call) -> Result<Reply, Fault> {
        match call {
            Call::List { detail } => self.list_backups(*detail),
            Call::Create => self.create_backup(),
            Call::Get(id) => self.cloud.read(|world| {
                let backup = view::backup(self, world, world.backup(id)?);
                Ok(Reply::json(200, json!({"backup": backup})))
            }),
            Call::Update(id) => self.update_backup(id),
            Call::Delete(id) => {
                self.cloud.change(|world| world.begin_delete_backup(id))?;
                let (request_id, doom) = (self.request.id.clone(), self.request.work_fails.clone());
                work::delete_backup(self.cloud, id.clone(), request_id, doom);
                Ok(Reply::empty(202))
            }
            Call::Restore(id) => self.restore_backup(id),
            Call::ResetStatus(id) => {
                self.cloud.read(|world| world.backup(id).map(drop))?;
                if !self.token.admin {
                    return Err(Fault::forbidden("volume_extension:backup_admin_actions:reset_status"));
                }
                let reset: Reset = self.request.object("os-reset_status")?;
                self.cloud.change(|world| world.set_backup_status(id, reset.status));
                Ok(Reply::empty(202))
            }
            Call::OtherAction(id) => {
                self.cloud.read(|world| world.backup(id).map(drop))?;
                Err(self.no_such_action())
            }
        }
    }

    fn list_backups(&self, detail: bool) -> Result<Reply, Fault> {
        let listed = self.cloud.read(|world| {
            let view = |backup: &Backup| {
                if detail {
                    view::backup(self, world, backup)
                } else {
                    view::backup_summary(self, backup)
                }
            };
            self.list(&LIST, world.backups.values(), view)
        });
        listed.map(|body| Reply::json(200, body))
    }

    fn create_backup(&self) -> Result<Reply, Fault> {
        let body: Map<String, Value> = self.request.object("backup")?;
        for (key, since) in [("metadata", Version(3, 43)), ("availability_zone", Version(3, 51))] {
            if body.contains_key(key) && self.version < since {
                return Err(Fault::bad_request(format!(
                    "Invalid input for field/attribute backup. Additional properties are not allowed ('{key}' was \
                     unexpected)"
                )));
            }
        }
        let new: NewBackup = serde_json::from_value(Value::Object(body))
            .map_err(|error| Fault::bad_request(format!("Invalid input for field/attribute backup. {error}")))?;
        let backup = self.cloud.change(|world| world.begin_backup(new))?;
        let (request_id, doom) = (self.request.id.clone(), self.request.work_fails.clone());
        work::create_backup(self.cloud, backup.clone(), request_id, doom);
        Ok(Reply::json(202, json!({"backup": view::backup_summary(self, &backup)})))
    }

    fn update_backup(&self, id: &str) -> Result<Reply, Fault> {
        let update: Update = self.request.object("backup")?;
        let backup = self.cloud.change(|world| {
            world.backup(id)?;
            let backup = world.backups.get_mut(id);
            let backup = backup.ok_or_else(|| Fault::not_found(format!("Backup {id} could not be found.")))?;
            backup.name = update.name.or(backup.name.take());
            backup.description = update.description.or(backup.description.take());
            if let Some(metadata) = update.metadata.filter(|_| self.version >= Version(3, 43)) {
                backup.metadata = metadata;
            }
            Ok(backup.clone())
        })?;
        Ok(Reply::json(200, json!({"backup": view::backup_summary(self, &backup)})))
    }

    /// Restores to an existing volume. For a restore to a new volume, Cinder creates that first, while the caller
    /// waits.
    fn restore_backup(&self, id: &str) -> Result<Reply, Fault> {
        let restore: Restore = self.request.object("restore")?;
        let (request_id, doom) = (self.request.id.clone(), self.request.work_fails.clone());
        let (volume_id, name) = if let Some(volume) = restore.volume_id {
            self.cloud.change(|world| world.begin_restore(id, &volume))?;
            work::restore_backup(self.cloud, id.to_owned(), volume.clone(), request_id, doom);
            let name = self
                .cloud
                .read(|world| world.volume(&volume).map(|known| known.name.clone()))?;
            (volume, name)
        } else {
            let new = NewVolume {
                name: Some(restore.name.unwrap_or_else(|| format!("restore_backup_{id}"))),
                description: Some("auto-created_from_restore_from_backup".to_owned()),
                backup_id: Some(id.to_owned()),
                ..NewVolume::default()
            };
            let volume = self.cloud.change(|world| world.begin_create(new))?;
            work::create_volume(self.cloud, volume.clone(), request_id, doom);
            (volume.id, volume.name)
        };
        let body = json!({"restore": {"backup_id": id, "volume_id": volume_id, "volume_name": name}});
        Ok(Reply::json(202, body))
    }
}

impl ListItem for Backup {
    fn id(&self) -> &str {
        &self.id
    }

    fn column(&self, name: &str) -> Option<Column> {
        Some(match name {
            "name" | "display_name" => Column::Text(self.name.clone()),
            "status" => Column::text(self.status.as_str()),
            "volume_id" => Column::text(&self.volume_id),
            "size" => Column::Number(self.size),
            "created_at" => Column::time(Some(self.created_at)),
            "updated_at" => Column::time(self.updated_at),
            _ => return None,
        })
    }
}
