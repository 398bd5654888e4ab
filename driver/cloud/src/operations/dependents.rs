// SPDX-License-Identifier: Apache-2.0
//! What is built on a volume or a snapshot, for the text of a refused deletion.
//!
//! Cinder filters volumes by their source for administrators only, so this takes a list of the whole project. Sidecars repeat a refused
//! deletion for ever: one list serves the repeats of half an hour.

use crate::api::block_storage::{BlockStorage, Volume};
use crate::context::Context;
use crate::error::CloudError;
use crate::error::words::names_text;

/// The names and ids of the volumes that are built on `id`, as they were when its deletion was refused first; empty for none.
pub(crate) async fn volumes_built_on(
    cx: &Context,
    id: &str,
    is_built: impl Fn(&Volume) -> bool,
) -> Result<String, CloudError> {
    if let Some(names) = cx.dependents.get(&id.to_owned()) {
        return Ok(names);
    }
    let name = |volume: Volume| is_built(&volume).then(|| format!("volume {} ({})", volume.name, volume.id));
    let names = BlockStorage::new(&cx.transport).map_all(name).await?;
    let names = names_text(names.into_iter());
    cx.dependents.insert(id.to_owned(), names.clone());
    Ok(names)
}

/// The names, or that Cinder gives none.
pub(crate) fn or_unknown(names: String) -> String {
    if names.is_empty() {
        "something that Cinder does not name is built on it".to_owned()
    } else {
        names
    }
}
