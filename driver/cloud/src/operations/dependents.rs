// SPDX-License-Identifier: Apache-2.0
//! The dependents of a volume or a snapshot, for the error about a refused deletion.
//!
//! Cinder filters volumes by their source for administrators only, so this requires a list of the whole project.
//! Sidecars retry a refused deletion indefinitely. Therefore the result is cached for half an hour.

use crate::api::block_storage::{BlockStorage, Volume};
use crate::context::Context;
use crate::error::CloudError;
use crate::error::text::names_text;

/// The names and ids of the volumes that are built on `id`, as of the first refusal of its deletion; empty if there are
/// none.
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

/// The names, or a text for unknown dependents.
pub(crate) fn or_unknown_dependents(names: String) -> String {
    if names.is_empty() {
        "something that Cinder does not name is built on it".to_owned()
    } else {
        names
    }
}
