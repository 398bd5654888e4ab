// SPDX-License-Identifier: Apache-2.0
//! State of the cloud, for tests and for the backing folder.

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
    /// Whether it has connection information. From then on, only Nova may delete it.
    pub connected: bool,
    /// `rw` or `ro`; absent until it is set.
    pub mode: Option<String>,
    /// Device name in the guest, once it is attached.
    pub device: Option<String>,
    pub attached_at: Option<Timestamp>,
}

/// Nova's record of an attachment (a block device mapping).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    pub id: String,
    pub volume_id: String,
    pub server_id: String,
    pub attachment_id: String,
    /// Device name in the guest, for example `/dev/vdb`.
    pub device: String,
    pub tag: Option<String>,
    pub delete_on_termination: bool,
    /// Whether a detach is in progress.
    pub detaching: bool,
    /// The loop device with the volume's data, if there is a backing folder.
    pub loop_device: Option<LoopDevice>,
}

/// The loop device of an attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopDevice {
    /// Device node, for example `/dev/loop3`.
    pub path: PathBuf,
    /// Link in the server's by-id folder.
    pub link: PathBuf,
}

/// A server and its current state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    #[serde(flatten)]
    pub spec: ServerSpec,
    pub vm_state: String,
    pub task_state: Option<String>,
    /// Whether only administrators may change it.
    pub locked: bool,
    /// Whether the compute service of its host is down.
    pub host_down: bool,
}

/// A user message of Cinder: the reason why accepted work failed.
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

/// Complete state of the cloud at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CloudState {
    pub volumes: Vec<Volume>,
    pub snapshots: Vec<Snapshot>,
    pub backups: Vec<Backup>,
    pub groups: Vec<Group>,
    pub group_snapshots: Vec<GroupSnapshot>,
    /// Cinder's attachments.
    pub attachments: Vec<Attachment>,
    /// Nova's attachments.
    pub mappings: Vec<Mapping>,
    pub servers: Vec<Server>,
    pub messages: Vec<UserMessage>,
}

impl CloudState {
    pub fn volume(&self, id: &str) -> Option<&Volume> {
        self.volumes.iter().find(|volume| volume.id == id)
    }

    pub fn snapshot(&self, id: &str) -> Option<&Snapshot> {
        self.snapshots.iter().find(|snapshot| snapshot.id == id)
    }

    pub fn backup(&self, id: &str) -> Option<&Backup> {
        self.backups.iter().find(|backup| backup.id == id)
    }

    pub fn group(&self, id: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.id == id)
    }

    pub fn group_snapshot(&self, id: &str) -> Option<&GroupSnapshot> {
        self.group_snapshots.iter().find(|snapshot| snapshot.id == id)
    }

    /// Returns the loop devices in use.
    pub fn loop_devices(&self) -> impl Iterator<Item = &LoopDevice> {
        self.mappings.iter().filter_map(|mapping| mapping.loop_device.as_ref())
    }
}
