//! Cinder, typed: the few calls that this product makes, in the shapes of API v3.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::ids::{AttachmentId, GiB, ServerId, VolumeId};

/// The status of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum VolumeStatus {
    /// Being made.
    Creating,
    /// Being made from an image.
    Downloading,
    /// Complete and free.
    Available,
    /// Promised to a server; half of an attachment.
    Reserved,
    /// On its way to a server.
    Attaching,
    /// Attached.
    InUse,
    /// On its way from a server.
    Detaching,
    /// Being deleted.
    Deleting,
    /// Failed.
    Error,
    /// Failed to be deleted.
    ErrorDeleting,
    /// Any other status, as Cinder writes it.
    Other(String),
}

impl VolumeStatus {
    /// The status as Cinder writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Creating => "creating",
            Self::Downloading => "downloading",
            Self::Available => "available",
            Self::Reserved => "reserved",
            Self::Attaching => "attaching",
            Self::InUse => "in-use",
            Self::Detaching => "detaching",
            Self::Deleting => "deleting",
            Self::Error => "error",
            Self::ErrorDeleting => "error_deleting",
            Self::Other(text) => text,
        }
    }
}

impl From<&str> for VolumeStatus {
    fn from(text: &str) -> Self {
        match text {
            "creating" => Self::Creating,
            "downloading" => Self::Downloading,
            "available" => Self::Available,
            "reserved" => Self::Reserved,
            "attaching" => Self::Attaching,
            "in-use" => Self::InUse,
            "detaching" => Self::Detaching,
            "deleting" => Self::Deleting,
            "error" => Self::Error,
            "error_deleting" => Self::ErrorDeleting,
            other => Self::Other(other.to_owned()),
        }
    }
}

impl fmt::Display for VolumeStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for VolumeStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self::from(text.as_str()))
    }
}

/// An attachment as the volume shows it: only those that are complete are listed by Cinder.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct VolumeAttachment {
    /// The attachment's own id.
    #[serde(default)]
    pub attachment_id: Option<AttachmentId>,
    /// The server; `None` for a volume attached to a host.
    #[serde(default)]
    pub server_id: Option<ServerId>,
    /// The device name that Nova thought of; the guest may see another one.
    #[serde(default)]
    pub device: Option<String>,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Volume {
    /// Its id.
    pub id: VolumeId,
    /// Its name; empty when it has none.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    /// Its size.
    pub size: GiB,
    /// Its status.
    pub status: VolumeStatus,
    /// The name of its type.
    #[serde(default)]
    pub volume_type: Option<String>,
    /// The availability zone of Cinder.
    #[serde(default)]
    pub availability_zone: Option<String>,
    /// Metadata, as written by whoever made the volume.
    #[serde(default, deserialize_with = "null_as_default")]
    pub metadata: BTreeMap<String, String>,
    /// The attachments that are complete.
    #[serde(default, deserialize_with = "null_as_default")]
    pub attachments: Vec<VolumeAttachment>,
    /// Whether more than one server may have it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub multiattach: bool,
    /// When it was made, UTC without a zone, as Cinder writes it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub created_at: String,
    /// The snapshot that it was made from.
    #[serde(default)]
    pub snapshot_id: Option<String>,
    /// The volume that it was made from.
    #[serde(default)]
    pub source_volid: Option<VolumeId>,
}

impl Volume {
    /// The servers that have the volume.
    pub fn servers(&self) -> Vec<ServerId> {
        self.attachments.iter().filter_map(|attachment| attachment.server_id.clone()).collect()
    }

    /// The complete attachment to a server.
    pub fn attachment_to(&self, server: &ServerId) -> Option<&VolumeAttachment> {
        self.attachments.iter().find(|attachment| attachment.server_id.as_ref() == Some(server))
    }
}

/// What a new volume shall be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewVolume {
    /// The name, by which a repeated creation finds the first one's volume.
    pub name: String,
    /// The size.
    pub size: GiB,
    /// The type, by name or id; Cinder's default when `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<String>,
    /// The availability zone of Cinder; Cinder's choice when `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub availability_zone: Option<String>,
    /// A description for people.
    pub description: String,
    /// Metadata; a found volume is taken for ours only when it has all of it.
    pub metadata: BTreeMap<String, String>,
}

/// Some volumes, and where the next ones begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumePage {
    /// The volumes.
    pub volumes: Vec<Volume>,
    /// The marker for the next page; `None` at the end.
    pub next: Option<VolumeId>,
}

pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}
