// SPDX-License-Identifier: Apache-2.0
//! A map whose entries expire.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

/// A map of limited size whose entries expire after a fixed lifetime. Ignores new keys while it is full.
#[derive(Debug)]
pub(crate) struct ExpiringMap<K, V> {
    lifetime: Duration,
    capacity: usize,
    entries: Mutex<HashMap<K, (Instant, V)>>,
}

impl<K: Eq + Hash, V: Clone> ExpiringMap<K, V> {
    pub(crate) fn new(lifetime: Duration, capacity: usize) -> Self {
        Self {
            lifetime,
            capacity,
            entries: Mutex::default(),
        }
    }

    pub(crate) fn insert(&self, key: K, value: V) {
        let mut entries = self.live();
        if entries.len() < self.capacity || entries.contains_key(&key) {
            entries.insert(key, (Instant::now(), value));
        }
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        self.live().get(key).map(|(_, value)| value.clone())
    }

    pub(crate) fn keys(&self) -> Vec<K>
    where
        K: Clone,
    {
        self.live().keys().cloned().collect()
    }

    pub(crate) fn remove(&self, key: &K) {
        self.live().remove(key);
    }

    fn live(&self) -> MutexGuard<'_, HashMap<K, (Instant, V)>> {
        let mut entries = self.entries.lock();
        entries.retain(|_, (at, _)| at.elapsed() < self.lifetime);
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn entries_expire_and_capacity_is_limited() {
        let lifetime = Duration::from_secs(3);
        let map = ExpiringMap::new(lifetime, 2);
        for key in 0..3 {
            map.insert(key, key * 10);
        }
        assert_eq!([map.get(&0), map.get(&1), map.get(&2)], [Some(0), Some(10), None]);
        map.insert(1, 11);
        map.remove(&0);
        assert_eq!((map.get(&0), map.get(&1)), (None, Some(11)));
        assert_eq!(map.keys(), [1]);
        tokio::time::advance(lifetime.saturating_sub(Duration::from_millis(1))).await;
        assert_eq!(map.get(&1), Some(11));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(map.get(&1), None);
        map.insert(2, 20);
        assert_eq!(map.live().len(), 1);
    }
}
