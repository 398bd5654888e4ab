// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;

use cinder_operator_core::{cluster::Key, plan::Unapplied};

/// The last state of the driver's objects, to recognize changes by other clients.
#[derive(Debug, Default)]
pub(crate) struct DriftMemory {
    /// The fields that earlier applies did not change.
    pub(crate) unapplied: Unapplied,
    /// The desired objects that have existed. `None` before the first reconcile of this process.
    pub(crate) objects: Option<BTreeSet<Key>>,
}

impl DriftMemory {
    /// Replaces the known objects by the result of `update`, which receives the previous ones.
    pub(crate) fn update_objects(&mut self, update: impl FnOnce(&BTreeSet<Key>) -> BTreeSet<Key>) {
        let known = self.objects.take().unwrap_or_default();
        self.objects = Some(update(&known));
    }
}
