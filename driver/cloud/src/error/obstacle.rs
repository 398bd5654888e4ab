// SPDX-License-Identifier: Apache-2.0
//! Obstacles to an attachment or a detachment.

use std::fmt;

/// The reason why an attachment or a detachment cannot continue by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// The operation exceeds its time.
    Stuck,
    /// Another operation on the volume is in progress.
    Busy,
    /// The state of the server does not allow attachments and detachments.
    Server,
    /// Cinder has an attachment of which Nova has no record.
    Disagreement,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stuck => "it is stuck",
            Self::Busy => "something else is being done to the volume",
            Self::Server => "the server's state does not allow it",
            Self::Disagreement => "Cinder and Nova disagree",
        })
    }
}
