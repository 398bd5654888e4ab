// SPDX-License-Identifier: Apache-2.0
//! Calls that sidecars repeat until they succeed or fail finally.

use std::fmt;

/// Sidecars that call the Controller service. Each has its own leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sidecar {
    /// external-provisioner
    Provisioner,
    /// external-attacher
    Attacher,
    /// external-resizer
    Resizer,
    /// external-snapshotter
    Snapshotter,
}

impl Sidecar {
    pub const ALL: [Self; 4] = [Self::Provisioner, Self::Attacher, Self::Resizer, Self::Snapshotter];
}

/// A call of a sidecar and its resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// CreateVolume with the name of a claim.
    CreateVolume { name: String },
    /// DeleteVolume.
    DeleteVolume { volume: String },
    /// ControllerPublishVolume.
    Publish { volume: String, server: String },
    /// ControllerUnpublishVolume.
    Unpublish { volume: String, server: String },
    /// ControllerExpandVolume to at least this number of bytes.
    Expand { volume: String, bytes: i64 },
    /// ControllerModifyVolume to this volume type.
    Modify { volume: String, volume_type: &'static str },
    /// ListVolumes, all pages.
    ListVolumes,
    /// ListSnapshots, all pages.
    ListSnapshots,
    /// GetCapacity.
    GetCapacity,
    /// CreateSnapshot with the name of a snapshot or a backup.
    CreateSnapshot { name: String },
    /// DeleteSnapshot.
    DeleteSnapshot { snapshot: String },
    /// CreateVolumeGroupSnapshot with its name.
    CreateGroupSnapshot { name: String },
    /// DeleteVolumeGroupSnapshot.
    DeleteGroupSnapshot { id: String },
}

impl Call {
    /// Returns the sidecar that sends the call.
    pub fn sidecar(&self) -> Sidecar {
        match self {
            Self::CreateVolume { .. } | Self::DeleteVolume { .. } | Self::GetCapacity => Sidecar::Provisioner,
            Self::Publish { .. } | Self::Unpublish { .. } | Self::ListVolumes => Sidecar::Attacher,
            Self::Expand { .. } | Self::Modify { .. } => Sidecar::Resizer,
            Self::ListSnapshots
            | Self::CreateSnapshot { .. }
            | Self::DeleteSnapshot { .. }
            | Self::CreateGroupSnapshot { .. }
            | Self::DeleteGroupSnapshot { .. } => Sidecar::Snapshotter,
        }
    }

    /// Returns the volume of the call.
    pub fn volume(&self) -> Option<&str> {
        match self {
            Self::DeleteVolume { volume }
            | Self::Publish { volume, .. }
            | Self::Unpublish { volume, .. }
            | Self::Expand { volume, .. }
            | Self::Modify { volume, .. } => Some(volume),
            _ => None,
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateVolume { name } => write!(f, "CreateVolume of {name}"),
            Self::DeleteVolume { volume } => write!(f, "DeleteVolume of {volume}"),
            Self::Publish { volume, server } => write!(f, "ControllerPublishVolume of {volume} to {server}"),
            Self::Unpublish { volume, server } => write!(f, "ControllerUnpublishVolume of {volume} from {server}"),
            Self::Expand { volume, bytes } => write!(f, "ControllerExpandVolume of {volume} to {bytes} bytes"),
            Self::Modify { volume, volume_type } => write!(f, "ControllerModifyVolume of {volume} to {volume_type}"),
            Self::ListVolumes => f.write_str("ListVolumes"),
            Self::ListSnapshots => f.write_str("ListSnapshots"),
            Self::GetCapacity => f.write_str("GetCapacity"),
            Self::CreateSnapshot { name } => write!(f, "CreateSnapshot of {name}"),
            Self::DeleteSnapshot { snapshot } => write!(f, "DeleteSnapshot of {snapshot}"),
            Self::CreateGroupSnapshot { name } => write!(f, "CreateVolumeGroupSnapshot of {name}"),
            Self::DeleteGroupSnapshot { id } => write!(f, "DeleteVolumeGroupSnapshot of {id}"),
        }
    }
}
