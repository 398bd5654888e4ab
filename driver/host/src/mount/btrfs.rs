// SPDX-License-Identifier: Apache-2.0
//! Ensures that a btrfs has exactly one device.
//!
//! A btrfs may span several devices, which the kernel finds by the UUID of the file system. A clone shares that UUID
//! with its source, and a user of a raw volume can choose it. A volume that claims to be one of several devices could
//! therefore include the disk of another volume, and write to it. For this reason the driver mounts only file systems
//! of one device.

use std::io;
use std::path::Path;

use super::{MountError, MountPointKind, create_place, discard_draft, mount};
use crate::filesystem::size;
use crate::machine::Open;
use crate::{Device, FsType, HostPaths, Machine, MountOptions};

/// Mount options that prevent the kernel from writing to any device. Kernels before 5.9 support only the second one.
const UNCHANGED: [&str; 2] = ["rescue=nologreplay", "nologreplay"];

/// Refuses a file system that claims several devices in its superblock or in its trees. Does not write.
///
/// To read the trees, the kernel mounts the file system at `draft` without writes; the mount ends before the function
/// returns. If the mount fails, the trees are unknown, and the function returns the failure. The exception is a file
/// system that is already mounted with other options.
pub(super) fn check_single_device(
    machine: &dyn Machine,
    paths: &HostPaths,
    device: &Device,
    draft: &Path,
) -> Result<(), MountError> {
    let Some(superblock) = read_superblock(machine, device)? else {
        // The content is not a btrfs. The next mount fails with a reason.
        return Ok(());
    };
    if superblock.devices != 1 {
        return Err(several_devices_error(device, superblock.devices));
    }
    create_place(machine, draft, MountPointKind::Directory, 0o700)?;
    let mut failure = Ok(());
    for option in UNCHANGED {
        // Tries the second option on kernels that do not support the first one.
        if failure.as_ref().is_err_and(|error: &MountError| !error.is_invalid()) {
            break;
        }
        let options = MountOptions::default().read_only().with(option);
        match mount(machine, &device.path, draft, FsType::Btrfs, &options) {
            Ok(()) => {
                let checked = check_members(machine, paths, device);
                discard_draft(machine, &paths.proc, draft)?;
                return checked;
            }
            Err(error) if error.is_busy() => return Ok(()),
            Err(error) => failure = Err(error),
        }
    }
    failure
}

/// Refuses a mounted file system if the kernel reports several devices for it.
pub(super) fn check_members(machine: &dyn Machine, paths: &HostPaths, device: &Device) -> Result<(), MountError> {
    let Some(superblock) = read_superblock(machine, device)? else {
        return Ok(());
    };
    let members = paths.sys.join("fs/btrfs").join(&superblock.id).join("devices");
    match machine.list(&members) {
        Ok(names) if names.len() > 1 => Err(several_devices_error(device, names.len() as u64)),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(MountError::Place {
            what: "list the devices of the file system of",
            target: device.path.clone(),
            source,
        }),
    }
}

fn several_devices_error(device: &Device, devices: u64) -> MountError {
    MountError::SeveralDevices {
        device: device.path.clone(),
        devices,
    }
}

fn read_superblock(machine: &dyn Machine, device: &Device) -> Result<Option<size::BtrfsSuperblock>, MountError> {
    let mut head = vec![0; size::HEAD];
    let read = device
        .open(machine, Open::Read)
        .map_err(|error| io::Error::other(error.to_string()))
        .and_then(|disk| disk.read_exact_at(&mut head, 0));
    read.map_err(|source| MountError::Place {
        what: "read the superblock of",
        target: device.path.clone(),
        source,
    })?;
    Ok(size::btrfs_superblock(&head))
}
