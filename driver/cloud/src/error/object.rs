// SPDX-License-Identifier: Apache-2.0
//! The kinds of objects in errors.

use std::fmt;

/// The kind of an object in an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    Volume,
    Snapshot,
    Backup,
    Group,
    /// A snapshot of a group of volumes in Cinder.
    GroupSnapshot,
    Server,
    /// Any object of an API path, if the kind is unknown.
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
