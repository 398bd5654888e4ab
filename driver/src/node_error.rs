// SPDX-License-Identifier: Apache-2.0
//! Why a volume is not where it was asked for, and why it is not known which node this is.

use std::path::PathBuf;

use csi_host::{DeviceError, FilesystemError, FsType, MountError, ToolError, UsageError};
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
        volume_id: String,
        path: PathBuf,
        /// What is mounted, as the kernel names it.
        source_name: String,
        device: String,
    },
    /// The volume is staged there, otherwise than asked for.
    #[error("volume {volume_id} is staged at {} as {found}, and {wanted} is asked for; unstage it first", path.display())]
    StagedDifferently {
        volume_id: String,
        path: PathBuf,
        /// How it is staged.
        found: String,
        /// How it is asked for.
        wanted: String,
    },
    /// The volume is not staged.
    #[error("volume {volume_id} is not staged at {}: NodeStageVolume has to come first", path.display())]
    NotStaged { volume_id: String, path: PathBuf },
    /// The volume holds another file system than the one asked for.
    #[error(
        "volume {volume_id} is mounted as {found}, and {wanted} is asked for; ask for {found} in the volume's fsType"
    )]
    OtherType {
        volume_id: String,
        /// What is mounted.
        found: String,
        /// What is asked for.
        wanted: FsType,
    },
    /// Something else is mounted on the target, or the volume with other options.
    #[error("{} has {found} mounted, and volume {volume_id} ({wanted}) is asked for; unpublish it first", path.display())]
    PublishedDifferently {
        volume_id: String,
        path: PathBuf,
        /// What is there.
        found: String,
        /// What is asked for.
        wanted: &'static str,
    },
    /// The access mode allows one target, and the volume is at another.
    #[error("volume {volume_id} is published at {} on this node and its access mode allows no second place", path.display())]
    PublishedElsewhere { volume_id: String, path: PathBuf },
    /// Another volume is where this one is to be unmounted.
    #[error(
        "the disk with serial {serial} is mounted at {}, and that is not volume {volume_id}: nothing was unmounted; name the volume \
         that is there", path.display()
    )]
    OtherVolume {
        volume_id: String,
        path: PathBuf,
        /// What the kernel shows of the disk.
        serial: String,
    },
    /// The volume is unstaged while it is still published.
    #[error(
        "nothing is mounted at the staging path any more, but volume {volume_id} is still mounted at {}: NodeUnpublishVolume has to \
         come first", path.display()
    )]
    StillPublished {
        volume_id: String,
        /// One of the places.
        path: PathBuf,
    },
    /// This node does not see the size that the volume has grown to.
    #[error("the volume has not grown on this node yet: {0}")]
    NotGrown(#[source] DeviceError),
    /// The same of a volume that no pod uses yet.
    #[error(
        "the volume has not grown on this node, and the pod starts with the existing size; the file system grows at the next start \
         after the disk has grown: {0}"
    )]
    NotGrownAtStart(#[source] DeviceError),
    /// The file system cannot grow where it may not be written.
    #[error(
        "volume {volume_id} is mounted read-only on this node ({}) and its file system cannot grow: it grows when it is staged \
         writable", path.display()
    )]
    GrowReadOnly {
        volume_id: String,
        /// Where it is mounted.
        path: PathBuf,
    },
    /// The device refuses writes and its hypervisor or an administrator wants it so.
    #[error(
        "{} (volume {volume_id}) can only be read on this node, and is asked for writable: it was attached read-only, or its \
         backend protects it", device.display()
    )]
    ReadOnlyDevice { volume_id: String, device: PathBuf },
    /// The device could not be set read-only or back.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The path is not a place where the volume is.
    #[error("volume {volume_id} is not at {} on this node", path.display())]
    NotThere { volume_id: String, path: PathBuf },
}

/// Why it is not known who this node is.
#[derive(Debug, Error)]
pub enum InstanceError {
    /// No source knows.
    #[error(
        "it is not known which Nova server this node is: {}; name it by --instance-id and --availability-zone",
        problems.join("; ")
    )]
    Unknown {
        /// What each source said.
        problems: Vec<String>,
    },
    /// There is no zone to tell.
    #[error(
        "it is not known in which availability zone this node is ({reason}), and topology is on: name it by \
         --availability-zone, or turn topology off by --with-topology=false"
    )]
    Zone {
        /// What there is in its place.
        reason: String,
    },
    /// Disks and slots gave no answer.
    #[error(
        "it is not known how many volumes fit on this node: {0}; it is asked again, or say it by --max-volumes-per-node"
    )]
    Slots(#[source] MountError),
}
