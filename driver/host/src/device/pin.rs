// SPDX-License-Identifier: Apache-2.0
//! Pins a device, so that its name continues to identify the verified disk.

use super::{Device, DeviceError};
use crate::Host;
use crate::machine::{Disk, Open};
use crate::timing::TIMING;

/// A device whose number and name the kernel gives to no other disk during the lifetime of this value.
///
/// A disk that is attached after this one was unplugged gets another number and name. Checks of the device therefore
/// remain valid for later calls by name. The pin does not exclude other users of the device.
#[derive(Debug)]
#[must_use = "the device is released when this is dropped"]
pub struct PinnedDevice {
    /// `None` only during the drop.
    disk: Option<Box<dyn Disk>>,
    host: Host,
}

impl Host {
    /// Opens a device, and then verifies that it is still the device of its volume.
    ///
    /// Since it was found, the disk may have been unplugged, and its number given to another disk. Dropping the future
    /// changes nothing.
    pub async fn pin(&self, device: &Device) -> Result<PinnedDevice, DeviceError> {
        let (machine, opened) = (self.inner.machine.clone(), device.clone());
        let what = format!("opening {}", device.path.display());
        let open = move || opened.open(&*machine, Open::Read);
        let pinned = PinnedDevice {
            disk: Some(self.inner.calls.run(what, TIMING.device_search_timeout, open).await??),
            host: self.clone(),
        };
        let current = self.search_device(&device.volume_id, None).await?;
        if (current.number, &current.path) == (device.number, &device.path) {
            return Ok(pinned);
        }
        Err(DeviceError::Moved {
            volume_id: device.volume_id.clone(),
            before: device.path.clone(),
            now: current.path,
        })
    }
}

impl Drop for PinnedDevice {
    fn drop(&mut self) {
        // Closes the device on another thread, because closing a dead disk may block without limit. Without a free
        // thread, the disk is closed here. The number of these threads cannot exceed the number of successful opens,
        // and opening a hung disk does not succeed.
        let disk = self.disk.take();
        drop(self.host.inner.machine.start(Box::new(move || drop(disk))));
    }
}
