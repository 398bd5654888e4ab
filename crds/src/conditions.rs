//! The conditions of a `CinderCSIDriver`. Their names are part of the API.

use std::fmt;

/// The type of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// The driver works: the controller serves, the driver is registered on the nodes, its credentials log in.
    Available,
    /// What is wanted is being made.
    Progressing,
    /// Something needs a human.
    Degraded,
}

impl ConditionType {
    /// Every type, in the order of the status.
    pub const ALL: [Self; 3] = [Self::Available, Self::Progressing, Self::Degraded];

    /// As in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Available => "Available",
            Self::Progressing => "Progressing",
            Self::Degraded => "Degraded",
        }
    }
}

impl fmt::Display for ConditionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
