// SPDX-License-Identifier: Apache-2.0
//! Which block device is a volume: identity first, then the path.
//!
//! A volume is known by the serial that the hypervisor gave its disk. It is seen in two ways, and both are used:
//!
//! * **sysfs** (`/sys/block/*`): the serial of virtio, NVMe and SCSI disks, straight from the kernel.
//! * **by-id links** (`/dev/disk/by-id`): made by udev from the same serials, and the only way where the kernel shows none.
//!
//! virtio and NVMe cut a serial at 20 characters, so a cut serial stands for every id that begins with it. Where that, or
//! a link that udev has not yet removed, leaves two devices for one volume, the answer is an error and never a guess.

mod holders;
mod identity;
mod pin;
mod read_only;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use csi_sources::UntrustedText;
use rustix::io::Errno;
use tokio::time::{Instant, sleep_until};

pub use self::holders::{Holder, Holders, Layer};
pub(crate) use self::identity::{StaleLinks, is_named, list_disks, serials, upper};
pub use self::pin::PinnedDevice;

use crate::machine::{Disk, Open};
use crate::offload::OffloadError;
use crate::timing::TIMING;
use crate::{Host, Machine};

/// A block device that was checked to be a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its node, such as `/dev/vdb`: the device itself, not a link.
    pub path: PathBuf,
    /// The kernel's name, as in `/sys/block`.
    pub name: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Major and minor number.
    pub number: (u32, u32),
    /// Whether the kernel refuses writes.
    pub read_only: bool,
    /// The volume that it is.
    pub volume_id: String,
}

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

fn unidentified_text(disk: Option<&str>) -> String {
    disk.map(|disk| format!(", and the serial of {disk}, which may be the volume, cannot be read"))
        .unwrap_or_default()
}

fn small_text(map: Option<&str>) -> String {
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

impl Host {
    /// The device of a volume, waited for until `timeout`.
    ///
    /// `expected_size` is the volume's size in bytes where it is known; a smaller device is not taken, and it is rescanned.
    /// Dropping the future ends the wait and changes nothing.
    pub async fn find_device(
        &self,
        volume_id: &str,
        expected_size: Option<u64>,
        timeout: Duration,
    ) -> Result<Device, DeviceError> {
        let start = Instant::now();
        let deadline = start + timeout;
        // Before the first look, so that nothing happens unseen after it.
        let device_watch = (!timeout.is_zero())
            .then(|| self.inner.machine.device_watch(&self.inner.paths))
            .flatten();
        let mut pause = TIMING.device_look_first;
        let mut next_rescan = start;
        loop {
            let error = match self.look_for(volume_id, expected_size).await {
                Ok(device) => return Ok(device),
                // While a disk is hot-plugged, links and serials appear one after the other, so every finding may yet
                // change. What stands when the time is up is the answer.
                Err(error) => error,
            };
            let now = Instant::now();
            if let DeviceError::TooSmall { device, .. } | DeviceError::NoSize { device, .. } = &error
                && now >= next_rescan
            {
                next_rescan = now + TIMING.rescan_interval;
                if self.rescan(device).await {
                    continue;
                }
            }
            if now >= deadline {
                return Err(match error {
                    DeviceError::NotFound {
                        volume_id,
                        looked_at,
                        links,
                        ..
                    } => DeviceError::NotFound {
                        volume_id,
                        looked_at,
                        links,
                        waited: start.elapsed(),
                    },
                    other => other,
                });
            }
            let clock = sleep_until((now + pause).min(deadline));
            let woken = async {
                match &device_watch {
                    Some(device_watch) if device_watch.happen().await.is_ok() => {
                        sleep_until(now + TIMING.device_look_min).await;
                    }
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                // The clock first: what happens all the time must not keep the pause from growing.
                biased;
                () = clock => pause = (pause * 2).min(TIMING.device_look_max),
                () = woken => {}
            }
        }
    }

    /// Whether the one disk could be rescanned. That it could not is no error of its own: the size stays what it is.
    async fn rescan(&self, name: &str) -> bool {
        let (machine, sys) = (self.inner.machine.clone(), self.inner.paths.sys.clone());
        let disk = name.to_owned();
        let call = move || identity::rescan(&*machine, &sys, &disk);
        let rescanned = self
            .inner
            .calls
            .run(format!("rescanning {name}"), TIMING.rescan_timeout, call)
            .await;
        match rescanned.map_err(DeviceError::from).flatten() {
            Ok(asked) => asked,
            Err(error) => {
                tracing::warn!(device = name, %error, "the disk cannot be rescanned");
                false
            }
        }
    }

    /// Waits until nobody holds the device exclusively: no mount in whatever mount namespace, no mkfs. A device that is
    /// gone is idle. Dropping the future changes nothing.
    pub async fn wait_until_idle(&self, device: &Device, timeout: Duration) -> Result<(), DeviceError> {
        let deadline = Instant::now() + timeout;
        let mut pause = TIMING.device_look_first;
        loop {
            let (machine, opened) = (self.inner.machine.clone(), device.clone());
            let what = format!("opening {}", device.path.display());
            let open = move || opened.open(&*machine, Open::ReadAlone).map(drop);
            match self.inner.calls.run(what, TIMING.device_look_timeout, open).await? {
                Err(error @ DeviceError::Busy { .. }) if Instant::now() >= deadline => return Err(error),
                Err(DeviceError::Busy { .. }) => {}
                Err(DeviceError::Access { source, .. }) if is_gone(&source) => return Ok(()),
                other => return other,
            }
            sleep_until((Instant::now() + pause).min(deadline)).await;
            pause = (pause * 2).min(TIMING.device_look_max);
        }
    }

    /// Makes durable what was written to the device itself, by whomever. One that is gone has nothing left to write. Bounded by
    /// 10 min. Dropping the future leaves the flush going on.
    pub async fn flush(&self, device: &Device) -> Result<(), DeviceError> {
        let (machine, opened) = (self.inner.machine.clone(), device.clone());
        let flush = move || {
            let disk = opened.open(&*machine, Open::Read)?;
            disk.sync().map_err(|source| DeviceError::Access {
                what: "flush",
                path: opened.path.clone(),
                source,
            })
        };
        let what = format!("flushing {}", device.path.display());
        match self.inner.calls.run(what, TIMING.flush_timeout, flush).await? {
            Err(DeviceError::Access { source, .. }) if is_gone(&source) => Ok(()),
            flushed => flushed,
        }
    }

    async fn look_for(&self, volume_id: &str, expected_size: Option<u64>) -> Result<Device, DeviceError> {
        let (inner, volume) = (self.inner.clone(), volume_id.to_owned());
        let what = format!("the search for the device of volume {volume_id}");
        let look = move || {
            identity::look(
                &*inner.machine,
                &inner.paths,
                &inner.stale_links,
                &volume,
                expected_size,
            )
        };
        self.inner
            .calls
            .run_local(what, TIMING.device_look_timeout, look)
            .await?
    }
}

/// What opening says when the disk was unplugged.
fn is_gone(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::NOENT | Errno::NXIO | Errno::NODEV))
}

impl Device {
    /// Opens the device and makes sure, on the open file, that it is the one that was checked and of the size that sysfs
    /// says. Blocks.
    pub(crate) fn open(&self, machine: &dyn Machine, how: Open) -> Result<Box<dyn Disk>, DeviceError> {
        let access = |what| {
            let path = self.path.clone();
            move |source: io::Error| DeviceError::Access { what, path, source }
        };
        let disk = match machine.open_disk(&self.path, how) {
            Ok(disk) => disk,
            Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => {
                let holder = "a mount, a mkfs that an earlier call started, or the device mapper has it".into();
                return Err(DeviceError::Busy {
                    path: self.path.clone(),
                    holder,
                });
            }
            Err(error) => return Err(access("open")(error)),
        };
        let actual = disk.number().map_err(access("stat"))?;
        if actual != self.number {
            let (path, name) = (self.path.clone(), self.name.clone());
            return Err(DeviceError::WrongNode {
                path,
                name,
                expected: self.number,
                actual,
            });
        }
        let actual = disk.size().map_err(access("find the size of"))?;
        if actual < self.size_bytes {
            let (volume_id, device) = (self.volume_id.clone(), self.name.clone());
            return Err(DeviceError::TooSmall {
                volume_id,
                device,
                map: None,
                expected: self.size_bytes,
                actual,
            });
        }
        Ok(disk)
    }
}

#[cfg(test)]
mod tests;
