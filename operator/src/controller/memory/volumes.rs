// SPDX-License-Identifier: Apache-2.0

use std::collections::{BTreeMap, BTreeSet};

use cinder_csi_crds::CinderCSIDriver;
use cinder_operator_core::decide::{Decision, Facts, Outcome};
use tokio::time::Instant;

/// The last full reconcile, and the volumes that have led to a check of the credentials.
#[derive(Debug, Default)]
pub(crate) struct VolumesMemory {
    last_reconcile: Option<LastReconcile>,
    /// How many times a full reconcile was requested.
    calls: u64,
    /// The objects that have led to a check of the credentials.
    doubts: BTreeSet<String>,
}

/// The result of the last full reconcile. Until it expires, changes of volumes need no other one.
#[derive(Debug)]
pub(crate) struct LastReconcile {
    pub(crate) of: ObjectState,
    pub(crate) facts: Facts,
    pub(crate) decision: Decision,
    pub(crate) outcome: Outcome,
    /// When the next full reconcile is due.
    pub(crate) until: Instant,
    /// The attachments that a change waits for.
    pub(crate) awaited: Vec<(String, String)>,
}

/// The part of an object that a full reconcile depends on.
#[derive(Debug, PartialEq)]
pub(crate) struct ObjectState {
    uid: Option<String>,
    generation: Option<i64>,
    annotations: Option<BTreeMap<String, String>>,
    finalizers: Option<Vec<String>>,
}

impl ObjectState {
    pub(crate) fn of(driver: &CinderCSIDriver) -> Self {
        let meta = &driver.metadata;
        Self {
            uid: meta.uid.clone(),
            generation: meta.generation,
            annotations: meta.annotations.clone(),
            finalizers: meta.finalizers.clone(),
        }
    }
}

impl VolumesMemory {
    /// Requests a full reconcile.
    pub(crate) fn request_full_reconcile(&mut self) {
        self.calls += 1;
        self.last_reconcile = None;
    }

    /// How many times a full reconcile was requested.
    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    /// Takes the last full reconcile if it is still valid. The caller has to remember it again.
    pub(crate) fn take_last_reconcile(&mut self) -> Option<LastReconcile> {
        self.last_reconcile.take()
    }

    /// Remembers a reconcile that began after this number of requests, unless another one was requested since then.
    pub(crate) fn remember_reconcile(&mut self, calls: u64, look: LastReconcile) {
        self.last_reconcile = Some(look).filter(|_| self.calls == calls);
    }

    /// Whether all these objects have led to a check of the credentials before.
    pub(crate) fn are_known_doubts(&self, objects: &BTreeSet<String>) -> bool {
        objects.is_subset(&self.doubts)
    }

    /// Records the objects that have led to a check of the credentials.
    pub(crate) fn remember_doubts(&mut self, objects: BTreeSet<String>) {
        self.doubts = objects;
    }

    /// Drops the record of all other objects.
    pub(crate) fn retain_doubts(&mut self, objects: &BTreeSet<String>) {
        self.doubts.retain(|object| objects.contains(object));
    }
}
