// SPDX-License-Identifier: Apache-2.0
//! Moves of a volume from one backend to another.

/// Whether a change of type may move the data to another backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MigrationPolicy {
    /// It may not; a change that takes it fails and leaves the volume as it was.
    #[default]
    Never,
    /// It may where it must.
    OnDemand,
}

impl MigrationPolicy {
    /// As Cinder writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::OnDemand => "on-demand",
        }
    }
}
