// SPDX-License-Identifier: Apache-2.0
//! What an error is about.

use std::fmt;

/// The kind of an object that was looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    Volume,
    Snapshot,
    Backup,
    /// A group of volumes in Cinder.
    Group,
    /// A snapshot of a group in Cinder.
    GroupSnapshot,
    Server,
    /// What a path of the API names, when it cannot be told more exactly.
    Resource,
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Volume => "volume",
            Self::Snapshot => "snapshot",
            Self::Backup => "backup",
            Self::Group => "group",
            Self::GroupSnapshot => "group snapshot",
            Self::Server => "server",
            Self::Resource => "resource",
        })
    }
}
