// SPDX-License-Identifier: Apache-2.0
//! Parts of the sentences of errors; empty where there is nothing to say.

use crate::ids::ServerId;

pub(super) fn request_text(id: Option<&str>) -> String {
    id.map(|id| format!(" (request {id})")).unwrap_or_default()
}

pub(super) fn region_text(name: Option<&str>) -> String {
    name.map(|name| format!(" in region {name}")).unwrap_or_default()
}

pub(super) fn message_text(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!(": {text}")
    }
}

pub(super) fn servers_text(servers: &[ServerId]) -> String {
    match servers {
        [] => "a server that Cinder does not name".to_owned(),
        [one] => format!("server {one}"),
        many => format!(
            "servers {}",
            many.iter().map(ServerId::as_str).collect::<Vec<_>>().join(", ")
        ),
    }
}
