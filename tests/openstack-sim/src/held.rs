// SPDX-License-Identifier: Apache-2.0
//! Requests that a fault rule currently delays.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;

use crate::faults::When;

/// A delayed request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeldRequest {
    /// HTTP method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Operation name, as in the log.
    pub operation: &'static str,
    /// Whether it has taken effect.
    pub when: When,
}

/// All delayed requests, oldest first.
#[derive(Debug, Default)]
pub(crate) struct HeldRequests {
    all: Mutex<Vec<Arc<HeldRequest>>>,
}

/// Removes the request from the list on drop: after the delay, or when the client disconnects.
#[derive(Debug)]
pub(crate) struct Hold<'a> {
    held: &'a HeldRequests,
    request: Arc<HeldRequest>,
}

impl HeldRequests {
    pub(crate) fn hold(&self, request: HeldRequest) -> Hold<'_> {
        let request = Arc::new(request);
        self.lock().push(Arc::clone(&request));
        Hold { held: self, request }
    }

    pub(crate) fn list(&self) -> Vec<HeldRequest> {
        self.lock().iter().map(|request| HeldRequest::clone(request)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<HeldRequest>>> {
        self.all.lock()
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.held.lock().retain(|other| !Arc::ptr_eq(other, &self.request));
    }
}
