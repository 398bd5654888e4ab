// SPDX-License-Identifier: Apache-2.0
//! The config drive: a small disk with the label `config-2`, to which Nova writes the document of the metadata service.
//!
//! The driver reads an iso9660 with the code in [`iso9660`], which does not depend on the kernel's file system. It
//! reads a vfat through a detached mount, which ends when the last file is closed.
//!
//! A label is not proof, because the user of a volume writes its content. [`candidates`] excludes volumes and every
//! device that the node assembles from volumes.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this identifies the machine before it has volumes; no test replaces the machine for it"
)]

mod candidates;
mod iso9660;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
};

use candidates::LABEL;

use crate::timing::TIMING;
use crate::{Host, HostPaths, Machine, OffloadError};

const DOCUMENT: [&str; 3] = ["openstack", "latest", "meta_data.json"];
const LARGEST_DOCUMENT: usize = 1 << 20;

/// A device with Nova's label and its document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigDrive {
    pub device: PathBuf,
    /// The text of `openstack/latest/meta_data.json`.
    pub document: Vec<u8>,
}

/// Reasons why the config drive cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ConfigDriveError {
    /// No candidate device has the label.
    #[error("no CD-ROM or plain disk of this node is a config drive (label config-2)")]
    Absent,
    /// The drive exists, but its document is missing or unreadable.
    #[error("cannot read the config drive {}: {source}", device.display())]
    Read { device: PathBuf, source: io::Error },
    /// A device did not respond in time.
    #[error(transparent)]
    NoAnswer(#[from] OffloadError),
}

impl Host {
    /// Reads all config drives of this server; fails if there is none. Does not read plain disks if a CD-ROM is a
    /// config drive.
    ///
    /// Neither writes nor mounts anything in the directory tree. Bounded by 20 s.
    pub async fn config_drives(&self) -> Result<Vec<ConfigDrive>, ConfigDriveError> {
        let (machine, paths) = (self.inner.machine.clone(), self.inner.paths.clone());
        self.inner
            .calls
            .run("reading the config drive", TIMING.config_drive_timeout, move || {
                read_drives(&*machine, &paths)
            })
            .await?
    }
}

fn read_drives(machine: &dyn Machine, paths: &HostPaths) -> Result<Vec<ConfigDrive>, ConfigDriveError> {
    let (cd_roms, disks) = candidates::list(machine, paths);
    let mut problem = ConfigDriveError::Absent;
    for names in [cd_roms, disks] {
        let mut drives = Vec::new();
        for device in names.into_iter().map(|name| paths.dev.join(name)) {
            match read_document(&device) {
                Ok(Some(document)) => drives.push(ConfigDrive { device, document }),
                Ok(None) => {}
                Err(source) => problem = ConfigDriveError::Read { device, source },
            }
        }
        if !drives.is_empty() {
            return Ok(drives);
        }
    }
    Err(problem)
}

/// Reads the document; `None` if the disk has another label.
fn read_document(device: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(device) {
        // The CD-ROM drive is empty.
        Err(error) if rustix::io::Errno::from_io_error(&error) == Some(rustix::io::Errno::NOMEDIUM) => return Ok(None),
        opened => opened?,
    };
    let at = |offset: u64, buffer: &mut [u8]| file.read_exact_at(buffer, offset);
    if let Some(document) = read_iso9660(&at)? {
        return Ok(document);
    }
    let mut boot = [0; 512];
    match at(0, &mut boot) {
        Ok(()) if is_labelled_fat(&boot) => read_fat(device).map(Some),
        Ok(()) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the document of an iso9660. The outer `None` means another format, the inner one another label.
///
/// Public for the fuzz targets.
#[doc(hidden)]
pub fn read_iso9660(at: &dyn Fn(u64, &mut [u8]) -> io::Result<()>) -> io::Result<Option<Option<Vec<u8>>>> {
    let Some(volume) = iso9660::Volume::open(at)? else {
        return Ok(None);
    };
    if !volume.label().eq_ignore_ascii_case(LABEL) {
        return Ok(Some(None));
    }
    volume
        .read(at, &DOCUMENT, LARGEST_DOCUMENT)
        .map(|document| Some(Some(document)))
}

/// Whether a boot sector belongs to a FAT12, FAT16 or FAT32 with the label.
fn is_labelled_fat(boot: &[u8; 512]) -> bool {
    let [small, large] = [43..54, 71..82].map(|place| boot.get(place).unwrap_or_default());
    let is_ours =
        |label: &[u8]| std::str::from_utf8(label).is_ok_and(|label| label.trim_end().eq_ignore_ascii_case(LABEL));
    boot.ends_with(&[0x55, 0xAA]) && (is_ours(small) || is_ours(large))
}

/// Reads the document through a mount that is invisible to other processes.
fn read_fat(device: &Path) -> io::Result<Vec<u8>> {
    let context = fsopen("vfat", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), "source", device)?;
    fsconfig_set_flag(context.as_fd(), "ro")?;
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let root = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let document = rustix::fs::openat(&root, DOCUMENT.join("/"), flags, Mode::empty())?;
    let mut text = Vec::new();
    File::from(document)
        .take(LARGEST_DOCUMENT as u64)
        .read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests;
