// SPDX-License-Identifier: Apache-2.0
//! Errors of the node service: volumes at unexpected paths, and an identity that cannot be determined.

use std::path::PathBuf;

use csi_host::{DeviceError, FilesystemError, FsType, MountError, ToolError, UsageError};
use thiserror::Error;

/// Errors of the CSI Node service.
#[derive(Debug, Error)]
pub enum NodeError {
    /// No device is certain to be the volume.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The volume cannot be mounted in its current state.
    #[error(transparent)]
    Filesystem(#[from] FilesystemError),
    /// Mounting or unmounting failed.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The usage of the file system is unknown.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// Something else is mounted at the staging path.
    #[error(
        "{source_name} is mounted on the staging path {} and is not volume {volume_id} ({device}); unstage what is there first",
        path.display()
    )]
    StagedOther {
        volume_id: String,
        path: PathBuf,
        /// The mounted source, as named by the kernel.
        source_name: String,
        device: String,
    },
    /// The volume is staged there in another way than requested.
    #[error("volume {volume_id} is staged at {} as {found}, and {wanted} is asked for; unstage it first", path.display())]
    StagedDifferently {
        volume_id: String,
        path: PathBuf,
        /// The existing staging.
        found: String,
        /// The requested staging.
        wanted: String,
    },
    /// The volume is not staged.
    #[error("volume {volume_id} is not staged at {}: NodeStageVolume has to come first", path.display())]
    NotStaged { volume_id: String, path: PathBuf },
    /// The volume contains another file system than requested.
    #[error(
        "volume {volume_id} is mounted as {found}, and {wanted} is asked for; ask for {found} in the volume's fsType"
    )]
    OtherType {
        volume_id: String,
        /// The mounted file system.
        found: String,
        /// The requested file system.
        wanted: FsType,
    },
    /// Something else is mounted at the target, or the volume is mounted with other options.
    #[error("{} has {found} mounted, and volume {volume_id} ({wanted}) is asked for; unpublish it first", path.display())]
    PublishedDifferently {
        volume_id: String,
        path: PathBuf,
        /// The existing mount.
        found: String,
        /// The requested mount.
        wanted: &'static str,
    },
    /// The access mode allows one target, and the volume is published at another.
    #[error("volume {volume_id} is published at {} on this node and its access mode allows no second place", path.display())]
    PublishedElsewhere { volume_id: String, path: PathBuf },
    /// Another volume is mounted where this one is to be unmounted.
    #[error(
        "the disk with serial {serial} is mounted at {}, and that is not volume {volume_id}: nothing was unmounted; name the volume \
         that is there", path.display()
    )]
    OtherVolume {
        volume_id: String,
        path: PathBuf,
        /// The serial of the mounted disk, as reported by the kernel.
        serial: String,
    },
    /// The volume is to be unstaged while it is still published.
    #[error(
        "nothing is mounted at the staging path any more, but volume {volume_id} is still mounted at {}: NodeUnpublishVolume has to \
         come first", path.display()
    )]
    StillPublished {
        volume_id: String,
        /// One of the targets.
        path: PathBuf,
    },
    /// This node does not see the new size of the volume.
    #[error("the volume has not grown on this node yet: {0}")]
    NotGrown(#[source] DeviceError),
    /// Like `NotGrown`, for a volume that no pod uses yet.
    #[error(
        "the volume has not grown on this node, and the pod starts with the existing size; the file system grows at the next start \
         after the disk has grown: {0}"
    )]
    NotGrownAtStart(#[source] DeviceError),
    /// The file system cannot grow because it is mounted read-only.
    #[error(
        "volume {volume_id} is mounted read-only on this node ({}) and its file system cannot grow: it grows when it is staged \
         writable", path.display()
    )]
    GrowReadOnly {
        volume_id: String,
        /// The path of the mount.
        path: PathBuf,
    },
    /// The device refuses writes, because the hypervisor or an administrator set it read-only.
    #[error(
        "{} (volume {volume_id}) can only be read on this node, and is asked for writable: it was attached read-only, or its \
         backend protects it", device.display()
    )]
    ReadOnlyDevice { volume_id: String, device: PathBuf },
    /// The device could not be set read-only or writable.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The volume is not at this path.
    #[error("volume {volume_id} is not at {} on this node", path.display())]
    NotThere { volume_id: String, path: PathBuf },
}

/// A server id and the source that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityClaim {
    pub origin: String,
    pub id: String,
}

/// Why the identity of this node cannot be reported.
#[derive(Debug, Error)]
pub enum InstanceError {
    /// No source reports a server id.
    #[error(
        "cannot determine the Nova server of this node: {}; set --instance-id and --availability-zone",
        problems.join("; ")
    )]
    Unknown {
        /// One reason for each source.
        problems: Vec<String>,
    },
    /// Two sources, or a source and the firmware, report different servers.
    #[error(
        "cannot register this node: {} names server {} and {} names server {}; remove the wrong source, such as a disk with the label \
         config-2, or set --instance-id",
        first.origin, first.id, second.origin, second.id
    )]
    Disagreement {
        first: IdentityClaim,
        second: IdentityClaim,
    },
    /// The firmware cannot be read, or identifies an OpenStack server without a valid UUID.
    #[error(
        "cannot register this node: it is unknown which server the firmware names: {reason}; run the driver as root with the /sys of \
         the node, or set --instance-id"
    )]
    Firmware { reason: String },
    /// Only the firmware reports a server id, and its vendor may swap the bytes.
    #[error(
        "cannot register this node: only the firmware names a server, as {uuid} or, if its vendor swaps the bytes, {swapped} ({}); make the \
         config drive or the metadata service available, or set --instance-id",
        problems.join("; ")
    )]
    ByteOrder {
        uuid: String,
        swapped: String,
        /// One reason for each source.
        problems: Vec<String>,
    },
    /// The sources report another server than earlier during this boot.
    #[error(
        "cannot register this node as server {current}: it is server {recorded} since its last boot, as {} records; reboot the node, \
         or delete this file if server {current} is right",
        path.display()
    )]
    Changed {
        recorded: String,
        current: String,
        /// The path of the record.
        path: PathBuf,
    },
    /// No source reports a zone.
    #[error(
        "cannot determine the availability zone of this node ({reason}), and topology is on: set --availability-zone, or turn topology \
         off by --with-topology=false"
    )]
    Zone { reason: String },
    /// The disks and slots of this node could not be read in time.
    #[error(
        "cannot determine how many volumes fit on this node: {0}; the driver retries, or set --max-volumes-per-node"
    )]
    Slots(#[source] MountError),
}
