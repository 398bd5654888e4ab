// SPDX-License-Identifier: Apache-2.0
//! Handlers for Cinder's attachments (3.27).

use serde::Deserialize;
use serde_json::{Value, json};

use super::listing::{Column, ListItem, Rules};
use super::{Context, view};
use crate::api::{Fault, Reply};
use crate::microversion::Version;
use crate::state::Attachment;

const LIST: Rules = Rules {
    name: "attachments",
    no_marker,
    filters: &[
        ("volume_id", Version(3, 27)),
        ("status", Version(3, 27)),
        ("instance_id", Version(3, 27)),
        ("attach_status", Version(3, 27)),
    ],
};

#[derive(Debug, Deserialize)]
struct Create {
    volume_uuid: String,
    instance_uuid: Option<String>,
    connector: Option<Value>,
    mode: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Update {
    connector: Value,
}

impl Context<'_> {
    pub(super) fn list_attachments(&self, detail: bool) -> Result<Reply, Fault> {
        self.cloud.read(|world| {
            let view = |attachment: &Attachment| {
                if detail {
                    view::attachment(self, attachment)
                } else {
                    view::attachment_summary(attachment)
                }
            };
            let mut body = self.list(&LIST, world.attachments.values().flatten(), view)?;
            // This list is paged, but without links.
            body.as_object_mut().map(|body| body.remove("attachments_links"));
            Ok(Reply::json(200, body))
        })
    }

    pub(super) fn get_attachment(&self, id: &str) -> Result<Reply, Fault> {
        self.cloud.read(|world| {
            Ok(Reply::json(
                200,
                json!({"attachment": view::attachment(self, world.attachment(id)?)}),
            ))
        })
    }

    pub(super) fn create_attachment(&self) -> Result<Reply, Fault> {
        let create: Create = self.request.object("attachment")?;
        let attachment = self.cloud.change(|world| {
            let mut attachment = world.reserve(&create.volume_uuid, create.instance_uuid.as_deref())?;
            if let Some(mode) = create.mode.filter(|_| self.version >= Version(3, 54)) {
                attachment = world.set_attach_mode(&attachment.id, &mode)?;
            }
            if create.connector.is_some() {
                world.connect(&attachment.id)
            } else {
                Ok(attachment)
            }
        })?;
        Ok(Reply::json(
            200,
            json!({"attachment": view::attachment(self, &attachment)}),
        ))
    }

    pub(super) fn update_attachment(&self, id: &str) -> Result<Reply, Fault> {
        let update: Update = self.request.object("attachment")?;
        if !update.connector.is_object() {
            return Err(Fault::bad_request(
                "Invalid input for field/attribute connector. The connector is not an object.",
            ));
        }
        let attachment = self.cloud.change(|world| world.connect(id))?;
        Ok(Reply::json(
            200,
            json!({"attachment": view::attachment(self, &attachment)}),
        ))
    }

    pub(super) fn complete_attachment(&self, id: &str) -> Result<Reply, Fault> {
        self.cloud.change(|world| world.complete(id, None))?;
        Ok(Reply::empty(204))
    }

    pub(super) fn delete_attachment(&self, id: &str) -> Result<Reply, Fault> {
        let remaining = self.cloud.change(|world| {
            world.check_disconnect(id)?;
            world.disconnect(id)
        })?;
        let remaining: Vec<Value> = remaining.iter().map(view::attachment_summary).collect();
        Ok(Reply::json(200, json!({"attachments": remaining})))
    }
}

fn no_marker(marker: &str) -> Fault {
    Fault::not_found(format!(
        "Volume attachment could not be found with filter: attachment_id = {marker}."
    ))
}

impl ListItem for Attachment {
    fn id(&self) -> &str {
        &self.id
    }

    fn column(&self, name: &str) -> Option<Column> {
        Some(match name {
            "volume_id" => Column::text(&self.volume_id),
            "instance_id" => Column::Text(self.server_id.clone()),
            "status" | "attach_status" => Column::text(self.status.as_str()),
            "created_at" | "updated_at" => Column::time(self.attached_at),
            _ => return None,
        })
    }
}
