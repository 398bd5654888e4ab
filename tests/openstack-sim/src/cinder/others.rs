// SPDX-License-Identifier: Apache-2.0
//! Handlers for types, zones, limits, quotas, pools and services.

use serde_json::{Map, Value, json};

use super::listing::{Column, ListItem, Rules, is_true};
use super::{Context, view};
use crate::api::{Fault, Reply};
use crate::config::{Quota, VolumeType};
use crate::microversion::Version;

const TYPES: Rules = Rules {
    name: "volume_types",
    no_marker: |marker| Fault::not_found(format!("Volume type {marker} could not be found.")),
    filters: &[("is_public", Version(3, 0)), ("extra_specs", Version(3, 52))],
};

/// Extra specs that are visible to all users.
const VISIBLE_SPECS: [&str; 3] = ["RESKEY:availability_zones", "multiattach", "replication_enabled"];

impl Context<'_> {
    pub(super) fn list_types(&self) -> Result<Reply, Fault> {
        self.cloud.read(|world| {
            let view = |volume_type: &VolumeType| self.type_view(volume_type);
            let mut body = self.list(&TYPES, world.rules.volume_types.iter(), view)?;
            // Only this list names its links differently.
            if let Some(body) = body.as_object_mut()
                && let Some(links) = body.remove("volume_types_links")
            {
                body.insert("volume_type_links".to_owned(), links);
            }
            Ok(Reply::json(200, body))
        })
    }

    pub(super) fn get_type(&self, id: &str) -> Result<Reply, Fault> {
        self.cloud.read(|world| {
            let requested = if id == "default" { None } else { Some(id) };
            let view = self.type_view(world.volume_type(requested)?);
            Ok(Reply::json(200, json!({"volume_type": view})))
        })
    }

    fn type_view(&self, volume_type: &VolumeType) -> Value {
        let mut specs = volume_type.all_specs();
        if !self.token.admin {
            specs.retain(|key, _| VISIBLE_SPECS.contains(&key.as_str()));
        }
        let mut view = json!({
            "id": volume_type.id,
            "name": volume_type.name,
            "is_public": true,
            "extra_specs": specs,
            "description": volume_type.description,
            "os-volume-type-access:is_public": true,
        });
        if self.token.admin {
            view["qos_specs_id"] = json!(volume_type.qos_specs_id);
        }
        view
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
            let (quota, usage) = (world.rules.quota, world.usage(None));
            Reply::json(
                200,
                json!({"limits": {"rate": [], "absolute": {
                    "maxTotalVolumes": quota.volumes,
                    "maxTotalVolumeGigabytes": quota.gigabytes,
                    "maxTotalSnapshots": quota.snapshots,
                    "maxTotalBackups": quota.backups,
                    "maxTotalBackupGigabytes": quota.backup_gigabytes,
                    "totalVolumesUsed": usage.volumes,
                    "totalGigabytesUsed": usage.gigabytes,
                    "totalSnapshotsUsed": usage.snapshots,
                    "totalBackupsUsed": world.backups.len(),
                    "totalBackupGigabytesUsed": world.backup_gigabytes(),
                }}}),
            )
        })
    }

    pub(super) fn quota(&self, defaults: bool) -> Reply {
        let usage = !defaults && self.request.param("usage").is_some_and(is_true);
        self.cloud.read(|world| {
            let quota = if defaults { Quota::default() } else { world.rules.quota };
            let used = world.usage(None);
            let mut set = Map::new();
            set.insert("id".to_owned(), json!(self.cloud.settings.identity.project_id));
            let mut entry = |name: String, limit: i64, used: u64| {
                let value = if usage {
                    json!({"limit": limit, "in_use": used, "reserved": 0})
                } else {
                    json!(limit)
                };
                set.insert(name, value);
            };
            entry("volumes".to_owned(), quota.volumes, used.volumes);
            entry("gigabytes".to_owned(), quota.gigabytes, used.gigabytes);
            entry("snapshots".to_owned(), quota.snapshots, used.snapshots);
            entry("per_volume_gigabytes".to_owned(), quota.per_volume_gigabytes, 0);
            entry("backups".to_owned(), quota.backups, world.backups.len() as u64);
            entry(
                "backup_gigabytes".to_owned(),
                quota.backup_gigabytes,
                world.backup_gigabytes(),
            );
            entry("groups".to_owned(), quota.groups, world.groups.len() as u64);
            for volume_type in &world.rules.volume_types {
                let (name, quota) = (&volume_type.name, volume_type.quota);
                let used = world.usage(Some(name));
                entry(format!("volumes_{name}"), quota.volumes, used.volumes);
                entry(format!("gigabytes_{name}"), quota.gigabytes, used.gigabytes);
                entry(format!("snapshots_{name}"), quota.snapshots, used.snapshots);
            }
            Reply::json(200, json!({"quota_set": set}))
        })
    }

    pub(super) fn update_quota(&self) -> Result<Reply, Fault> {
        if !self.token.admin {
            return Err(Fault::forbidden("volume_extension:quotas:update"));
        }
        let new: Map<String, Value> = self.request.object("quota_set")?;
        self.cloud.change(|world| {
            for (name, value) in &new {
                let wrong = || Fault::bad_request(format!("Invalid input for field/attribute {name}. Value: {value}."));
                let value = value.as_i64().filter(|limit| *limit >= -1).ok_or_else(wrong)?;
                if let Some(limit) = world.rules.quota.limit(name) {
                    *limit = value;
                    continue;
                }
                let (what, of_type) = name.split_once('_').ok_or_else(wrong)?;
                let known = world.rules.volume_types.iter_mut().find(|known| known.name == of_type);
                let quota = &mut known.ok_or_else(wrong)?.quota;
                *match what {
                    "volumes" => &mut quota.volumes,
                    "gigabytes" => &mut quota.gigabytes,
                    "snapshots" => &mut quota.snapshots,
                    _ => return Err(wrong()),
                } = value;
            }
            Ok(())
        })?;
        Ok(self.quota(false))
    }

    /// Lists the pools, by default only for administrators. Filters by name since 3.28, and by volume type since 3.35.
    pub(super) fn pools(&self) -> Result<Reply, Fault> {
        if !self.token.admin && !self.cloud.settings.pools_for_members {
            return Err(Fault::forbidden("scheduler_extension:scheduler_stats:get_pools"));
        }
        let detail = self.request.param("detail").is_some_and(is_true);
        let filter = |name: &str, since: Version| self.request.param(name).filter(|_| self.version >= since);
        let (name, volume_type) = (filter("name", Version(3, 28)), filter("volume_type", Version(3, 35)));
        self.cloud.read(|world| {
            let backend = match volume_type {
                Some(wanted) => Some(world.volume_type(Some(wanted))?.backend()),
                None => None,
            };
            let pools: Vec<Value> = world
                .pools()
                .into_iter()
                .filter(|pool| backend.is_none_or(|wanted| pool.backend == wanted))
                .filter(|pool| name.is_none_or(|wanted| view::pool_name(&pool.backend) == wanted))
                .map(|pool| {
                    let mut shown = json!({"name": view::pool_name(&pool.backend)});
                    if detail {
                        shown["capabilities"] = json!({
                            "pool_name": "pool0",
                            "volume_backend_name": pool.backend,
                            "total_capacity_gb": pool.total,
                            "free_capacity_gb": pool.free(),
                            "allocated_capacity_gb": pool.allocated,
                            "provisioned_capacity_gb": pool.allocated,
                            "reserved_percentage": pool.reserved_percentage,
                            "max_over_subscription_ratio": "20.0",
                            "thin_provisioning_support": false,
                            "thick_provisioning_support": true,
                            "multiattach": pool.multiattach,
                            "online_extend_support": true,
                            "QoS_support": false,
                            "backend_state": "up",
                            "storage_protocol": "file",
                            "vendor_name": "sim",
                            "driver_version": "1.0",
                            "filter_function": null,
                            "goodness_function": null,
                            "timestamp": view::time(self.cloud.sources.now()),
                        });
                    }
                    shown
                })
                .collect();
            Ok(Reply::json(200, json!({"pools": pools})))
        })
    }

    pub(super) fn list_services(&self) -> Result<Reply, Fault> {
        if !self.token.admin && !self.cloud.settings.pools_for_members {
            return Err(Fault::forbidden("volume_extension:services:index"));
        }
        let binary_filter = self.request.param("binary");
        self.cloud.read(|world| {
            let zone = world.rules.zones.first().map_or("nova", String::as_str);
            let service = |binary: &str, host: String, zone: &str| {
                json!({
                    "binary": binary,
                    "host": host,
                    "zone": zone,
                    "status": "enabled",
                    "state": "up",
                    "updated_at": view::time(self.cloud.sources.now()),
                    "disabled_reason": null,
                })
            };
            let mut services = vec![service("cinder-scheduler", "sim".to_owned(), zone)];
            if world.rules.backups {
                services.push(service("cinder-backup", "sim".to_owned(), zone));
            }
            for pool in world.pools() {
                for zone in &world.rules.zones {
                    services.push(service("cinder-volume", format!("sim@{}", pool.backend), zone));
                }
            }
            services.retain(|service| binary_filter.is_none_or(|binary| service["binary"] == binary));
            Ok(Reply::json(200, json!({"services": services})))
        })
    }
}

impl ListItem for VolumeType {
    const BY_ID: bool = false;

    fn id(&self) -> &str {
        &self.id
    }

    fn column(&self, name: &str) -> Option<Column> {
        Some(match name {
            "name" => Column::text(&self.name),
            "is_public" => Column::text("True"),
            "created_at" => Column::Time(None),
            _ => return None,
        })
    }
}
