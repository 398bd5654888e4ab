// SPDX-License-Identifier: Apache-2.0
//! What needs the driver: as long as there is something, it stays.

/// What needs the driver: names by kind, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blockers {
    /// PersistentVolumes.
    pub volumes: Vec<String>,
    /// VolumeAttachments.
    pub attachments: Vec<String>,
    /// PersistentVolumeClaims whose volume is being made: taken away now, the driver might leave one in Cinder that no object names.
    pub claims: Vec<String>,
    /// VolumeSnapshotContents.
    pub snapshots: Vec<String>,
    /// VolumeGroupSnapshotContents.
    pub group_snapshots: Vec<String>,
}

impl Blockers {
    /// The kinds, for gauges.
    pub const KINDS: [&'static str; 5] = [
        "PersistentVolume",
        "VolumeAttachment",
        "PersistentVolumeClaim",
        "VolumeSnapshotContent",
        "VolumeGroupSnapshotContent",
    ];

    /// In the order of [`Self::KINDS`].
    fn all(&self) -> [&Vec<String>; 5] {
        [
            &self.volumes,
            &self.attachments,
            &self.claims,
            &self.snapshots,
            &self.group_snapshots,
        ]
    }

    /// Whether nothing does.
    pub fn is_empty(&self) -> bool {
        self.by_kind().next().is_none()
    }

    /// Whether only snapshots do.
    pub fn are_snapshots(&self) -> bool {
        self.volumes.is_empty() && self.attachments.is_empty() && self.claims.is_empty() && !self.is_empty()
    }

    /// Whether some of them are of kinds that are not watched.
    pub fn are_unwatched(&self) -> bool {
        !self.snapshots.is_empty() || !self.group_snapshots.is_empty()
    }

    /// Kinds of which there is something, with the names.
    pub fn by_kind(&self) -> impl Iterator<Item = (&'static str, &Vec<String>)> {
        Self::KINDS
            .into_iter()
            .zip(self.all())
            .filter(|(_, names)| !names.is_empty())
    }
}
