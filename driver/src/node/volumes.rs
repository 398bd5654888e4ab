// SPDX-License-Identifier: Apache-2.0
//! The volumes that this process has seen on its node.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::timing::TIMING;

/// More volumes than a server can have.
pub(super) const MAX_CACHED_VOLUMES: usize = 4096;

/// A cache of the volumes that this process has seen on its node.
///
/// After a restart, the kubelet's queries for usage and health fill it within a minute.
#[derive(Debug, Clone, Default)]
pub(super) struct VolumeCache {
    pub(super) volumes: Arc<Mutex<BTreeMap<String, CachedVolume>>>,
}

#[derive(Debug, Default)]
pub(super) struct CachedVolume {
    /// The paths at which the volume is staged or published.
    pub(super) paths: Vec<PathBuf>,
    /// The targets and times of successful NodePublishVolume calls whose pod has not been seen running yet.
    pub(super) starting: BTreeMap<PathBuf, Instant>,
}

impl VolumeCache {
    /// Records that the volume is mounted at these paths.
    pub(super) fn record_paths(&self, volume_id: &str, paths: &[PathBuf]) {
        self.change(volume_id, |volume| volume.add(paths));
    }

    /// Records a successful NodePublishVolume.
    pub(super) fn record_publish(&self, volume_id: &str, staging: &Path, target: &Path) {
        self.change(volume_id, |volume| {
            volume.add(&[staging.to_owned(), target.to_owned()]);
            if volume.starting.len() < MAX_CACHED_VOLUMES {
                volume.starting.insert(target.to_owned(), Instant::now());
            }
        });
    }

    /// Records a query for the usage at this path, which the kubelet sends only for volumes of running pods.
    pub(super) fn record_usage(&self, volume_id: &str, path: &PathBuf) {
        self.change(volume_id, |volume| {
            volume.add(std::slice::from_ref(path));
            volume.starting.remove(path);
        });
    }

    /// Returns the targets of pods that may still be starting.
    pub(super) fn starting_targets(&self, volume_id: &str) -> Vec<PathBuf> {
        let volumes = self.lock();
        let targets = volumes.get(volume_id).into_iter().flat_map(|volume| &volume.starting);
        let is_recent = |since: &Instant| since.elapsed() < TIMING.pod_start_limit;
        let recent = targets.filter(|(_, since)| is_recent(since));
        recent.map(|(target, _)| target.clone()).collect()
    }

    /// Removes a path of the volume.
    pub(super) fn remove_path(&self, volume_id: &str, path: &PathBuf) {
        if let Some(volume) = self.lock().get_mut(volume_id) {
            volume.paths.retain(|known| known != path);
            volume.starting.remove(path);
        }
    }

    /// Removes the volume.
    pub(super) fn remove_volume(&self, volume_id: &str) {
        self.lock().remove(volume_id);
    }

    pub(super) fn change(&self, volume_id: &str, change: impl FnOnce(&mut CachedVolume)) {
        let mut volumes = self.lock();
        if volumes.len() < MAX_CACHED_VOLUMES || volumes.contains_key(volume_id) {
            change(volumes.entry(volume_id.to_owned()).or_default());
        }
    }

    pub(super) fn paths(&self, volume_id: &str) -> Option<Vec<PathBuf>> {
        self.lock().get(volume_id).map(|volume| volume.paths.clone())
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, CachedVolume>> {
        self.volumes.lock()
    }
}

impl CachedVolume {
    pub(super) fn add(&mut self, paths: &[PathBuf]) {
        for path in paths {
            if !self.paths.contains(path) && self.paths.len() < MAX_CACHED_VOLUMES {
                self.paths.push(path.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_entry_is_removed_with_volume() {
        let (cache, path) = (VolumeCache::default(), PathBuf::from("/staging"));
        cache.record_paths("volume-1", std::slice::from_ref(&path));
        cache.record_paths("volume-1", std::slice::from_ref(&path));
        assert_eq!(cache.paths("volume-1"), Some(vec![path.clone()]));
        cache.remove_path("volume-1", &path);
        assert_eq!(cache.paths("volume-1"), Some(Vec::new()));
        cache.remove_volume("volume-1");
        assert!(cache.ids().is_empty());
    }
}
