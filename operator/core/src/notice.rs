// SPDX-License-Identifier: Apache-2.0
//! Notices about a driver, which the operator sends as events.

use csi_sources::UntrustedText;

use crate::reasons::Event;

/// Maximum number of characters of a note. The API server accepts 1,024 bytes.
const LONGEST_NOTE: usize = 1_000;

/// An event to send.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Notice {
    pub event: Event,
    /// Message of the event, without times and counters.
    pub note: String,
}

impl Notice {
    /// Creates an event with its message, which may contain text of other clients.
    pub fn new(event: Event, note: impl Into<String>) -> Self {
        Self {
            event,
            note: UntrustedText::with_limit(&note.into(), LONGEST_NOTE).to_string(),
        }
    }
}
