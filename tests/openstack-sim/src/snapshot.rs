//! What the cloud holds, as tests see it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

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

/// State of an attachment, in Cinder's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum AttachmentStatus {
    Reserved,
    Attaching,
    Attached,
    Detaching,
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
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
    /// Status to which a failed or finished operation returns.
    pub previous_status: Option<VolumeStatus>,
}

/// A volume's attachment to a server: Cinder's record, and Nova's block device mapping with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Attachment {
    pub id: String,
    pub volume_id: String,
    pub server_id: String,
    pub status: AttachmentStatus,
    /// What the guest calls it, for instance `/dev/vdb`.
    pub device: String,
    pub attached_at: Option<Timestamp>,
    /// UUID of Nova's block device mapping.
    pub mapping_id: String,
    /// The loop device that carries its data, with a backing folder.
    pub loop_device: Option<LoopDevice>,
}

/// The loop device of an attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopDevice {
    /// The device node, for instance `/dev/loop3`.
    pub path: PathBuf,
    /// Its link in the server's by-id folder.
    pub link: Option<PathBuf>,
}

/// All that the cloud holds at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct CloudState {
    pub volumes: Vec<Volume>,
    pub attachments: Vec<Attachment>,
}

impl CloudState {
    /// The volume with this id.
    pub fn volume(&self, id: &str) -> Option<&Volume> {
        self.volumes.iter().find(|volume| volume.id == id)
    }

    /// The loop devices in use.
    pub fn loop_devices(&self) -> impl Iterator<Item = &LoopDevice> {
        self.attachments.iter().filter_map(|attachment| attachment.loop_device.as_ref())
    }
}
