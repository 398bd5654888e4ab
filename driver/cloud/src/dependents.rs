//! What is built on a volume or a snapshot, for the text of a refused deletion.
//!
//! Cinder filters volumes by their source for administrators only, so this takes a list of the whole project. Sidecars repeat a refused
//! deletion for ever: one list serves the repeats of half an hour.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::block_storage::{BlockStorage, Volume};
use crate::cloud::Inner;
use crate::error::CloudError;

/// How long names are repeated.
const LIFETIME: Duration = Duration::from_mins(30);
/// How many refusals are remembered; more are listed at each repeat.
const MOST: usize = 256;

/// The names of dependents, by the id of what they are built on.
#[derive(Debug, Default)]
pub(crate) struct Dependents {
    named: Mutex<HashMap<String, (Instant, String)>>,
}

impl Dependents {
    fn get(&self, id: &str) -> Option<String> {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        named.retain(|_, (at, _)| at.elapsed() < LIFETIME);
        named.get(id).map(|(_, names)| names.clone())
    }

    fn insert(&self, id: &str, dependents: String) {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if named.len() < MOST {
            named.insert(id.to_owned(), (Instant::now(), dependents));
        }
    }
}

impl Inner {
    /// The names and ids of the volumes that are built on `id`, as they were when its deletion was refused first; empty for none.
    pub(crate) async fn volumes_built_on(
        &self,
        id: &str,
        is_built: impl Fn(&Volume) -> bool,
    ) -> Result<String, CloudError> {
        if let Some(names) = self.dependents.get(id) {
            return Ok(names);
        }
        let name = |volume: Volume| is_built(&volume).then(|| format!("volume {} ({})", volume.name, volume.id));
        let names = BlockStorage::new(&self.transport).map_all(name).await?;
        let names = names.join(", ");
        self.dependents.insert(id, names.clone());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn names_are_repeated_for_a_while_and_for_some() {
        let dependents = Dependents::default();
        for number in 0..=MOST {
            dependents.insert(&number.to_string(), "volume a".to_owned());
        }
        assert_eq!(dependents.get("0").as_deref(), Some("volume a"));
        assert_eq!(dependents.get(&MOST.to_string()), None);
        tokio::time::advance(LIFETIME).await;
        assert_eq!(dependents.get("0"), None);
    }
}
