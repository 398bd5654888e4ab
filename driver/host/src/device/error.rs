// SPDX-License-Identifier: Apache-2.0
//! Errors of the search for a device.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use csi_sources::UntrustedText;

use crate::offload::OffloadError;

/// Why there is no device for a volume.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Nothing with the volume's serial has appeared.
    #[error(
        "no disk of this node is volume {volume_id}: none of {looked_at} disks has its serial and {} has no link for it \
         after {:.1} s; check in Nova that the volume is attached to this server",
        links.display(), waited.as_secs_f64()
    )]
    NotFound {
        volume_id: String,
        /// How many disks sysfs shows.
        looked_at: usize,
        /// The directory of links.
        links: PathBuf,
        /// How long it was waited for.
        waited: Duration,
    },
    /// A link for the volume leads to a disk of another volume, and nothing else leads to a disk of this one.
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
        /// A disk with a serial that the kernel cannot read, which may be the volume. `None`: every disk is another one.
        unidentified: Option<String>,
    },
    /// Two disks claim to be the volume.
    #[error(
        "{} disks of this node claim to be volume {volume_id} ({}): nothing was touched. Detach the one that does not belong \
         to this server, or set up multipath if they are paths to one disk", candidates.len(), candidates.join(", ")
    )]
    Ambiguous {
        volume_id: String,
        /// What was found, each with its origin.
        candidates: Vec<String>,
    },
    /// The kernel shows the disk without a size.
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
        /// The name of the multipath map, if only the map is too small and its paths have grown.
        map: Option<String>,
        /// Bytes of the volume.
        expected: u64,
        /// Bytes of the disk.
        actual: u64,
    },
    /// The node of the device is not the disk that was checked.
    #[error(
        "{} is device {}:{} and not {}:{}, which sysfs calls {name}: nothing was touched. Is the node's /dev the host's?",
        path.display(), actual.0, actual.1, expected.0, expected.1
    )]
    WrongNode {
        path: PathBuf,
        /// The kernel's name of the disk.
        name: String,
        /// What sysfs says.
        expected: (u32, u32),
        /// What the node is.
        actual: (u32, u32),
    },
    /// The volume is another device than a moment ago.
    #[error(
        "volume {volume_id} was {} when it was looked for and is {} now: it was detached and attached again meanwhile; \
         nothing was touched", before.display(), now.display()
    )]
    Moved {
        volume_id: String,
        /// Its node when it was found.
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
    /// Something else holds the device.
    #[error("{} is in use: {holder}", path.display())]
    Busy {
        path: PathBuf,
        /// What is known about who uses it.
        holder: String,
    },
    /// A look at the node gave no answer.
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
