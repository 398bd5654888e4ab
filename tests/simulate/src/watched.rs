// SPDX-License-Identifier: Apache-2.0
//! An observable value. tokio's `watch` wakes its waiters in a random order that no seed determines.

use std::fmt::Debug;
use std::pin::pin;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// A value that tasks read, change and wait for.
#[derive(Debug, Default)]
pub struct WatchedValue<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Clone + Debug> WatchedValue<T> {
    /// Creates an instance with this value.
    pub fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            changed: Notify::new(),
        }
    }

    /// Returns the current value.
    pub fn get(&self) -> T {
        self.value().clone()
    }

    /// Changes the value. Waiters check it in the order of their registration.
    pub fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.value());
        self.changed.notify_waiters();
    }

    /// Waits until the predicate is true. The future may be dropped.
    pub async fn wait_for(&self, is_so: impl Fn(&T) -> bool) {
        loop {
            let mut changed = pin!(self.changed.notified());
            // Registers before the check, so that no change is missed.
            changed.as_mut().enable();
            if is_so(&self.get()) {
                return;
            }
            changed.await;
        }
    }

    fn value(&self) -> MutexGuard<'_, T> {
        self.value.lock()
    }
}
