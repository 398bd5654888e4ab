// SPDX-License-Identifier: Apache-2.0
//! What is in the way of an attachment or a detachment.

use std::fmt;

/// Why an attachment or a detachment cannot go on by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// It has been under way for too long.
    Stuck,
    /// Something else is being done to the volume.
    Busy,
    /// The server is in a state in which nothing is attached to it or detached from it.
    Server,
    /// Cinder has an attachment of which Nova knows nothing.
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
