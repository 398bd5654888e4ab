// SPDX-License-Identifier: Apache-2.0
//! A value whose changes tasks wait for. tokio's own `watch` wakes them in an order of chance, which no seed decides.

use std::fmt::Debug;
use std::pin::pin;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// A value that is looked at, changed and waited for.
#[derive(Debug, Default)]
pub struct Watched<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Clone + Debug> Watched<T> {
    /// This value.
    pub fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            changed: Notify::new(),
        }
    }

    /// What it is now.
    pub fn get(&self) -> T {
        self.value().clone()
    }

    /// Changes it. Who waits looks at it in the order in which the waits began.
    pub fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.value());
        self.changed.notify_waiters();
    }

    /// Waits until it is so, if it is not. May be dropped.
    pub async fn wait_for(&self, is_so: impl Fn(&T) -> bool) {
        loop {
            let mut changed = pin!(self.changed.notified());
            // Before the look, so that no change is missed.
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
