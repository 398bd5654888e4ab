// SPDX-License-Identifier: Apache-2.0
//! What the cloud holds, as tests see it and as it is kept in a backing folder.

mod resources;
mod words;

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::config::ServerSpec;
pub use resources::{Backup, Group, GroupSnapshot, GroupType, Snapshot, Volume};
pub use words::{AttachmentStatus, BackupStatus, GroupStatus, SnapshotStatus, VolumeStatus};

/// Cinder's record of an attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    pub id: String,
    pub volume_id: String,
    pub server_id: Option<String>,
    pub status: AttachmentStatus,
    /// Whether it has connection information: from then on, deleting it is Nova's business.
    pub connected: bool,
    /// `rw` or `ro`; absent as long as nobody has said it.
    pub mode: Option<String>,
    /// What the guest calls the device, once it is attached.
    pub device: Option<String>,
    pub attached_at: Option<Timestamp>,
}

/// Nova's record of an attachment, a block device mapping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    pub id: String,
    pub volume_id: String,
    pub server_id: String,
    pub attachment_id: String,
    /// What the guest calls the device, for instance `/dev/vdb`.
    pub device: String,
    pub tag: Option<String>,
    pub delete_on_termination: bool,
    /// Whether a detachment is under way.
    pub detaching: bool,
    /// The loop device that carries its data, with a backing folder.
    pub loop_device: Option<LoopDevice>,
}

/// The loop device of an attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopDevice {
    /// The device node, for instance `/dev/loop3`.
    pub path: PathBuf,
    /// Its link in the server's by-id folder.
    pub link: PathBuf,
}

/// A server, as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    #[serde(flatten)]
    pub spec: ServerSpec,
    pub vm_state: String,
    pub task_state: Option<String>,
    /// Only an administrator may change it.
    pub locked: bool,
    /// The compute service of its host does not answer.
    pub host_down: bool,
}

/// A message of Cinder to its user: why work that was accepted failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserMessage {
    pub id: String,
    /// `VOLUME`, `VOLUME_SNAPSHOT` or `VOLUME_BACKUP`.
    pub resource_type: String,
    pub resource_id: String,
    pub request_id: String,
    pub event_id: String,
    pub text: String,
    pub created_at: Timestamp,
}

/// All that the cloud holds at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CloudState {
    pub volumes: Vec<Volume>,
    pub snapshots: Vec<Snapshot>,
    pub backups: Vec<Backup>,
    pub groups: Vec<Group>,
    pub group_snapshots: Vec<GroupSnapshot>,
    /// Cinder's view of what is attached where.
    pub attachments: Vec<Attachment>,
    /// Nova's view of the same.
    pub mappings: Vec<Mapping>,
    pub servers: Vec<Server>,
    pub messages: Vec<UserMessage>,
}

impl CloudState {
    /// The volume with this id.
    pub fn volume(&self, id: &str) -> Option<&Volume> {
        self.volumes.iter().find(|volume| volume.id == id)
    }

    /// The snapshot with this id.
    pub fn snapshot(&self, id: &str) -> Option<&Snapshot> {
        self.snapshots.iter().find(|snapshot| snapshot.id == id)
    }

    /// The backup with this id.
    pub fn backup(&self, id: &str) -> Option<&Backup> {
        self.backups.iter().find(|backup| backup.id == id)
    }

    /// The group with this id.
    pub fn group(&self, id: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.id == id)
    }

    /// The group snapshot with this id.
    pub fn group_snapshot(&self, id: &str) -> Option<&GroupSnapshot> {
        self.group_snapshots.iter().find(|snapshot| snapshot.id == id)
    }

    /// The loop devices in use.
    pub fn loop_devices(&self) -> impl Iterator<Item = &LoopDevice> {
        self.mappings.iter().filter_map(|mapping| mapping.loop_device.as_ref())
    }
}
