// SPDX-License-Identifier: Apache-2.0
//! News of a driver, which become its events.

use crate::reasons::Event;

/// One event to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Notice {
    /// What happened.
    pub event: Event,
    /// The sentence; no times and no counters in it.
    pub note: String,
}

impl Notice {
    /// An event with its sentence.
    pub fn new(event: Event, note: impl Into<String>) -> Self {
        Self {
            event,
            note: note.into(),
        }
    }
}
