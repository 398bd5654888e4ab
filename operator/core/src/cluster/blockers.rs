// SPDX-License-Identifier: Apache-2.0
//! Objects that need the driver and block its removal.

/// Names of objects that need the driver, by kind, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blockers {
    pub volumes: Vec<String>,
    pub attachments: Vec<String>,
    /// PersistentVolumeClaims whose volume the driver is creating. A removal in this state could orphan a volume in
    /// Cinder.
    pub claims: Vec<String>,
    pub snapshots: Vec<String>,
    pub group_snapshots: Vec<String>,
}

impl Blockers {
    /// The kinds, for metrics.
    pub const KINDS: [&'static str; 5] = [
        "PersistentVolume",
        "VolumeAttachment",
        "PersistentVolumeClaim",
        "VolumeSnapshotContent",
        "VolumeGroupSnapshotContent",
    ];

    /// Returns the names in the order of [`Self::KINDS`].
    fn all(&self) -> [&Vec<String>; 5] {
        [
            &self.volumes,
            &self.attachments,
            &self.claims,
            &self.snapshots,
            &self.group_snapshots,
        ]
    }

    pub fn is_empty(&self) -> bool {
        self.by_kind().next().is_none()
    }

    /// Whether only snapshots need the driver.
    pub fn are_snapshots(&self) -> bool {
        self.volumes.is_empty() && self.attachments.is_empty() && self.claims.is_empty() && !self.is_empty()
    }

    /// Whether some objects are of kinds without a watch.
    pub fn are_unwatched(&self) -> bool {
        !self.snapshots.is_empty() || !self.group_snapshots.is_empty()
    }

    /// Returns the kinds with objects, and their names.
    pub fn by_kind(&self) -> impl Iterator<Item = (&'static str, &Vec<String>)> {
        Self::KINDS
            .into_iter()
            .zip(self.all())
            .filter(|(_, names)| !names.is_empty())
    }
}
