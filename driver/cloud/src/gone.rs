//! What this process has seen to the end of its life. Cinder gives no id twice: what is gone cannot come back, and who asks for its
//! deletion again need not ask Cinder.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ids::VolumeId;

/// How many are remembered; more than sidecars ask about again.
const REMEMBERED: usize = 1024;

/// Volumes whose deletion was followed to its end, the latest ones.
#[derive(Debug, Default)]
pub(crate) struct Gone {
    volumes: Mutex<(VecDeque<VolumeId>, HashSet<VolumeId>)>,
}

impl Gone {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<VolumeId>, HashSet<VolumeId>)> {
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cinder said that it does not know the volume, after it was asked to delete it.
    pub(crate) fn remember(&self, volume: &VolumeId) {
        let mut volumes = self.lock();
        let (order, known) = &mut *volumes;
        if !known.insert(volume.clone()) {
            return;
        }
        order.push_back(volume.clone());
        if order.len() > REMEMBERED
            && let Some(oldest) = order.pop_front()
        {
            known.remove(&oldest);
        }
    }

    /// Whether the volume is gone for certain.
    pub(crate) fn has(&self, volume: &VolumeId) -> bool {
        self.lock().1.contains(volume)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_remembered_and_no_more() {
        let gone = Gone::default();
        let id = |number: usize| VolumeId::new(format!("volume-{number}"));
        for number in 0..=REMEMBERED {
            gone.remember(&id(number));
            gone.remember(&id(number));
        }
        assert!(!gone.has(&id(0)) && gone.has(&id(1)) && gone.has(&id(REMEMBERED)));
        assert_eq!(gone.lock().0.len(), REMEMBERED);
    }
}
