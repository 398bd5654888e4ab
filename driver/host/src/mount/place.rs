// SPDX-License-Identifier: Apache-2.0
//! Places of mounts: created, removed.

use std::io;
use std::path::Path;

use rustix::io::Errno;

use super::error::MountError;
use crate::machine::Kind;
use crate::mountinfo::{self, MountTable};
use crate::{FsType, Machine, MountOptions};

/// Kind of a mount point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountPointKind {
    /// For a file system.
    Directory,
    /// For a device.
    File,
}

pub(super) fn discard_draft(machine: &dyn Machine, proc: &Path, draft: &Path) -> Result<(), MountError> {
    unmount_all(machine, proc, draft)?;
    remove_place(machine, draft)
}

pub(super) fn create_place(
    machine: &dyn Machine,
    target: &Path,
    place: MountPointKind,
    mode: u32,
) -> Result<bool, MountError> {
    let error = |what| {
        let target = target.to_owned();
        move |source: io::Error| MountError::Place { what, target, source }
    };
    if let Some(parent) = target.parent() {
        machine
            .create_directories(parent, 0o750)
            .map_err(error("create the parent of"))?;
    }
    let (what, created) = match place {
        MountPointKind::Directory => ("create directory", machine.create_directory(target, mode)),
        MountPointKind::File => ("create file", machine.create_file(target, mode)),
    };
    match created {
        Ok(()) => Ok(true),
        Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {
            let is_dir = machine.lstat(target).map_err(error("look at"))?.kind == Kind::Directory;
            match (place, is_dir) {
                (MountPointKind::Directory, true) | (MountPointKind::File, false) => Ok(false),
                (MountPointKind::Directory, false) => {
                    Err(error("use as a directory")(io::ErrorKind::NotADirectory.into()))
                }
                (MountPointKind::File, true) => Err(error("use as a file")(io::ErrorKind::IsADirectory.into())),
            }
        }
        Err(source) => Err(error(what)(source)),
    }
}

pub(super) fn remove_place(machine: &dyn Machine, target: &Path) -> Result<(), MountError> {
    let removed = match machine.lstat(target) {
        Ok(found) if found.kind == Kind::Directory => machine.remove_directory(target),
        Ok(found) if found.kind == Kind::Other && found.size == 0 => machine.remove_file(target),
        Ok(_) => {
            return Err(MountError::NotEmpty {
                target: target.to_owned(),
            });
        }
        Err(error) => Err(error),
    };
    match removed {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(MountError::Place {
            what: "remove",
            target: target.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

/// Limit of stacked mounts that one unmount removes. No intended setup has so many.
pub(super) const MOST_LAYERS: usize = 64;

pub(super) fn unmount_all(machine: &dyn Machine, proc: &Path, target: &Path) -> Result<bool, MountError> {
    let place = mountinfo::resolve(machine, target);
    let mut unmounted = false;
    for _ in 0..MOST_LAYERS {
        if MountTable::read(machine, proc)?.at(&place).is_none() {
            return Ok(unmounted);
        }
        let Err(source) = machine.unmount(&place) else {
            unmounted = true;
            continue;
        };
        match Errno::from_io_error(&source) {
            // Another process unmounted it after the list was read.
            Some(Errno::INVAL | Errno::NOENT) => {}
            Some(Errno::BUSY) => return Err(MountError::Busy { target: place }),
            _ => return Err(MountError::Unmount { target: place, source }),
        }
    }
    Err(MountError::Busy { target: place })
}

pub(super) fn mount(
    machine: &dyn Machine,
    device: &Path,
    target: &Path,
    fs_type: FsType,
    options: &MountOptions,
) -> Result<(), MountError> {
    let mounted = machine.mount(device, target, fs_type, options);
    mounted.map_err(|refusal| MountError::Mount {
        device: device.to_owned(),
        target: target.to_owned(),
        fs_type: fs_type.name(),
        reason: super::refusal::explain(refusal.errno, fs_type, &refusal.messages),
        source: refusal.errno.into(),
    })
}
