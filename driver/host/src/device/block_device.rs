// SPDX-License-Identifier: Apache-2.0
//! A block device that was checked to be a volume.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use super::error::DeviceError;
use crate::Machine;
use crate::machine::{Disk, Open};

/// A block device that was verified to be a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its device node, such as `/dev/vdb`. Never a link.
    pub path: PathBuf,
    /// Name in `/sys/block`.
    pub name: String,
    pub size_bytes: u64,
    /// Major and minor number.
    pub number: (u32, u32),
    /// Whether the kernel refuses writes to the device.
    pub read_only: bool,
    pub volume_id: String,
}

impl Device {
    /// Opens the device. Verifies on the open file that its number and its size match sysfs. Blocks.
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
