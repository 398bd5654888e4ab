// SPDX-License-Identifier: Apache-2.0
//! Cinder's messages about a resource, for the text of an error.

use crate::api::block_storage::BlockStorage;
use crate::context::Context;

/// Cinder's messages about a volume, a snapshot or a backup. Never fails, because they only supplement an error.
pub(crate) async fn cinder_messages(cx: &Context, id: &str) -> String {
    let messages = BlockStorage::new(&cx.transport).messages(id).await;
    messages.unwrap_or_else(|error| {
        tracing::debug!(%error, id, "Cinder's messages could not be read");
        String::new()
    })
}

/// Joins the texts that are not empty with `; `.
pub(crate) fn join_texts(text: &str, more: &str) -> String {
    [text, more]
        .into_iter()
        .filter(|text| !text.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}
