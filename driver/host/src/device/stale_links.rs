// SPDX-License-Identifier: Apache-2.0
//! By-id links whose removal udev missed.

use std::collections::BTreeSet;
use std::path::PathBuf;

use parking_lot::Mutex;

use super::DeviceError;

/// Stale links that were logged, with the disk to which they lead. The log reports each of them once, although the
/// driver searches for a volume each minute.
#[derive(Debug, Default)]
pub(crate) struct StaleLinks(Mutex<BTreeSet<(PathBuf, String)>>);

impl StaleLinks {
    pub(super) fn report(&self, error: &DeviceError) {
        let DeviceError::Stale { link, device, .. } = error else {
            return;
        };
        let mut logged = self.0.lock();
        if logged.len() < MOST_STALE_LINKS && logged.insert((link.clone(), device.clone())) {
            tracing::warn!(%error, "a link is ignored, because another disk is the volume");
        }
    }
}

/// Limit of logged links. Further stale links are not logged.
pub(super) const MOST_STALE_LINKS: usize = 1_000;
