// SPDX-License-Identifier: Apache-2.0
//! The migration policy of a retype.

/// Whether a change of the type may move the data to another backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MigrationPolicy {
    /// Cinder must not move the data. A change that requires it fails, and the volume stays unchanged.
    #[default]
    Never,
    /// Cinder may move the data if the change requires it.
    OnDemand,
}

impl MigrationPolicy {
    /// The spelling of Cinder's API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::OnDemand => "on-demand",
        }
    }
}
