//! Calls on Cinder's own records of attachments, since 3.27.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Context, view};
use crate::api::{Fault, Reply};
use crate::paging::Page;
use crate::state::Attachment;

#[derive(Debug, Deserialize)]
struct Create {
    volume_uuid: String,
    instance_uuid: Option<String>,
    connector: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Update {
    connector: Value,
}

impl Context<'_> {
    pub(super) fn list_attachments(&self, detail: bool) -> Result<Reply, Fault> {
        let page = Page::of(self.request, self.cloud.settings.page_limit)?;
        let fits = |attachment: &Attachment| {
            let is =
                |name: &str, actual: Option<&str>| self.request.param(name).is_none_or(|wanted| actual == Some(wanted));
            is("volume_id", Some(&attachment.volume_id))
                && is("instance_id", attachment.server_id.as_deref())
                && is("status", Some(attachment.status.as_str()))
                && is("attach_status", Some(attachment.status.as_str()))
        };
        self.cloud.read(|world| {
            let found: Vec<_> = world
                .attachments
                .values()
                .flatten()
                .filter(|attachment| fits(attachment))
                .collect();
            let found = page
                .cut(&found, |attachment| attachment.id.as_str())
                .map_err(|marker| no_marker(&marker))?;
            let attachments: Vec<Value> = found
                .iter()
                .map(|attachment| {
                    if detail {
                        view::attachment(attachment)
                    } else {
                        view::attachment_summary(attachment)
                    }
                })
                .collect();
            Ok(Reply::json(200, json!({"attachments": attachments})))
        })
    }

    pub(super) fn get_attachment(&self, id: &str) -> Result<Reply, Fault> {
        self.cloud.read(|world| {
            Ok(Reply::json(
                200,
                json!({"attachment": view::attachment(world.attachment(id)?)}),
            ))
        })
    }

    pub(super) fn create_attachment(&self) -> Result<Reply, Fault> {
        let create: Create = self.request.object("attachment")?;
        let attachment = self.cloud.change(|world| {
            let attachment = world.reserve(&create.volume_uuid, create.instance_uuid.as_deref())?;
            if create.connector.is_some() {
                world.connect(&attachment.id)
            } else {
                Ok(attachment)
            }
        })?;
        Ok(Reply::json(200, json!({"attachment": view::attachment(&attachment)})))
    }

    pub(super) fn update_attachment(&self, id: &str) -> Result<Reply, Fault> {
        let update: Update = self.request.object("attachment")?;
        if !update.connector.is_object() {
            return Err(Fault::bad_request(
                "Invalid input for field/attribute connector. The connector is not an object.",
            ));
        }
        let attachment = self.cloud.change(|world| world.connect(id))?;
        Ok(Reply::json(200, json!({"attachment": view::attachment(&attachment)})))
    }

    pub(super) fn complete_attachment(&self, id: &str) -> Result<Reply, Fault> {
        self.cloud.change(|world| world.complete(id, None))?;
        Ok(Reply::empty(204))
    }

    pub(super) fn delete_attachment(&self, id: &str) -> Result<Reply, Fault> {
        let left = self.cloud.change(|world| {
            world.check_disconnect(id)?;
            world.disconnect(id)
        })?;
        let left: Vec<Value> = left.iter().map(view::attachment_summary).collect();
        Ok(Reply::json(200, json!({"attachments": left})))
    }
}

fn no_marker(marker: &str) -> Fault {
    Fault::not_found(format!(
        "Volume attachment could not be found with filter: attachment_id = {marker}."
    ))
}
