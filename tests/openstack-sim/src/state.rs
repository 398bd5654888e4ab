//! What the cloud holds, as tests see it and as it is kept in a backing folder.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::config::ServerSpec;

/// State of a volume, in Cinder's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum VolumeStatus {
    #[serde(rename = "creating")]
    Creating,
    #[serde(rename = "available")]
    Available,
    #[serde(rename = "reserved")]
    Reserved,
    #[serde(rename = "attaching")]
    Attaching,
    #[serde(rename = "in-use")]
    InUse,
    #[serde(rename = "detaching")]
    Detaching,
    #[serde(rename = "extending")]
    Extending,
    #[serde(rename = "deleting")]
    Deleting,
    #[serde(rename = "error")]
    Error,
    #[serde(rename = "error_deleting")]
    ErrorDeleting,
    #[serde(rename = "error_extending")]
    ErrorExtending,
    #[serde(rename = "maintenance")]
    Maintenance,
}

impl VolumeStatus {
    /// Cinder's word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Available => "available",
            Self::Reserved => "reserved",
            Self::Attaching => "attaching",
            Self::InUse => "in-use",
            Self::Detaching => "detaching",
            Self::Extending => "extending",
            Self::Deleting => "deleting",
            Self::Error => "error",
            Self::ErrorDeleting => "error_deleting",
            Self::ErrorExtending => "error_extending",
            Self::Maintenance => "maintenance",
        }
    }

    /// The status with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        serde_json::from_value(serde_json::Value::String(name.to_owned())).ok()
    }
}

impl fmt::Display for VolumeStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// State of an attachment, in Cinder's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum AttachmentStatus {
    Reserved,
    Attaching,
    Attached,
}

impl AttachmentStatus {
    /// Cinder's word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Attaching => "attaching",
            Self::Attached => "attached",
        }
    }
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Volume {
    pub id: String,
    pub name: Option<String>,
    pub description: Option<String>,
    pub status: VolumeStatus,
    /// GiB.
    pub size: u64,
    pub volume_type: String,
    pub availability_zone: String,
    pub multiattach: bool,
    pub metadata: BTreeMap<String, String>,
    /// Whether Cinder's scheduler has found a backend for it. Until then there is nothing to delete but the record.
    pub scheduled: bool,
    pub snapshot_id: Option<String>,
    pub source_volume_id: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
    /// The size, in GiB, that it is being extended to, and the status that it had before.
    pub extending: Option<(u64, VolumeStatus)>,
}

/// State of a snapshot, in Cinder's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum SnapshotStatus {
    Creating,
    Available,
    Deleting,
    Error,
}

impl SnapshotStatus {
    /// Cinder's word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Available => "available",
            Self::Deleting => "deleting",
            Self::Error => "error",
        }
    }
}

/// A snapshot of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Snapshot {
    pub id: String,
    pub name: Option<String>,
    pub description: Option<String>,
    pub status: SnapshotStatus,
    pub volume_id: String,
    /// GiB.
    pub size: u64,
    pub metadata: BTreeMap<String, String>,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
}

/// Cinder's record of an attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Attachment {
    pub id: String,
    pub volume_id: String,
    pub server_id: Option<String>,
    pub status: AttachmentStatus,
    /// Whether it has connection information: from then on, deleting it is Nova's business.
    pub connected: bool,
    /// What the guest calls the device, once it is attached.
    pub device: Option<String>,
    pub attached_at: Option<Timestamp>,
}

/// Nova's record of an attachment, a block device mapping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
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
#[allow(missing_docs)]
pub struct Server {
    #[serde(flatten)]
    pub spec: ServerSpec,
    pub vm_state: String,
    pub task_state: Option<String>,
}

/// A message of Cinder to its user: why work that was accepted failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct UserMessage {
    pub id: String,
    pub volume_id: String,
    pub request_id: String,
    pub event_id: String,
    pub text: String,
    pub created_at: Timestamp,
}

/// All that the cloud holds at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct CloudState {
    pub volumes: Vec<Volume>,
    pub snapshots: Vec<Snapshot>,
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

    /// The loop devices in use.
    pub fn loop_devices(&self) -> impl Iterator<Item = &LoopDevice> {
        self.mappings.iter().filter_map(|mapping| mapping.loop_device.as_ref())
    }
}
