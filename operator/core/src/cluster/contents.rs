// SPDX-License-Identifier: Apache-2.0
//! Snapshot contents of a driver, as listed by the API server.

/// Contents of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ContentsList {
    /// The operator has not listed them.
    #[default]
    Unlisted,
    /// One response indicates that the API server does not serve the API group.
    Unconfirmed,
    /// Two responses, half a minute apart, indicate that the API server does not serve the API group.
    Unserved,
    /// The driver has none.
    Empty,
    /// The driver has these contents, and perhaps others.
    Exist(Vec<String>),
    /// The list failed, with the cause.
    Failed(String),
}

/// Contents of the driver, and the current state of csi-snapshotter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotContents {
    /// VolumeSnapshotContents.
    pub snapshots: ContentsList,
    /// VolumeGroupSnapshotContents.
    pub groups: ContentsList,
    /// Whether the controller's Deployment includes csi-snapshotter.
    pub has_sidecar: bool,
    /// Whether that csi-snapshotter serves group snapshots.
    pub has_groups: bool,
}

impl ContentsList {
    /// Confirms an unserved API group with an earlier list.
    #[must_use]
    pub fn confirm(self, earlier: Option<&Self>) -> Self {
        match (self, earlier) {
            (Self::Unconfirmed, Some(Self::Unconfirmed | Self::Unserved)) => Self::Unserved,
            (list, _) => list,
        }
    }
}
