// SPDX-License-Identifier: Apache-2.0
//! Violations: events that must never happen to a volume.

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::lock;

/// An event that must not happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Time since the start of the clock that all nodes share.
    pub at: Duration,
    pub node: String,
    /// Id of the volume.
    pub volume: String,
    /// Description.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, node, volume, what } = self;
        write!(f, "{:.3} s: node {node}, volume {volume}: {what}", at.as_secs_f64())
    }
}

/// Observes events of nodes. Methods run under the node's lock, so they must not call the node.
pub trait Observer: Debug + Send + Sync {
    /// A call of the driver runs.
    fn call(&self, node: &str) {
        let _ = node;
    }

    /// A line for the trace: a mount, a start or end of a program, an attached or detached disk.
    fn note(&self, node: &str, what: &str);

    /// A violation, which is also recorded in the list.
    fn violation(&self, violation: &Violation);
}

/// All violations. Clones share the list.
#[derive(Debug, Clone, Default)]
pub struct Violations {
    list: Arc<Mutex<Vec<Violation>>>,
    observer: Option<Arc<dyn Observer>>,
}

impl Violations {
    /// Creates a list, and notifies an observer of the nodes.
    pub fn observed_by(observer: Arc<dyn Observer>) -> Self {
        Self {
            list: Arc::default(),
            observer: Some(observer),
        }
    }

    /// Returns the violations so far, oldest first.
    pub fn list(&self) -> Vec<Violation> {
        lock(&self.list).clone()
    }

    pub(super) fn report(&self, violation: Violation) {
        if let Some(observer) = &self.observer {
            observer.violation(&violation);
        }
        lock(&self.list).push(violation);
    }

    pub(super) fn call(&self, node: &str) {
        if let Some(observer) = &self.observer {
            observer.call(node);
        }
    }

    pub(super) fn note(&self, node: &str, what: impl FnOnce() -> String) {
        if let Some(observer) = &self.observer {
            observer.note(node, &what());
        }
    }
}
