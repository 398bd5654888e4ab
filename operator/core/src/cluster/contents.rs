// SPDX-License-Identifier: Apache-2.0
//! The snapshot contents of a driver, as the API server listed them.

/// The contents of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ContentsList {
    /// The operator did not list them.
    #[default]
    Unlisted,
    /// The API server does not serve the API group, by one answer.
    Unconfirmed,
    /// The API server does not serve the API group, by two answers half a minute apart.
    Unserved,
    /// The driver has none.
    Empty,
    /// The driver has these, and perhaps others.
    Exist(Vec<String>),
    /// The list failed, with the cause.
    Failed(String),
}

/// The contents of the driver, and how csi-snapshotter runs now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotContents {
    /// VolumeSnapshotContents.
    pub snapshots: ContentsList,
    /// VolumeGroupSnapshotContents.
    pub groups: ContentsList,
    /// Whether the controller's Deployment has a csi-snapshotter.
    pub has_sidecar: bool,
    /// Whether that csi-snapshotter serves groups.
    pub has_groups: bool,
}

impl ContentsList {
    /// Confirms an unserved API group by an earlier list.
    #[must_use]
    pub fn confirm(self, earlier: Option<&Self>) -> Self {
        match (self, earlier) {
            (Self::Unconfirmed, Some(Self::Unconfirmed | Self::Unserved)) => Self::Unserved,
            (list, _) => list,
        }
    }
}
