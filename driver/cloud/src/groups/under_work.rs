//! The names of the group snapshots that this process is working on.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The names of the group snapshots that this process is working on.
#[derive(Debug, Default)]
pub(crate) struct UnderWork {
    names: Mutex<HashMap<String, usize>>,
}

/// Ends with its drop.
#[derive(Debug)]
pub(super) struct Begun<'a> {
    all: &'a UnderWork,
    name: String,
}

impl UnderWork {
    pub(super) fn begin(&self, name: &str) -> Begun<'_> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        *names.entry(name.to_owned()).or_default() += 1;
        Begun {
            all: self,
            name: name.to_owned(),
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.contains_key(name)
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let mut names = self.all.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = names.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                names.remove(&self.name);
            }
        }
    }
}
