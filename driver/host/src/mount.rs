// SPDX-License-Identifier: Apache-2.0
//! Mounting, binding and unmounting.
//!
//! None of these asks a mount helper: options are taken apart here and given to the kernel, which says in its own words
//! what it did not like (the `fsopen` family; `mount(2)` where a kernel lacks it).

mod btrfs;
mod error;
mod options;
mod owner;
mod place;
mod refusal;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::MountFlags;

pub use options::{MountOptions, OptionError};

use crate::machine::Kind;
use crate::mountinfo::{self, MountTable};
use crate::timing::TIMING;
use crate::{Device, FsType, Host, HostPaths, Machine};
pub use error::MountError;
pub use place::Place;
use place::mount;
use place::unmount_all;
use place::{create_place, discard_draft, remove_place};

impl Host {
    /// What is mounted now. Bounded by 10 s.
    pub async fn mounts(&self) -> Result<MountTable, MountError> {
        let (machine, proc) = (self.inner.machine.clone(), self.inner.paths.proc.clone());
        let read = move || MountTable::read(&*machine, &proc);
        Ok(self
            .inner
            .calls
            .run_local("reading the list of mounts", TIMING.mount_table_timeout, read)
            .await??)
    }

    /// `path` as the kernel names it in the list of mounts: symbolic links of its parents are followed. Bounded by 10 s.
    pub async fn resolve(&self, path: &Path) -> Result<PathBuf, MountError> {
        let (machine, path) = (self.inner.machine.clone(), path.to_owned());
        let what = format!("resolving {}", path.display());
        Ok(self
            .inner
            .calls
            .run_local(what, TIMING.mount_table_timeout, move || {
                mountinfo::resolve(&*machine, &path)
            })
            .await?)
    }

    /// Makes `target` with `mode` if it is not there, its parents too. `true` if it was made.
    pub async fn create_place(&self, target: &Path, place: Place, mode: u32) -> Result<bool, MountError> {
        let (machine, path) = (self.inner.machine.clone(), target.to_owned());
        let what = format!("creating {}", target.display());
        let call = move || create_place(&*machine, &path, place, mode);
        let created = self
            .inner
            .calls
            .change_at(target, what, TIMING.mount_table_timeout, call);
        created.await?
    }

    /// Removes an empty directory or an empty file; nothing there is fine. Never removes what either holds.
    pub async fn remove_place(&self, target: &Path) -> Result<(), MountError> {
        let (machine, target) = (self.inner.machine.clone(), target.to_owned());
        let what = format!("removing {}", target.display());
        self.inner
            .calls
            .run(what, TIMING.mount_table_timeout, move || {
                remove_place(&*machine, &target)
            })
            .await?
    }

    /// Mounts the file system of `device` at `target`, which exists and has nothing mounted on it. Bounded by 10 min.
    ///
    /// Dropping the future leaves the mount going on; the list of mounts tells how it ended. A btrfs that fails may leave a draft, as
    /// [`Host::is_mounted`] tells.
    pub async fn mount(
        &self,
        device: &Device,
        target: &Path,
        fs_type: FsType,
        options: &MountOptions,
    ) -> Result<(), MountError> {
        let what = format!("mounting {} at {}", device.path.display(), target.display());
        let (machine, paths) = (self.inner.machine.clone(), self.inner.paths.clone());
        let (disk, path, options) = (device.clone(), target, options.clone());
        let target = path.to_owned();
        if fs_type == FsType::Btrfs {
            let call = move || mount_beside(&*machine, &paths, &disk, &target, fs_type, &options, None);
            return self
                .inner
                .calls
                .change_at(path, what, TIMING.mount_timeout, call)
                .await?;
        }
        let device = disk.path;
        let call = move || match mount(&*machine, &device, &target, fs_type, &options) {
            // A clone has its source's UUID, and xfs refuses to mount the same one twice on a node unless it is told not
            // to look. The kernel says no more than «invalid».
            Err(MountError::Mount { source, .. })
                if fs_type == FsType::Xfs && Errno::from_io_error(&source) == Some(Errno::INVAL) =>
            {
                let blind = options.clone().with("nouuid");
                let mounted = mount(&*machine, &device, &target, fs_type, &blind);
                // What was asked for is what is reported.
                match mounted {
                    Ok(()) => {
                        tracing::info!(device = %device.display(), "mounted beside another xfs of the same UUID");
                        Ok(())
                    }
                    Err(_) => mount(&*machine, &device, &target, fs_type, &options),
                }
            }
            mounted => mounted,
        };
        self.inner
            .calls
            .change_at(path, what, TIMING.mount_timeout, call)
            .await?
    }

    /// Mounts a file system that the kernel has in use elsewhere on this node, as [`Host::mount`] does. Bounded by 20 min.
    ///
    /// All mounts share one superblock with its options. A read-only mount of a writable superblock is possible, a writable mount
    /// of a read-only one is not. A file system that was shut down after an error is refused.
    pub async fn mount_again(
        &self,
        device: &Device,
        target: &Path,
        fs_type: FsType,
        options: &MountOptions,
    ) -> Result<(), MountError> {
        let mut mounted = self.mount(device, target, fs_type, options).await;
        if mounted.as_ref().is_err_and(MountError::is_busy) && options.is_read_only() {
            let what = format!("mounting {} at {} once more", device.path.display(), target.display());
            let (machine, paths) = (self.inner.machine.clone(), self.inner.paths.clone());
            let (device, path, options) = (device.clone(), target.to_owned(), options.clone());
            let call = move || {
                let writable = MountOptions::default();
                mount_beside(&*machine, &paths, &device, &path, fs_type, &writable, Some(&options))
            };
            let calls = &self.inner.calls;
            mounted = calls.change_at(target, what, TIMING.mount_timeout, call).await?;
        }
        match mounted {
            Ok(()) => self.check_readable(target).await,
            Err(MountError::Mount {
                device,
                target,
                reason,
                source,
                ..
            }) if Errno::from_io_error(&source) == Some(Errno::BUSY) => Err(MountError::AccessConflict {
                device,
                target,
                access: if options.is_read_only() {
                    "read-only"
                } else {
                    "writable"
                },
                reason,
            }),
            Err(error) => Err(error),
        }
    }

    /// Unmounts a fresh mount whose root directory cannot be read.
    async fn check_readable(&self, target: &Path) -> Result<(), MountError> {
        let (machine, root) = (self.inner.machine.clone(), target.to_owned());
        let what = format!("reading {}", target.display());
        let read = move || machine.touch_directory(&root);
        let Err(source) = self.inner.calls.run(what, TIMING.mount_table_timeout, read).await? else {
            return Ok(());
        };
        self.unmount(target).await?;
        Err(MountError::Place {
            what: "read the file system, which is in use elsewhere on this node, at",
            target: target.to_owned(),
            source,
        })
    }

    /// Shows `from` at `target` as well; both exist and nothing is mounted on `target`. Bounded by 10 s.
    ///
    /// With options the result has them from its first moment: a plain bind and a later change would leave a writable
    /// mount behind if the process ended in between, which nobody could tell from one that was asked for.
    pub async fn bind(
        &self,
        from: &Path,
        target: &Path,
        place: Place,
        options: &MountOptions,
    ) -> Result<(), MountError> {
        let (machine, proc) = (self.inner.machine.clone(), self.inner.paths.proc.clone());
        let (from, path, options) = (from.to_owned(), target, options.clone());
        let what = format!("binding {} to {}", from.display(), target.display());
        let target = path.to_owned();
        let call = move || {
            let machine = &*machine;
            if options.is_default() {
                return bind(machine, &from, &target);
            }
            let draft = draft_of(&target);
            discard_draft(machine, &proc, &draft)?;
            create_place(machine, &draft, place, 0o700)?;
            let covered = MountTable::read(machine, &proc)?;
            let inherited = covered
                .at(&mountinfo::resolve(machine, &from))
                .map(|mount| mount.options.clone());
            let bound = bind(machine, &from, &draft)
                .and_then(|()| restrict(machine, &draft, &options, inherited.as_deref()))
                // The copy of a mount has the options of the mount.
                .and_then(|()| bind(machine, &draft, &target));
            // What is left of the draft takes nothing away from the target: the next bind or unmount there clears it.
            if let Err(error) = discard_draft(machine, &proc, &draft) {
                tracing::warn!(%error, draft = %draft.display(), "a prepared mount is left until the next call");
            }
            bound
        };
        self.inner
            .calls
            .change_at(path, what, TIMING.mount_table_timeout, call)
            .await?
    }

    /// Unmounts everything that is mounted on `target`, and what an interrupted [`Host::bind`] left beside it. Nothing
    /// there is fine. `true` if something was unmounted. Bounded by 10 min.
    ///
    /// Dropping the future leaves the unmount going on. As long as a [`Host::create_place`], a mount or a bind at `target` has not ended,
    /// even one that was given up, the error is [`OffloadError::Unfinished`].
    pub async fn unmount(&self, target: &Path) -> Result<bool, MountError> {
        let (proc, path) = (self.inner.paths.proc.clone(), target);
        let target = path.to_owned();
        let machine = self.inner.machine.clone();
        let what = format!("unmounting {}", target.display());
        let call = move || {
            discard_draft(&*machine, &proc, &draft_of(&target))?;
            unmount_all(&*machine, &proc, &target)
        };
        self.inner
            .calls
            .unmount_at(path, what, TIMING.unmount_timeout, call)
            .await?
    }

    /// Unmounts and removes what an interrupted [`Host::mount`] or [`Host::bind`] left beside `target`. Bounded by 10 min.
    ///
    /// Until then it uses the device like any other mount. Dropping the future leaves the unmount going on.
    pub async fn discard_draft(&self, target: &Path) -> Result<(), MountError> {
        let (proc, draft) = (self.inner.paths.proc.clone(), draft_of(target));
        let machine = self.inner.machine.clone();
        let what = format!("unmounting {}", draft.display());
        let call = move || discard_draft(&*machine, &proc, &draft);
        self.inner.calls.run(what, TIMING.unmount_timeout, call).await?
    }

    /// Writes back what is dirty in the file system that is mounted at `target`: what an unmount does not do while the file system
    /// is mounted somewhere else as well. `false` if nothing is mounted there. Bounded by 10 min.
    ///
    /// Dropping the future leaves it going on.
    pub async fn write_back(&self, target: &Path) -> Result<bool, MountError> {
        let (proc, target) = (self.inner.paths.proc.clone(), target.to_owned());
        let machine = self.inner.machine.clone();
        let what = format!("writing back {}", target.display());
        let call = move || {
            let place = mountinfo::resolve(&*machine, &target);
            if MountTable::read(&*machine, &proc)?.at(&place).is_none() {
                return Ok(false);
            }
            let written = machine.syncfs(&place);
            written.map(|()| true).map_err(|source| MountError::Place {
                what: "write back",
                target: place,
                source,
            })
        };
        self.inner.calls.run(what, TIMING.unmount_timeout, call).await?
    }

    /// Whether something is mounted at `path`, or is left beside it of what was to be mounted there. Bounded by 20 s.
    pub async fn is_mounted(&self, path: &Path) -> Result<bool, MountError> {
        let (place, draft) = (self.resolve(path).await?, self.resolve(&draft_of(path)).await?);
        let mounts = self.mounts().await?;
        Ok([place, draft].iter().any(|place| mounts.at(place).is_some()))
    }

    /// The device number of the block device at `path`, or nothing if there is no block device. Bounded by 10 s.
    pub async fn device_number(&self, path: &Path) -> Result<Option<(u32, u32)>, MountError> {
        let (machine, target) = (self.inner.machine.clone(), path.to_owned());
        let call = move || match machine.stat(&target) {
            Ok(found) if found.kind == Kind::BlockDevice => Ok(Some(found.number)),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(MountError::Place {
                what: "look at",
                target,
                source,
            }),
        };
        self.inner
            .calls
            .run(
                format!("looking at {}", path.display()),
                TIMING.mount_table_timeout,
                call,
            )
            .await?
    }
}

/// Where a bind with options is prepared: beside its target, so that it is found again by the target alone.
fn draft_of(target: &Path) -> PathBuf {
    let mut name: OsString = target.as_os_str().to_owned();
    name.push(".preparing");
    PathBuf::from(name)
}

/// Mounts beside the target first, and shows the result at the target once it is right.
///
/// The kernel knows a btrfs by its UUID, whichever disk is named, and a clone has its source's: where that is mounted, it is shown
/// instead. So the target never shows another volume's data, wherever this process ends. With a restriction, the mount has its
/// flags before the target shows it.
fn mount_beside(
    machine: &dyn Machine,
    paths: &HostPaths,
    device: &Device,
    target: &Path,
    fs_type: FsType,
    options: &MountOptions,
    restriction: Option<&MountOptions>,
) -> Result<(), MountError> {
    let (proc, draft) = (&paths.proc, draft_of(target));
    discard_draft(machine, proc, &draft)?;
    if fs_type == FsType::Btrfs {
        btrfs::check_alone(machine, paths, device, &draft)?;
    }
    create_place(machine, &draft, Place::Directory, 0o700)?;
    let mounted = mount(machine, &device.path, &draft, fs_type, options).and_then(|()| {
        let mounts = MountTable::read(machine, proc)?;
        let found = mounts.at(&mountinfo::resolve(machine, &draft));
        if let Some(other) = found.filter(|mount| !mount.is_of(device)) {
            return Err(MountError::OtherDisk {
                device: device.path.clone(),
                target: target.to_owned(),
                source_name: other.source.display().to_string(),
            });
        }
        if fs_type == FsType::Btrfs {
            btrfs::check_members(machine, paths, device)?;
        }
        if let Some(restriction) = restriction {
            let inherited = found.map(|mount| mount.options.as_str());
            restrict(machine, &draft, restriction, inherited)?;
        }
        bind(machine, &draft, target)
    });
    // What is left of the draft takes nothing away from the target: the next mount or unmount there clears it.
    if let Err(error) = discard_draft(machine, proc, &draft) {
        tracing::warn!(%error, draft = %draft.display(), "a prepared mount is left until the next call");
    }
    mounted
}

fn bind(machine: &dyn Machine, from: &Path, target: &Path) -> Result<(), MountError> {
    machine
        .bind(from, target)
        .map_err(|source| bind_error(from, target, source))
}

/// Gives a fresh bind the options that were asked for, beside those that it inherited: the kernel replaces the whole set.
fn restrict(
    machine: &dyn Machine,
    target: &Path,
    options: &MountOptions,
    inherited: Option<&str>,
) -> Result<(), MountError> {
    let inherited = MountOptions::parse(inherited.as_slice()).map_or(MountFlags::empty(), |options| options.flags());
    let atime = MountFlags::NOATIME | MountFlags::RELATIME | MountFlags::STRICTATIME;
    let kept = if options.flags().intersects(atime) {
        inherited - atime
    } else {
        inherited
    };
    machine
        .remount_bind(target, kept | options.flags())
        .map_err(|source| bind_error(target, target, source))
}

fn bind_error(from: &Path, target: &Path, source: io::Error) -> MountError {
    MountError::Bind {
        from: from.to_owned(),
        target: target.to_owned(),
        source,
    }
}
