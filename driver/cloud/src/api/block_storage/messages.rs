// SPDX-License-Identifier: Apache-2.0
//! Cinder's user messages about failures that occur after its answer.

use reqwest::Method;
use serde::Deserialize;

use super::{BlockStorage, null_as_default};
use crate::error::CloudError;
use crate::http::service::{MicroVersion, Service};

/// The first microversion in which messages can be filtered.
const MESSAGES: MicroVersion = MicroVersion(3, 5);

#[derive(Deserialize)]
struct MessagesBody {
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default, deserialize_with = "null_as_default")]
    resource_uuid: String,
    #[serde(default, deserialize_with = "null_as_default")]
    user_message: String,
}

impl BlockStorage<'_> {
    /// The latest message about a volume, a snapshot or a backup, by its id; empty for a Cinder without messages.
    pub(crate) async fn messages(&self, id: &str) -> Result<String, CloudError> {
        if self.transport.highest_version(Service::BlockStorage).await? < Some(MESSAGES) {
            return Ok(String::new());
        }
        let mut request = Self::request(
            "message_list",
            Method::GET,
            &["messages"],
            format!("messages about {id}"),
        );
        request.version = Some(MESSAGES);
        request.query.push(("resource_uuid", id.to_string()));
        let body = self.transport.send(request).await?.json::<MessagesBody>()?;
        // The configuration of Cinder decides which filters it honors, so the id is compared here too.
        let mut ours = body.messages.into_iter().filter(|message| message.resource_uuid == id);
        Ok(ours.next().map(|message| message.user_message).unwrap_or_default())
    }
}
