// SPDX-License-Identifier: Apache-2.0
//! By-id links whose removal udev missed.

use std::collections::BTreeSet;
use std::path::PathBuf;

use parking_lot::Mutex;

use super::DeviceError;

/// Links that lead to another volume's disk, with that disk, as far as the log has them: a volume is looked for each minute.
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

/// So many stale links are remembered, and no more are logged.
pub(super) const MOST_STALE_LINKS: usize = 1_000;
