// SPDX-License-Identifier: Apache-2.0
//! The volumes that this process has seen on its node.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::timing::TIMING;

/// More volumes than a server can have.
pub(super) const MOST_KNOWN: usize = 4096;

/// The volumes that this process has seen on its node. A cache: after a restart the kubelet's questions about usage and health fill
/// it within a minute.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeVolumes {
    pub(super) volumes: Arc<Mutex<BTreeMap<String, NodeVolume>>>,
}

#[derive(Debug, Default)]
pub(super) struct NodeVolume {
    /// The places where it is staged or published.
    pub(super) paths: Vec<PathBuf>,
    /// Targets at which NodePublishVolume succeeded, and when. The kubelet has not shown since that a pod runs there.
    pub(super) starting: BTreeMap<PathBuf, Instant>,
}

impl NodeVolumes {
    /// The volume is here, at these places among others.
    pub(super) fn saw(&self, volume_id: &str, paths: &[PathBuf]) {
        self.change(volume_id, |known| known.add(paths));
    }

    /// NodePublishVolume has succeeded.
    pub(super) fn published(&self, volume_id: &str, staging: &Path, target: &Path) {
        self.change(volume_id, |known| {
            known.add(&[staging.to_owned(), target.to_owned()]);
            if known.starting.len() < MOST_KNOWN {
                known.starting.insert(target.to_owned(), Instant::now());
            }
        });
    }

    /// The kubelet has asked for the usage at this place: it does so for volumes of running pods only.
    pub(super) fn used(&self, volume_id: &str, path: &PathBuf) {
        self.change(volume_id, |known| {
            known.add(std::slice::from_ref(path));
            known.starting.remove(path);
        });
    }

    /// The targets whose pods may still be starting.
    pub(super) fn starting(&self, volume_id: &str) -> Vec<PathBuf> {
        let volumes = self.lock();
        let targets = volumes.get(volume_id).into_iter().flat_map(|known| &known.starting);
        let is_recent = |since: &Instant| since.elapsed() < TIMING.pod_start_limit;
        let recent = targets.filter(|(_, since)| is_recent(since));
        recent.map(|(target, _)| target.clone()).collect()
    }

    /// The volume is no longer at this place.
    pub(super) fn left(&self, volume_id: &str, path: &PathBuf) {
        if let Some(known) = self.lock().get_mut(volume_id) {
            known.paths.retain(|known| known != path);
            known.starting.remove(path);
        }
    }

    /// The volume is no longer here.
    pub(super) fn forget(&self, volume_id: &str) {
        self.lock().remove(volume_id);
    }

    pub(super) fn change(&self, volume_id: &str, change: impl FnOnce(&mut NodeVolume)) {
        let mut volumes = self.lock();
        if volumes.len() < MOST_KNOWN || volumes.contains_key(volume_id) {
            change(volumes.entry(volume_id.to_owned()).or_default());
        }
    }

    pub(super) fn paths(&self, volume_id: &str) -> Option<Vec<PathBuf>> {
        self.lock().get(volume_id).map(|known| known.paths.clone())
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, NodeVolume>> {
        self.volumes.lock()
    }
}

impl NodeVolume {
    pub(super) fn add(&mut self, paths: &[PathBuf]) {
        for path in paths {
            if !self.paths.contains(path) && self.paths.len() < MOST_KNOWN {
                self.paths.push(path.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_removed_with_their_volume() {
        let (known, path) = (NodeVolumes::default(), PathBuf::from("/staging"));
        known.saw("volume-1", std::slice::from_ref(&path));
        known.saw("volume-1", std::slice::from_ref(&path));
        assert_eq!(known.paths("volume-1"), Some(vec![path.clone()]));
        known.left("volume-1", &path);
        assert_eq!(known.paths("volume-1"), Some(Vec::new()));
        known.forget("volume-1");
        assert!(known.ids().is_empty());
    }
}
