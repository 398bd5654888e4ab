// SPDX-License-Identifier: Apache-2.0
//! Finds the block device of a volume by its identity.
//!
//! A volume is identified by the serial that the hypervisor gives its disk. The driver uses two sources of serials:
//!
//! * **sysfs** (`/sys/block/*`) shows the serials of virtio, NVMe and SCSI disks, directly from the kernel.
//! * **by-id links** (`/dev/disk/by-id`) are created by udev from the same serials. They are the only source if the
//!   kernel shows no serial.
//!
//! virtio and NVMe truncate a serial to 20 characters, so that a truncated serial matches every id with this prefix. If
//! a truncated serial or a stale link of udev leads to two devices for one volume, the driver returns an error.

mod block_device;
mod error;
mod holders;
mod identity;
mod pin;
mod read_only;
mod stale_links;

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use tokio::time::{Instant, sleep_until};

pub use self::holders::{Holder, Holders, Layer};
pub(crate) use self::identity::{find_multipath_device, has_volume_id, list_disks, read_serials};
pub use self::pin::PinnedDevice;
pub(crate) use self::stale_links::StaleLinks;

use crate::Host;
use crate::machine::Open;
use crate::timing::TIMING;
pub use block_device::Device;
pub use error::DeviceError;

impl Host {
    /// Finds the device of a volume. Waits for it at most `timeout`.
    ///
    /// `expected_size` is the size of the volume in bytes, if known. A smaller device is rescanned and not accepted.
    /// Dropping the future ends the wait and changes nothing.
    pub async fn find_device(
        &self,
        volume_id: &str,
        expected_size: Option<u64>,
        timeout: Duration,
    ) -> Result<Device, DeviceError> {
        let start = Instant::now();
        let deadline = start + timeout;
        // Starts the watch before the first search, so that no event is missed.
        let device_watch = (!timeout.is_zero())
            .then(|| self.inner.machine.device_watch(&self.inner.paths))
            .flatten();
        let mut pause = TIMING.device_poll_first;
        let mut next_rescan = start;
        loop {
            let error = match self.search_device(volume_id, expected_size).await {
                Ok(device) => return Ok(device),
                // During a hot-plug, links and serials appear one after the other, so that every result may still
                // change. After the timeout, the last result is final.
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
                        sleep_until(now + TIMING.device_poll_min).await;
                    }
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                // Polls the clock first, because frequent events must not prevent the pause from growing.
                biased;
                () = clock => pause = (pause * 2).min(TIMING.device_poll_max),
                () = woken => {}
            }
        }
    }

    /// Rescans a disk and returns whether that was possible. A failure is only logged, because the size remains
    /// unchanged.
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
            Ok(was_rescanned) => was_rescanned,
            Err(error) => {
                tracing::warn!(device = name, %error, "the disk cannot be rescanned");
                false
            }
        }
    }

    /// Waits until no mount in any mount namespace and no mkfs has the device open exclusively.
    ///
    /// A missing device is idle. Dropping the future changes nothing.
    pub async fn wait_until_idle(&self, device: &Device, timeout: Duration) -> Result<(), DeviceError> {
        let deadline = Instant::now() + timeout;
        let mut pause = TIMING.device_poll_first;
        loop {
            let (machine, opened) = (self.inner.machine.clone(), device.clone());
            let what = format!("opening {}", device.path.display());
            let open = move || opened.open(&*machine, Open::ReadAlone).map(drop);
            match self.inner.calls.run(what, TIMING.device_search_timeout, open).await? {
                Err(error @ DeviceError::Busy { .. }) if Instant::now() >= deadline => return Err(error),
                Err(DeviceError::Busy { .. }) => {}
                Err(DeviceError::Access { source, .. }) if is_unplugged(&source) => return Ok(()),
                other => return other,
            }
            sleep_until((Instant::now() + pause).min(deadline)).await;
            pause = (pause * 2).min(TIMING.device_poll_max);
        }
    }

    /// Flushes the writes of all processes to the device. Bounded by 10 min.
    ///
    /// Succeeds for a missing device, which has nothing to write. Dropping the future does not cancel the flush.
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
            Err(DeviceError::Access { source, .. }) if is_unplugged(&source) => Ok(()),
            flushed => flushed,
        }
    }

    async fn search_device(&self, volume_id: &str, expected_size: Option<u64>) -> Result<Device, DeviceError> {
        let (inner, volume) = (self.inner.clone(), volume_id.to_owned());
        let what = format!("the search for the device of volume {volume_id}");
        let search = move || {
            identity::search_disks(
                &*inner.machine,
                &inner.paths,
                &inner.stale_links,
                &volume,
                expected_size,
            )
        };
        self.inner
            .calls
            .run_local(what, TIMING.device_search_timeout, search)
            .await?
    }
}

/// Whether an error of an open reports that the disk was unplugged.
fn is_unplugged(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::NOENT | Errno::NXIO | Errno::NODEV))
}

#[cfg(test)]
mod tests;
