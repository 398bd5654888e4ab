// SPDX-License-Identifier: Apache-2.0
//! A btrfs may span several devices. The kernel finds the others by the UUID of the file system, which a clone shares with its source and
//! a user of a raw volume can choose: a volume that claims to be one device of several could include the disk of another volume, and
//! write to it. So only file systems of one device are mounted.

use std::io;
use std::path::Path;

use super::{MountError, Place, create_place, discard_draft, mount};
use crate::filesystem::size;
use crate::machine::Open;
use crate::{Device, FsType, HostPaths, Machine, MountOptions};

/// Mount options that keep the kernel from writing to any device. Kernels before 5.9 have the second one only.
const UNCHANGED: [&str; 2] = ["rescue=nologreplay", "nologreplay"];

/// Refuses a file system that claims several devices, in its superblock or in its trees. Nothing is written.
///
/// The kernel reads the trees in a mount at `draft` without writes. It ends before the function returns. If it fails, the trees are
/// unknown and the failure is the error, except for a file system that is mounted already with other options.
pub(super) fn check_alone(
    machine: &dyn Machine,
    paths: &HostPaths,
    device: &Device,
    draft: &Path,
) -> Result<(), MountError> {
    let Some(superblock) = read(machine, device)? else {
        // The mount that follows fails with a reason.
        return Ok(());
    };
    if superblock.devices != 1 {
        return Err(several(device, superblock.devices));
    }
    create_place(machine, draft, Place::Directory, 0o700)?;
    let mut failure = Ok(());
    for option in UNCHANGED {
        // The second option is for kernels that do not know the first one.
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

/// Refuses a mounted file system that has several devices, if the kernel shows them.
pub(super) fn check_members(machine: &dyn Machine, paths: &HostPaths, device: &Device) -> Result<(), MountError> {
    let Some(superblock) = read(machine, device)? else {
        return Ok(());
    };
    let members = paths.sys.join("fs/btrfs").join(&superblock.id).join("devices");
    match machine.list(&members) {
        Ok(names) if names.len() > 1 => Err(several(device, names.len() as u64)),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(MountError::Place {
            what: "list the devices of the file system of",
            target: device.path.clone(),
            source,
        }),
    }
}

fn several(device: &Device, devices: u64) -> MountError {
    MountError::SeveralDevices {
        device: device.path.clone(),
        devices,
    }
}

fn read(machine: &dyn Machine, device: &Device) -> Result<Option<size::BtrfsSuperblock>, MountError> {
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
