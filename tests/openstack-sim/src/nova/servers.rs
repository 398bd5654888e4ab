// SPDX-License-Identifier: Apache-2.0
//! Handlers for servers.

use serde_json::{Value, json};

use super::Context;
use crate::api::{Fault, Reply};
use crate::microversion::Version;
use crate::paging::Page;
use crate::state::Server;
use crate::world::World;

/// Creation and update time of all servers, which no client of the simulator uses.
const BORN: &str = "2026-01-01T00:00:00Z";

impl Context<'_> {
    pub(super) fn list_servers(&self, detail: bool) -> Result<Reply, Fault> {
        let page = Page::parse(self.request, self.cloud.settings.page_limit)?;
        self.cloud.read(|world| {
            let name_filter = self.request.param("name");
            let matching: Vec<&Server> = world
                .servers
                .values()
                .filter(|server| name_filter.is_none_or(|name| server.spec.name.contains(name)))
                .collect();
            let matching = page
                .cut(&matching, |server| server.spec.id.as_str())
                .map_err(|marker| Fault::bad_request(format!("marker [{marker}] not found")))?;
            let servers: Vec<Value> = matching
                .iter()
                .map(|server| {
                    if detail {
                        self.server_view(world, server)
                    } else {
                        self.server_summary(server)
                    }
                })
                .collect();
            let mut body = json!({"servers": servers});
            let last = matching.last().map(|server| server.spec.id.as_str());
            if let Some(links) = page.links(self.request, &self.cloud.settings.base_url, matching.len(), last) {
                body["servers_links"] = links;
            }
            Ok(Reply::json(200, body))
        })
    }

    pub(super) fn get_server(&self, id: &str) -> Result<Reply, Fault> {
        self.cloud.read(|world| {
            let server = world.server(id)?;
            Ok(Reply::json(200, json!({"server": self.server_view(world, server)})))
        })
    }

    /// Lists the zones of the configuration, or those of the servers.
    pub(super) fn list_zones(&self) -> Reply {
        let zones = self.cloud.read(|world| {
            let mut zones = world.rules.compute_zones.clone();
            if zones.is_empty() {
                zones = world.servers.values().map(|server| server.spec.zone.clone()).collect();
                zones.sort();
                zones.dedup();
            }
            zones
        });
        let zones: Vec<Value> = zones
            .iter()
            .map(|name| json!({"zoneName": name, "zoneState": {"available": true}, "hosts": null}))
            .collect();
        Reply::json(200, json!({"availabilityZoneInfo": zones}))
    }

    fn links(&self, id: &str) -> Value {
        let base = &self.cloud.settings.base_url;
        json!([
            {"rel": "self", "href": format!("{base}/compute/v2.1/servers/{id}")},
            {"rel": "bookmark", "href": format!("{base}/compute/servers/{id}")},
        ])
    }

    fn server_summary(&self, server: &Server) -> Value {
        json!({"id": server.spec.id, "name": server.spec.name, "links": self.links(&server.spec.id)})
    }

    fn server_view(&self, world: &World, server: &Server) -> Value {
        let identity = &self.cloud.settings.identity;
        let volumes: Vec<Value> = world
            .mappings_on(&server.spec.id)
            .map(|mapping| {
                if self.version >= Version(2, 3) {
                    json!({"id": mapping.volume_id, "delete_on_termination": mapping.delete_on_termination})
                } else {
                    json!({"id": mapping.volume_id})
                }
            })
            .collect();
        let mut view = json!({
            "id": server.spec.id,
            "name": server.spec.name,
            "status": status(server),
            "tenant_id": identity.project_id,
            "user_id": identity.user_id,
            "metadata": {},
            "hostId": "2091634baaccdc4c5a1d57069c833e402921df696b7f970791b12ec6",
            "image": "",
            "flavor": {"id": "1", "links": []},
            "created": BORN,
            "updated": BORN,
            "addresses": {},
            "accessIPv4": "",
            "accessIPv6": "",
            "links": self.links(&server.spec.id),
            "OS-DCF:diskConfig": "AUTO",
            "progress": 0,
            "OS-EXT-AZ:availability_zone": server.spec.zone,
            "config_drive": "",
            "key_name": null,
            "OS-SRV-USG:launched_at": "2026-01-01T00:00:00.000000",
            "OS-SRV-USG:terminated_at": null,
            "security_groups": [{"name": "default"}],
            "OS-EXT-STS:task_state": server.task_state,
            "OS-EXT-STS:vm_state": server.vm_state,
            "OS-EXT-STS:power_state": 1,
            "os-extended-volumes:volumes_attached": volumes,
        });
        let mut since = |minor: u32, key: &str, value: Value| {
            if self.version >= Version(2, minor) {
                view[key] = value;
            }
        };
        since(9, "locked", json!(server.locked));
        since(19, "description", Value::Null);
        since(26, "tags", json!([]));
        since(
            47,
            "flavor",
            json!({"original_name": "sim", "vcpus": 2, "ram": 4096, "disk": 0, "ephemeral": 0, "swap": 0, "extra_specs": {}}),
        );
        since(63, "trusted_image_certificates", Value::Null);
        since(71, "server_groups", json!([]));
        since(73, "locked_reason", Value::Null);
        since(90, "OS-EXT-SRV-ATTR:hostname", json!(server.spec.name));
        view
    }
}

/// Returns Nova's status for the two states of a server.
fn status(server: &Server) -> &'static str {
    match (server.vm_state.as_str(), server.task_state.as_deref()) {
        ("active", Some("rebooting" | "reboot_pending" | "reboot_started")) => "REBOOT",
        ("active", Some("rebooting_hard" | "reboot_pending_hard" | "reboot_started_hard")) => "HARD_REBOOT",
        ("active", Some("updating_password")) => "PASSWORD",
        ("active" | "paused", Some("migrating")) => "MIGRATING",
        ("active" | "stopped", Some("resize_prep" | "resize_migrating" | "resize_migrated" | "resize_finish")) => {
            "RESIZE"
        }
        ("active" | "stopped" | "error", Some("rebuilding" | "rebuild_block_device_mapping" | "rebuild_spawning")) => {
            "REBUILD"
        }
        ("resized", Some("resize_reverting")) => "REVERT_RESIZE",
        ("active", _) => "ACTIVE",
        ("building", _) => "BUILD",
        ("stopped", _) => "SHUTOFF",
        ("paused", _) => "PAUSED",
        ("suspended", _) => "SUSPENDED",
        ("rescued", _) => "RESCUE",
        ("resized", _) => "VERIFY_RESIZE",
        ("soft-delete", _) => "SOFT_DELETED",
        ("deleted", _) => "DELETED",
        ("shelved", _) => "SHELVED",
        ("shelved_offloaded", _) => "SHELVED_OFFLOADED",
        ("error", _) => "ERROR",
        _ => "UNKNOWN",
    }
}
