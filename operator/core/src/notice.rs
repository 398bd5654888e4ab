// SPDX-License-Identifier: Apache-2.0
//! News of a driver, which become its events.

use csi_sources::UntrustedText;

use crate::reasons::Event;

/// The most characters of a note. The API server takes 1,024 bytes.
const LONGEST_NOTE: usize = 1_000;

/// One event to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Notice {
    /// What happened.
    pub event: Event,
    /// The sentence; no times and no counters in it.
    pub note: String,
}

impl Notice {
    /// An event with its sentence, which may contain text of other clients.
    pub fn new(event: Event, note: impl Into<String>) -> Self {
        Self {
            event,
            note: UntrustedText::with_limit(&note.into(), LONGEST_NOTE).to_string(),
        }
    }
}
