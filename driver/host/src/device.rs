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
pub(crate) use self::identity::{is_named, list_disks, serials, upper};
pub use self::pin::PinnedDevice;
pub(crate) use self::stale_links::StaleLinks;

use crate::machine::Open;
use crate::timing::TIMING;
use crate::Host;
pub use block_device::Device;
pub use error::DeviceError;

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

#[cfg(test)]
mod tests;
