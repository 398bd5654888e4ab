// SPDX-License-Identifier: Apache-2.0
//! What must never happen to a volume.

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::lock;

/// One thing that must not have happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Since the clock that all nodes share began.
    pub at: Duration,
    /// The node.
    pub node: String,
    /// The volume's id.
    pub volume: String,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, node, volume, what } = self;
        write!(f, "{:.3} s: node {node}, volume {volume}: {what}", at.as_secs_f64())
    }
}

/// Who follows what nodes do. It is called within the node's lock, so it asks the node nothing.
pub trait Observer: Debug + Send + Sync {
    /// A call of the driver runs.
    fn call(&self, node: &str) {
        let _ = node;
    }

    /// A line for the trace: a mount, a program that starts or ends, a disk that comes or goes.
    fn note(&self, node: &str, what: &str);

    /// Something must not have happened. The list has it as well.
    fn violation(&self, violation: &Violation);
}

/// All of them. Clones share the list.
#[derive(Debug, Clone, Default)]
pub struct Violations {
    list: Arc<Mutex<Vec<Violation>>>,
    observer: Option<Arc<dyn Observer>>,
}

impl Violations {
    /// A list, and an observer of the nodes that report to it.
    pub fn observed_by(observer: Arc<dyn Observer>) -> Self {
        Self {
            list: Arc::default(),
            observer: Some(observer),
        }
    }

    /// Those so far, the first first.
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
