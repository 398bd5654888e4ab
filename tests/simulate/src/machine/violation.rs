//! What must never happen to a volume.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

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

/// All of them. Clones share the list.
#[derive(Debug, Clone, Default)]
pub struct Violations(Arc<Mutex<Vec<Violation>>>);

impl Violations {
    pub(super) fn report(&self, violation: Violation) {
        tracing::error!(%violation, "this must not happen");
        lock(&self.0).push(violation);
    }

    /// Those so far, the first first.
    pub fn list(&self) -> Vec<Violation> {
        lock(&self.0).clone()
    }
}
