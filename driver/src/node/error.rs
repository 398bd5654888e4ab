//! Why a volume is not where it was asked for.

use std::path::PathBuf;

use csi_host::{DeviceError, FilesystemError, FsType, MountError, UsageError};
use thiserror::Error;

/// Why the node service could not do what it was asked.
#[derive(Debug, Error)]
pub enum NodeError {
    /// No device is surely the volume.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The volume cannot be mounted as it is.
    #[error(transparent)]
    Filesystem(#[from] FilesystemError),
    /// Mounting or unmounting failed.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The usage is not known.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// Something else is mounted on the staging path.
    #[error(
        "{source_name} is mounted on the staging path {} and is not volume {volume_id} ({device}); unstage what is there first",
        path.display()
    )]
    StagedOther {
        /// The volume.
        volume_id: String,
        /// The staging path.
        path: PathBuf,
        /// What is mounted, as the kernel names it.
        source_name: String,
        /// The volume's device.
        device: String,
    },
    /// The volume is staged there, otherwise than asked for.
    #[error("volume {volume_id} is staged at {} as {found}, and {wanted} is asked for; unstage it first", path.display())]
    StagedDifferently {
        /// The volume.
        volume_id: String,
        /// The staging path.
        path: PathBuf,
        /// How it is staged.
        found: String,
        /// How it is asked for.
        wanted: String,
    },
    /// The volume is not staged.
    #[error("volume {volume_id} is not staged at {}: NodeStageVolume has to come first", path.display())]
    NotStaged {
        /// The volume.
        volume_id: String,
        /// The staging path.
        path: PathBuf,
    },
    /// The volume holds another file system than the one asked for.
    #[error(
        "volume {volume_id} is mounted as {found}, and {wanted} is asked for; ask for {found} in the volume's fsType"
    )]
    OtherType {
        /// The volume.
        volume_id: String,
        /// What is mounted.
        found: String,
        /// What is asked for.
        wanted: FsType,
    },
    /// Something else is mounted on the target, or the volume with other options.
    #[error("{} has {found} mounted, and volume {volume_id} ({wanted}) is asked for; unpublish it first", path.display())]
    PublishedDifferently {
        /// The volume.
        volume_id: String,
        /// The target path.
        path: PathBuf,
        /// What is there.
        found: String,
        /// What is asked for.
        wanted: &'static str,
    },
    /// The access mode allows one target, and the volume is at another.
    #[error("volume {volume_id} is published at {} on this node and its access mode allows no second place", path.display())]
    PublishedElsewhere {
        /// The volume.
        volume_id: String,
        /// The other target.
        path: PathBuf,
    },
    /// The volume is unstaged while it is still published.
    #[error("volume {volume_id} is still mounted at {}: NodeUnpublishVolume has to come first", path.display())]
    StillPublished {
        /// The volume.
        volume_id: String,
        /// One of the places.
        path: PathBuf,
    },
    /// The path is not a place where the volume is.
    #[error("volume {volume_id} is not at {} on this node", path.display())]
    NotThere {
        /// The volume.
        volume_id: String,
        /// The path.
        path: PathBuf,
    },
}
