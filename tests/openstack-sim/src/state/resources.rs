// SPDX-License-Identifier: Apache-2.0
//! Resources of Cinder: volumes, snapshots, backups, groups.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{BackupStatus, GroupStatus, SnapshotStatus, VolumeStatus};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    pub id: String,
    pub name: Option<String>,
    pub description: Option<String>,
    pub status: VolumeStatus,
    /// Status to which the volume returns after a backup, an extension or a retype.
    pub previous_status: Option<VolumeStatus>,
    /// Size in GiB.
    pub size: u64,
    /// Name of its type.
    pub volume_type: String,
    pub availability_zone: String,
    pub multiattach: bool,
    #[serde(default)]
    pub encrypted: bool,
    pub metadata: BTreeMap<String, String>,
    /// The backend that the scheduler selected. Without one, a deletion only removes the record.
    pub backend: Option<String>,
    pub snapshot_id: Option<String>,
    pub source_volume_id: Option<String>,
    /// The backup from which it is being restored.
    pub backup_id: Option<String>,
    pub group_id: Option<String>,
    /// `starting`, `migrating`, `completing`, `success`, `error`; absent if it was never migrated.
    pub migration_status: Option<String>,
    /// Scheduler hints such as `same_host` and `different_host`, which have no effect here.
    #[serde(default)]
    pub scheduler_hints: BTreeMap<String, Vec<String>>,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
    /// Target size in GiB of an extension in progress.
    pub new_size: Option<u64>,
}

impl Volume {
    /// Whether it is migrating to another backend. Most operations are then refused.
    pub(crate) fn is_migrating(&self) -> bool {
        self.migration_status
            .as_deref()
            .is_some_and(|status| !["deleting", "error", "success"].contains(&status))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub id: String,
    pub name: Option<String>,
    pub description: Option<String>,
    pub status: SnapshotStatus,
    pub volume_id: String,
    /// Size in GiB.
    pub size: u64,
    pub volume_type: String,
    pub metadata: BTreeMap<String, String>,
    pub group_snapshot_id: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
}

/// A backup of a volume or of one of its snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backup {
    pub id: String,
    pub name: Option<String>,
    pub description: Option<String>,
    pub status: BackupStatus,
    pub volume_id: String,
    pub snapshot_id: Option<String>,
    /// The base of this incremental backup.
    pub parent_id: Option<String>,
    /// Size in GiB.
    pub size: u64,
    pub container: Option<String>,
    pub availability_zone: Option<String>,
    pub object_count: u32,
    pub fail_reason: Option<String>,
    pub metadata: BTreeMap<String, String>,
    /// Metadata of the volume at the time of the backup, which a restore also restores.
    #[serde(default)]
    pub volume_metadata: BTreeMap<String, String>,
    /// Time of the data in the backup.
    pub data_timestamp: Timestamp,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
}

/// A group type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupType {
    pub id: String,
    pub name: String,
    pub description: Option<String>,
    pub is_public: bool,
    /// For example `consistent_group_snapshot_enabled` = `<is> True`.
    pub group_specs: BTreeMap<String, String>,
}

impl GroupType {
    /// Creates a type whose group snapshots are taken volume by volume.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            id: crate::api::id_of(&name),
            name,
            description: None,
            is_public: true,
            group_specs: BTreeMap::new(),
        }
    }

    /// Creates a type with consistent group snapshots.
    pub fn consistent(name: impl Into<String>) -> Self {
        let spec = ("consistent_group_snapshot_enabled".to_owned(), "<is> True".to_owned());
        Self {
            group_specs: BTreeMap::from([spec]),
            ..Self::new(name)
        }
    }
}

/// A generic volume group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub id: String,
    pub name: Option<String>,
    pub description: Option<String>,
    pub status: GroupStatus,
    /// Id of its type.
    pub group_type: String,
    /// Ids of the allowed volume types.
    pub volume_types: Vec<String>,
    pub availability_zone: String,
    /// The backend that the scheduler selected.
    pub backend: Option<String>,
    pub group_snapshot_id: Option<String>,
    pub source_group_id: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
}

/// A snapshot of all volumes of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSnapshot {
    pub id: String,
    pub name: Option<String>,
    pub description: Option<String>,
    pub status: GroupStatus,
    pub group_id: String,
    pub group_type: String,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
}
