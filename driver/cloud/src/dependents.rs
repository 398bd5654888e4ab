//! What is built on a volume or a snapshot, for the text of a refused deletion.
//!
//! Cinder filters volumes by their source for administrators only, so this takes a list of the whole project. Sidecars repeat a refused
//! deletion for ever: one list serves the repeats of half an hour.

use std::time::Duration;

use crate::block_storage::{BlockStorage, Volume};
use crate::cloud::Inner;
use crate::error::CloudError;
use crate::expiring::ExpiringMap;

/// How long names are repeated.
const LIFETIME: Duration = Duration::from_mins(30);
/// How many refusals are remembered; more are listed at each repeat.
const MOST: usize = 256;

/// The names of dependents, by the id of what they are built on.
pub(crate) type Dependents = ExpiringMap<String, String>;

/// A memory of refusals without any.
pub(crate) fn none() -> Dependents {
    ExpiringMap::new(LIFETIME, MOST)
}

impl Inner {
    /// The names and ids of the volumes that are built on `id`, as they were when its deletion was refused first; empty for none.
    pub(crate) async fn volumes_built_on(
        &self,
        id: &str,
        is_built: impl Fn(&Volume) -> bool,
    ) -> Result<String, CloudError> {
        if let Some(names) = self.dependents.get(&id.to_owned()) {
            return Ok(names);
        }
        let name = |volume: Volume| is_built(&volume).then(|| format!("volume {} ({})", volume.name, volume.id));
        let names = BlockStorage::new(&self.transport).map_all(name).await?;
        let names = names.join(", ");
        self.dependents.insert(id.to_owned(), names.clone());
        Ok(names)
    }
}

/// The names, or that Cinder gives none.
pub(crate) fn or_unknown(names: String) -> String {
    if names.is_empty() {
        "something that Cinder does not name is built on it".to_owned()
    } else {
        names
    }
}
