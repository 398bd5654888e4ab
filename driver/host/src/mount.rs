// SPDX-License-Identifier: Apache-2.0
//! Mounts, binds and unmounts file systems.
//!
//! The driver uses no mount helper. It splits the options itself and passes them to the kernel with the `fsopen`
//! family, which returns messages for a rejected option. It falls back to `mount(2)` on kernels without `fsopen`.

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
pub use place::MountPointKind;
use place::mount;
use place::unmount_all;
use place::{create_place, discard_draft, remove_place};

impl Host {
    /// Returns the current mounts. Bounded by 10 s.
    pub async fn mounts(&self) -> Result<MountTable, MountError> {
        let (machine, proc) = (self.inner.machine.clone(), self.inner.paths.proc.clone());
        let read = move || MountTable::read(&*machine, &proc);
        Ok(self
            .inner
            .calls
            .run_local("reading the list of mounts", TIMING.mount_table_timeout, read)
            .await??)
    }

    /// Resolves the symbolic links in the parents of `path`, so that it matches the list of mounts. Bounded by 10 s.
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

    /// Creates `target` with `mode`, and its parents. Returns `true` if `target` did not exist.
    pub async fn create_place(&self, target: &Path, place: MountPointKind, mode: u32) -> Result<bool, MountError> {
        let (machine, path) = (self.inner.machine.clone(), target.to_owned());
        let what = format!("creating {}", target.display());
        let call = move || create_place(&*machine, &path, place, mode);
        let created = self
            .inner
            .calls
            .change_at(target, what, TIMING.mount_table_timeout, call);
        created.await?
    }

    /// Removes an empty directory or an empty file; succeeds if nothing exists. Never removes content.
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

    /// Mounts the file system of `device` at `target`, which exists and is not a mount point yet. Bounded by 10 min.
    ///
    /// Dropping the future does not cancel the mount; the list of mounts shows the result. A failed mount of a btrfs
    /// may orphan a draft, which [`Host::is_mounted`] reports.
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
            let call = move || mount_through_draft(&*machine, &paths, &disk, &target, fs_type, &options, None);
            return self
                .inner
                .calls
                .change_at(path, what, TIMING.mount_timeout, call)
                .await?;
        }
        let device = disk.path;
        let call = move || match mount(&*machine, &device, &target, fs_type, &options) {
            // A clone has the UUID of its source. xfs refuses the same UUID twice on a node without `nouuid`, and the
            // kernel reports only «invalid».
            Err(MountError::Mount { source, .. })
                if fs_type == FsType::Xfs && Errno::from_io_error(&source) == Some(Errno::INVAL) =>
            {
                let blind = options.clone().with("nouuid");
                let mounted = mount(&*machine, &device, &target, fs_type, &blind);
                // The error must describe the mount with the requested options.
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

    /// Mounts a file system that is in use elsewhere on this node, as [`Host::mount`] does. Bounded by 20 min.
    ///
    /// All mounts share one superblock with its options. A read-only mount of a writable superblock is possible, a
    /// writable mount of a read-only one is not. A file system that was shut down after an error is refused.
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
                mount_through_draft(&*machine, &paths, &device, &path, fs_type, &writable, Some(&options))
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

    /// Reads the root directory of a fresh mount, and unmounts it after a failure.
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

    /// Binds `from` to `target`. Both exist, and `target` is not a mount point yet. Bounded by 10 s.
    ///
    /// The bind has the options from its first moment. A plain bind that is restricted later could remain writable if
    /// the process ended in between. Such a mount looks like a requested one.
    pub async fn bind(
        &self,
        from: &Path,
        target: &Path,
        place: MountPointKind,
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
            let draft = draft_path(&target);
            discard_draft(machine, &proc, &draft)?;
            create_place(machine, &draft, place, 0o700)?;
            let covered = MountTable::read(machine, &proc)?;
            let inherited = covered
                .at(&mountinfo::resolve(machine, &from))
                .map(|mount| mount.options.clone());
            let bound = bind(machine, &from, &draft)
                .and_then(|()| restrict(machine, &draft, &options, inherited.as_deref()))
                // A bind inherits the options of the mount that it copies.
                .and_then(|()| bind(machine, &draft, &target));
            // A remaining draft does not affect the target. The next bind or unmount at the target removes it.
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

    /// Unmounts all mounts at `target`, and the draft that an interrupted [`Host::bind`] orphaned next to it. Bounded
    /// by 10 min.
    ///
    /// Returns `true` if something was unmounted, and `false` if nothing was mounted. Dropping the future does not
    /// cancel the unmount. Fails with [`OffloadError::Unfinished`] while a [`Host::create_place`], a mount or a bind at
    /// `target` is running, even if its caller has given up.
    ///
    /// [`OffloadError::Unfinished`]: crate::offload::OffloadError::Unfinished
    pub async fn unmount(&self, target: &Path) -> Result<bool, MountError> {
        let (proc, path) = (self.inner.paths.proc.clone(), target);
        let target = path.to_owned();
        let machine = self.inner.machine.clone();
        let what = format!("unmounting {}", target.display());
        let call = move || {
            discard_draft(&*machine, &proc, &draft_path(&target))?;
            unmount_all(&*machine, &proc, &target)
        };
        self.inner
            .calls
            .unmount_at(path, what, TIMING.unmount_timeout, call)
            .await?
    }

    /// Unmounts and removes the draft that an interrupted [`Host::mount`] or [`Host::bind`] orphaned next to `target`.
    /// Bounded by 10 min.
    ///
    /// A draft uses the device like any other mount. Dropping the future does not cancel the unmount.
    pub async fn discard_draft(&self, target: &Path) -> Result<(), MountError> {
        let (proc, draft) = (self.inner.paths.proc.clone(), draft_path(target));
        let machine = self.inner.machine.clone();
        let what = format!("unmounting {}", draft.display());
        let call = move || discard_draft(&*machine, &proc, &draft);
        self.inner.calls.run(what, TIMING.unmount_timeout, call).await?
    }

    /// Writes back the dirty data of the file system that is mounted at `target`. Bounded by 10 min.
    ///
    /// An unmount does not write it back while the file system has another mount. Returns `false` if nothing is mounted
    /// at `target`. Dropping the future does not cancel the call.
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

    /// Whether `path` or its draft is a mount point. Bounded by 20 s.
    pub async fn is_mounted(&self, path: &Path) -> Result<bool, MountError> {
        let (place, draft) = (self.resolve(path).await?, self.resolve(&draft_path(path)).await?);
        let mounts = self.mounts().await?;
        Ok([place, draft].iter().any(|place| mounts.at(place).is_some()))
    }

    /// Returns the device number of the block device at `path`; `None` if it is not a block device. Bounded by 10 s.
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

/// Returns the path at which a mount for `target` is prepared. It depends on the target alone, so that later calls find
/// it.
fn draft_path(target: &Path) -> PathBuf {
    let mut name: OsString = target.as_os_str().to_owned();
    name.push(".preparing");
    PathBuf::from(name)
}

/// Mounts at a draft next to the target, checks the result, and then binds it to the target.
///
/// The kernel identifies a btrfs by its UUID, whichever disk is named, and a clone has the UUID of its source. If the
/// source is mounted, the kernel shows the source instead. Because of the draft, the target never shows the data of
/// another volume, wherever this process ends. With a restriction, the mount has its flags before the target shows it.
fn mount_through_draft(
    machine: &dyn Machine,
    paths: &HostPaths,
    device: &Device,
    target: &Path,
    fs_type: FsType,
    options: &MountOptions,
    restriction: Option<&MountOptions>,
) -> Result<(), MountError> {
    let (proc, draft) = (&paths.proc, draft_path(target));
    discard_draft(machine, proc, &draft)?;
    if fs_type == FsType::Btrfs {
        btrfs::check_single_device(machine, paths, device, &draft)?;
    }
    create_place(machine, &draft, MountPointKind::Directory, 0o700)?;
    let mounted = mount(machine, &device.path, &draft, fs_type, options).and_then(|()| {
        let mounts = MountTable::read(machine, proc)?;
        let shown = mounts.at(&mountinfo::resolve(machine, &draft));
        if let Some(other) = shown.filter(|mount| !mount.is_of(device)) {
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
            let inherited = shown.map(|mount| mount.options.as_str());
            restrict(machine, &draft, restriction, inherited)?;
        }
        bind(machine, &draft, target)
    });
    // A remaining draft does not affect the target. The next mount or unmount at the target removes it.
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

/// Adds options to a fresh bind. The call includes the inherited options, because the kernel replaces the whole set.
fn restrict(
    machine: &dyn Machine,
    target: &Path,
    options: &MountOptions,
    inherited: Option<&str>,
) -> Result<(), MountError> {
    let inherited = MountOptions::parse(inherited.as_slice()).map_or(MountFlags::empty(), |options| options.flags());
    let atime = MountFlags::NOATIME | MountFlags::RELATIME | MountFlags::STRICTATIME;
    let retained = if options.flags().intersects(atime) {
        inherited - atime
    } else {
        inherited
    };
    machine
        .remount_bind(target, retained | options.flags())
        .map_err(|source| bind_error(target, target, source))
}

fn bind_error(from: &Path, target: &Path, source: io::Error) -> MountError {
    MountError::Bind {
        from: from.to_owned(),
        target: target.to_owned(),
        source,
    }
}
