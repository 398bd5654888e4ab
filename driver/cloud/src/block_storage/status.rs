//! The status of a volume.

use std::fmt;

use serde::{Deserialize, Deserializer};

/// The status of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum VolumeStatus {
    /// Being made.
    Creating,
    /// Being made from an image.
    Downloading,
    /// Being filled from a backup.
    RestoringBackup,
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
    /// Growing.
    Extending,
    /// On its way to another type.
    Retyping,
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
            Self::RestoringBackup => "restoring-backup",
            Self::Available => "available",
            Self::Reserved => "reserved",
            Self::Attaching => "attaching",
            Self::InUse => "in-use",
            Self::Detaching => "detaching",
            Self::Extending => "extending",
            Self::Retyping => "retyping",
            Self::Deleting => "deleting",
            Self::Error => "error",
            Self::ErrorDeleting => "error_deleting",
            Self::Other(text) => text,
        }
    }
}

impl VolumeStatus {
    /// Whether the volume is still being made.
    pub(crate) fn is_coming(&self) -> bool {
        matches!(self, Self::Creating | Self::Downloading | Self::RestoringBackup)
    }

    /// Whether an operation is under way that ends by itself.
    pub(crate) fn is_transition(&self) -> bool {
        self.is_coming()
            || matches!(
                self,
                Self::Reserved | Self::Attaching | Self::Detaching | Self::Extending | Self::Retyping | Self::Deleting
            )
    }

    /// Whether something is being done to the volume that ends by itself, an administrator's work included.
    pub(crate) fn is_under_work(&self) -> bool {
        self.is_transition()
            || matches!(
                self.as_str(),
                "backing-up" | "uploading" | "maintenance" | "reverting" | "managing"
            )
    }

    /// Whether an operation has failed.
    pub(crate) fn is_error(&self) -> bool {
        match self {
            Self::Error | Self::ErrorDeleting => true,
            Self::Other(text) => text.starts_with("error"),
            _ => false,
        }
    }
}

impl From<&str> for VolumeStatus {
    fn from(text: &str) -> Self {
        match text {
            "creating" => Self::Creating,
            "downloading" => Self::Downloading,
            "restoring-backup" => Self::RestoringBackup,
            "available" => Self::Available,
            "reserved" => Self::Reserved,
            "attaching" => Self::Attaching,
            "in-use" => Self::InUse,
            "detaching" => Self::Detaching,
            "extending" => Self::Extending,
            "retyping" => Self::Retyping,
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
