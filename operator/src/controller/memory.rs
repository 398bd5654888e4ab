// SPDX-License-Identifier: Apache-2.0
//! The memory of the process. It only saves work: a new process starts without it and reaches the same result.
//!
//! Each concern has a type of its own, whose methods keep its values consistent.

mod backoff;
mod classes;
mod drift;
mod environment;
mod rollout;
mod suspension;
mod volumes;

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::time::Instant;

pub(super) use backoff::Backoff;
pub(super) use classes::{ClassesMemory, ListedContents};
pub(super) use drift::DriftMemory;
pub(super) use environment::{ClusterIdentity, EnvironmentMemory};
pub(super) use rollout::RolloutMemory;
pub(super) use suspension::SuspensionMemory;
pub(super) use volumes::{LastReconcile, ObjectState, VolumesMemory};

use crate::{migration::MigrationMemory, observe::LeaseRenewals};

/// The memory of all reconciles.
#[derive(Debug, Default)]
pub struct Memories {
    pub(super) environment: EnvironmentMemory,
    objects: Mutex<HashMap<String, ObjectMemory>>,
}

/// The memory about one object.
#[derive(Debug, Default)]
pub(super) struct ObjectMemory {
    /// The uid of the object. Generations of a later object with the same name start at 1 again, so no value is valid for it.
    uid: Option<String>,
    /// The time of the first change without a reconcile after it.
    changed: Option<Instant>,
    /// The observed renewals of Leases of other programs.
    pub(super) leases: Arc<LeaseRenewals>,
    pub(super) backoff: Backoff,
    pub(super) classes: ClassesMemory,
    pub(super) drift: DriftMemory,
    pub(super) migration: Arc<MigrationMemory>,
    pub(super) rollout: RolloutMemory,
    pub(super) suspension: SuspensionMemory,
    pub(super) volumes: VolumesMemory,
}

impl ObjectMemory {
    /// Records a change at this time that requires a reconcile.
    pub(super) fn record_change(&mut self, at: Instant) {
        self.changed = Some(self.changed.map_or(at, |first| first.min(at)));
    }

    /// Takes the time of the first change without a reconcile after it.
    pub(super) fn take_change(&mut self) -> Option<Instant> {
        self.changed.take()
    }
}

impl Memories {
    /// Reads or changes the memory about an object.
    pub(super) fn with_object<T>(&self, driver: &str, access: impl FnOnce(&mut ObjectMemory) -> T) -> T {
        let mut objects = self.objects.lock();
        access(objects.entry(driver.to_owned()).or_default())
    }

    /// Changes the memory about an object if there is one.
    pub(super) fn with_known_object(&self, driver: &str, change: impl FnOnce(&mut ObjectMemory)) {
        let mut objects = self.objects.lock();
        if let Some(memory) = objects.get_mut(driver) {
            change(memory);
        }
    }

    /// Whether the memory is about an earlier object of the same name.
    pub(super) fn is_of_other_uid(&self, driver: &str, uid: &str) -> bool {
        let is_other = |memory: &mut ObjectMemory| memory.uid.as_deref().is_some_and(|known| known != uid);
        self.with_object(driver, is_other)
    }

    pub(super) fn set_uid(&self, driver: &str, uid: &str) {
        self.with_object(driver, |memory| memory.uid = Some(uid.to_owned()));
    }

    pub(super) fn forget_object(&self, driver: &str) {
        self.objects.lock().remove(driver);
    }
}
