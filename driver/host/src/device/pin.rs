// SPDX-License-Identifier: Apache-2.0
//! A device that goes on to be the one that was checked.

use super::{Device, DeviceError};
use crate::Host;
use crate::machine::{Disk, Open};
use crate::timing::TIMING;

/// While this lives, the kernel gives the device's number and name to no other disk: one that is attached after this one was
/// unplugged gets others. So what was checked holds for all that is then done by name. Keeps nobody else from using the device.
#[derive(Debug)]
#[must_use = "the device is released when this is dropped"]
pub struct PinnedDevice {
    /// `Some` until the drop.
    disk: Option<Box<dyn Disk>>,
    host: Host,
}

impl Host {
    /// Holds a device, and makes sure after that that it still is its volume: it may have been unplugged, and its number given to
    /// another disk, since it was found. Dropping the future changes nothing.
    pub async fn pin(&self, device: &Device) -> Result<PinnedDevice, DeviceError> {
        let (machine, opened) = (self.inner.machine.clone(), device.clone());
        let what = format!("opening {}", device.path.display());
        let open = move || opened.open(&*machine, Open::Read);
        let pinned = PinnedDevice {
            disk: Some(self.inner.calls.run(what, TIMING.device_look_timeout, open).await??),
            host: self.clone(),
        };
        let now = self.look_for(&device.volume_id, None).await?;
        if (now.number, &now.path) == (device.number, &device.path) {
            return Ok(pinned);
        }
        Err(DeviceError::Moved {
            volume_id: device.volume_id.clone(),
            before: device.path.clone(),
            now: now.path,
        })
    }
}

impl Drop for PinnedDevice {
    fn drop(&mut self) {
        // Elsewhere: to close a disk that has died may take for ever. Where no thread is to be had, it is closed here. There are no
        // more of these threads than openings that came to an end, and of a disk that hangs none does.
        let disk = self.disk.take();
        drop(self.host.inner.machine.start(Box::new(move || drop(disk))));
    }
}
