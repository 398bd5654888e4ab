// SPDX-License-Identifier: Apache-2.0
//! Errors of the search for a device.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use csi_sources::UntrustedText;

use crate::offload::OffloadError;

/// Errors of the search for a volume's device.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// No disk with the serial of the volume has appeared.
    #[error(
        "no disk of this node is volume {volume_id}: none of {looked_at} disks has its serial and {} has no link for it \
         after {:.1} s; check in Nova that the volume is attached to this server",
        links.display(), waited.as_secs_f64()
    )]
    NotFound {
        volume_id: String,
        /// Number of disks in sysfs.
        looked_at: usize,
        /// The directory of by-id links.
        links: PathBuf,
        waited: Duration,
    },
    /// A link of the volume refers to the disk of another volume, and no disk of this volume was found.
    #[error(
        "{} leads to {device}, whose serial is {serial} and not that of volume {volume_id}: the link is stale{}; nothing was \
         touched. `udevadm trigger {device}` on the node recreates it", link.display(), unidentified_text(.unidentified.as_deref())
    )]
    Stale {
        volume_id: String,
        link: PathBuf,
        /// The kernel's name of the disk.
        device: String,
        serial: String,
        /// A disk with an unreadable serial, which may be the volume. `None` if all disks are identified.
        unidentified: Option<String>,
    },
    /// Two disks have the identity of the volume.
    #[error(
        "{} disks of this node claim to be volume {volume_id} ({}): nothing was touched. Detach the one that does not belong \
         to this server, or set up multipath if they are paths to one disk", candidates.len(), candidates.join(", ")
    )]
    Ambiguous {
        volume_id: String,
        /// The disks, each with the source of its identity.
        candidates: Vec<String>,
    },
    /// The kernel reports a size of zero.
    #[error(
        "{device} is volume {volume_id} and has 0 bytes: the kernel has not read it yet, or its backend does not answer; \
         see the kernel's log of this node"
    )]
    NoSize {
        volume_id: String,
        /// The kernel's name of the disk.
        device: String,
    },
    /// The disk is smaller than the volume.
    #[error(
        "{device} has {actual} bytes and volume {volume_id} has {expected}: {}; nothing was touched",
        small_text(.map.as_deref())
    )]
    TooSmall {
        volume_id: String,
        /// The kernel's name of the disk.
        device: String,
        /// Name of the multipath map, if the map is too small although its paths have grown.
        map: Option<String>,
        /// Size of the volume in bytes.
        expected: u64,
        /// Size of the disk in bytes.
        actual: u64,
    },
    /// The device node is not the disk in sysfs.
    #[error(
        "{} is device {}:{} and not {}:{}, which sysfs calls {name}: nothing was touched. Is the node's /dev the host's?",
        path.display(), actual.0, actual.1, expected.0, expected.1
    )]
    WrongNode {
        path: PathBuf,
        /// The kernel's name of the disk.
        name: String,
        /// Number in sysfs.
        expected: (u32, u32),
        /// Number of the device node.
        actual: (u32, u32),
    },
    /// The volume has moved to another device since it was found.
    #[error(
        "volume {volume_id} was {} when it was looked for and is {} now: it was detached and attached again meanwhile; \
         nothing was touched", before.display(), now.display()
    )]
    Moved {
        volume_id: String,
        /// Its device node when it was found.
        before: PathBuf,
        now: PathBuf,
    },
    /// The device could not be opened or read.
    #[error("cannot {what} {}", path.display())]
    Access {
        /// `open`, `read`, `write` …
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// Another user has the device open exclusively.
    #[error("{} is in use: {holder}", path.display())]
    Busy {
        path: PathBuf,
        /// Description of the user.
        holder: String,
    },
    /// A call on the node did not return in time.
    #[error(transparent)]
    NoAnswer(#[from] OffloadError),
}

pub(super) fn unidentified_text(disk: Option<&str>) -> String {
    disk.map(|disk| format!(", and the serial of {disk}, which may be the volume, cannot be read"))
        .unwrap_or_default()
}

pub(super) fn small_text(map: Option<&str>) -> String {
    match map {
        Some(map) => {
            let map = UntrustedText::new(map);
            format!(
                "the paths of multipath map {map} have grown, and the map has not; run `multipathd resize map {map}` on the node"
            )
        }
        None => "this node has not seen the volume grow, or it is not the volume; Nova has to inform the hypervisor (Cinder's event \
                 volume-extended), and detaching and attaching the volume does the same"
            .to_owned(),
    }
}
