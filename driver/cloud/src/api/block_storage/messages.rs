// SPDX-License-Identifier: Apache-2.0
//! Cinder's user messages about failures that occur after its answer.

use reqwest::Method;
use serde::Deserialize;

use super::{BlockStorage, null_as_default};
use crate::api::pages::{Item, decode_list};
use crate::error::CloudError;
use crate::http::service::{MicroVersion, Service};

/// The first microversion in which messages can be filtered.
const MESSAGES: MicroVersion = MicroVersion(3, 5);

#[derive(Deserialize)]
struct Message {
    #[serde(default, deserialize_with = "null_as_default")]
    resource_uuid: String,
    #[serde(default, deserialize_with = "null_as_default")]
    user_message: String,
}

impl Item for Message {
    const KEY: &'static str = "messages";
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
        let answer = self.transport.send(request).await?;
        let mut latest = None;
        decode_list(answer, |message: Message| {
            // The configuration of Cinder decides which filters it honors, so the id is compared here too.
            if latest.is_none() && message.resource_uuid == id {
                latest = Some(message.user_message);
            }
            None::<()>
        })?;
        Ok(latest.unwrap_or_default())
    }
}
