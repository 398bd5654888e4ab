// SPDX-License-Identifier: Apache-2.0
//! Handlers for user messages (3.3).

use serde_json::{Value, json};

use super::listing::{Column, ListItem, Rules};
use super::{Context, view};
use crate::api::{Fault, Reply};
use crate::microversion::Version;
use crate::state::UserMessage;

const LIST: Rules = Rules {
    name: "messages",
    no_marker: no_message,
    filters: &[
        ("resource_uuid", Version(3, 5)),
        ("resource_type", Version(3, 5)),
        ("event_id", Version(3, 5)),
        ("request_id", Version(3, 5)),
        ("message_level", Version(3, 5)),
    ],
};

impl Context<'_> {
    pub(super) fn list_messages(&self) -> Result<Reply, Fault> {
        self.cloud.read(|world| {
            let view = |message: &UserMessage| self.message_view(message);
            Ok(Reply::json(200, self.list(&LIST, world.messages.iter(), view)?))
        })
    }

    pub(super) fn get_message(&self, id: &str) -> Result<Reply, Fault> {
        self.cloud.read(|world| {
            let entry = world.messages.iter().find(|message| message.id == id);
            let entry = entry.ok_or_else(|| no_message(id))?;
            Ok(Reply::json(200, json!({"message": self.message_view(entry)})))
        })
    }

    pub(super) fn delete_message(&self, id: &str) -> Result<Reply, Fault> {
        self.cloud.change(|world| {
            let before = world.messages.len();
            world.messages.retain(|message| message.id != id);
            if world.messages.len() < before {
                Ok(Reply::empty(204))
            } else {
                Err(no_message(id))
            }
        })
    }

    fn message_view(&self, message: &UserMessage) -> Value {
        json!({
            "id": message.id,
            "event_id": message.event_id,
            "user_message": message.text,
            "message_level": "ERROR",
            "created_at": view::time(message.created_at),
            "guaranteed_until": view::time(message.created_at),
            "request_id": message.request_id,
            "resource_type": message.resource_type,
            "resource_uuid": message.resource_id,
            "links": view::links(self, "messages", &message.id),
        })
    }
}

fn no_message(id: &str) -> Fault {
    Fault::not_found(format!("Message {id} could not be found."))
}

impl ListItem for UserMessage {
    fn id(&self) -> &str {
        &self.id
    }

    fn column(&self, name: &str) -> Option<Column> {
        Some(match name {
            "resource_uuid" => Column::text(&self.resource_id),
            "resource_type" => Column::text(&self.resource_type),
            "event_id" => Column::text(&self.event_id),
            "request_id" => Column::text(&self.request_id),
            "message_level" => Column::text("ERROR"),
            // Uses more than Cinder's resolution of seconds, so that the newest message is first.
            "created_at" => Column::Time(Some(self.created_at)),
            _ => return None,
        })
    }
}
