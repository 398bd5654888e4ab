// SPDX-License-Identifier: Apache-2.0
//! Handlers for the volumes of a server.

use serde_json::{Map, Value, json};

use super::Context;
use crate::api::{Fault, Reply};
use crate::microversion::Version;
use crate::paging::Page;
use crate::state::Mapping;
use crate::work;
use crate::world::{Caller, NewMapping, NextStep};

impl Context<'_> {
    pub(super) fn list_attachments(&self, server: &str) -> Result<Reply, Fault> {
        let page = Page::parse(self.request, self.cloud.settings.page_limit)?;
        self.cloud.read(|world| {
            world.server(server)?;
            let mut mappings: Vec<&Mapping> = world.mappings_on(server).collect();
            mappings.sort_by(|left, right| (left.device.len(), &left.device).cmp(&(right.device.len(), &right.device)));
            let mappings = page
                .cut(&mappings, |mapping| mapping.volume_id.as_str())
                .map_err(|marker| Fault::bad_request(format!("marker [{marker}] not found")))?;
            let mappings: Vec<Value> = mappings.iter().map(|mapping| self.view(mapping)).collect();
            Ok(Reply::json(200, json!({"volumeAttachments": mappings})))
        })
    }

    pub(super) fn get_attachment(&self, server: &str, volume: &str) -> Result<Reply, Fault> {
        self.cloud.read(|world| {
            world.server(server)?;
            let mapping = world
                .mapping(volume, server)
                .ok_or_else(|| Fault::not_found(format!("Instance {server} is not attached to volume {volume}")))?;
            Ok(Reply::json(200, json!({"volumeAttachment": self.view(mapping)})))
        })
    }

    pub(super) fn attach(&self, server: &str) -> Result<Reply, Fault> {
        self.cloud.read(|world| world.server(server).map(drop))?;
        let body: Map<String, Value> = self.request.object("volumeAttachment")?;
        let known = |key: &str| match key {
            "volumeId" | "device" => true,
            "tag" => self.version >= Version(2, 49),
            "delete_on_termination" => self.version >= Version(2, 79),
            _ => false,
        };
        if let Some(key) = body.keys().find(|key| !known(key)) {
            return Err(Fault::bad_request(format!(
                "Invalid input for field/attribute volumeAttachment. Additional properties are not allowed ('{key}' was unexpected)"
            )));
        }
        let text = |key: &str| body.get(key).and_then(Value::as_str).map(str::to_owned);
        let volume = text("volumeId")
            .filter(|id| uuid::Uuid::parse_str(id).is_ok())
            .ok_or_else(|| Fault::bad_request("Invalid input for field/attribute volumeId. It is not a 'uuid'"))?;
        let new = NewMapping {
            device: text("device"),
            tag: text("tag"),
            delete_on_termination: body
                .get("delete_on_termination")
                .and_then(Value::as_bool)
                .unwrap_or_default(),
            version: self.version,
            admin: self.admin,
        };
        let begun = self
            .cloud
            .change(|world| world.begin_attach(server, &volume, new, &self.request.id))?;
        let mapping = match begun {
            NextStep::OnHost(mapping) => {
                work::attach(self.cloud, mapping.clone(), self.request.work_fails.clone());
                mapping
            }
            NextStep::Done(mapping) => mapping,
        };
        let mut view = json!({
            "id": mapping.volume_id,
            "serverId": mapping.server_id,
            "volumeId": mapping.volume_id,
            "device": mapping.device,
        });
        if self.version >= Version(2, 70) {
            view["tag"] = json!(mapping.tag);
        }
        if self.version >= Version(2, 79) {
            view["delete_on_termination"] = json!(mapping.delete_on_termination);
        }
        Ok(Reply::json(200, json!({"volumeAttachment": view})))
    }

    pub(super) fn detach(&self, server: &str, volume: &str) -> Result<Reply, Fault> {
        let caller = Caller {
            version: self.version,
            admin: self.admin,
            cinder_fails: self.request.work_fails.is_some(),
        };
        let begun = self
            .cloud
            .change(|world| world.begin_detach(server, volume, caller, &self.request.id))?;
        if let NextStep::OnHost(mapping) = begun {
            work::detach(self.cloud, mapping, self.request.work_fails.clone());
        }
        Ok(Reply::empty(202))
    }

    fn view(&self, mapping: &Mapping) -> Value {
        let mut view = json!({
            "volumeId": mapping.volume_id,
            "serverId": mapping.server_id,
            "device": mapping.device,
        });
        if self.version < Version(2, 89) {
            view["id"] = json!(mapping.volume_id);
        } else {
            view["attachment_id"] = json!(mapping.attachment_id);
            view["bdm_uuid"] = json!(mapping.id);
        }
        if self.version >= Version(2, 70) {
            view["tag"] = json!(mapping.tag);
        }
        if self.version >= Version(2, 79) {
            view["delete_on_termination"] = json!(mapping.delete_on_termination);
        }
        view
    }
}
