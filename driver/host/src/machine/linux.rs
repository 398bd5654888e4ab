// SPDX-License-Identifier: Apache-2.0
//! Implements [`Machine`] with the kernel and the programs of this node.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "only this module of the crate calls the kernel"
)]

mod confinement;
mod device_watch;
mod mounts;
mod programs;
mod threads;

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, StatVfs, major, minor};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::thread::CapabilitySet;

pub use self::confinement::exec_if_confined;
use self::threads::CallThreads;
use super::{BoxFuture, DeviceWatch, Disk, Job, Kind, Machine, Open, Refusal, Stat};
use crate::tool::{ToolError, ToolExit, ToolTask};
use crate::{FsType, HostPaths, MountOptions, Usage};

/// The machine on which this process runs.
#[derive(Debug, Clone, Default)]
pub struct Linux {
    threads: Arc<CallThreads>,
    /// Program that confines itself and then executes the tool.
    launcher: Option<PathBuf>,
}

impl Linux {
    /// Runs programs confined by `launcher`, whose `main` function calls [`exec_if_confined`] first.
    pub fn confined_by(launcher: PathBuf) -> Self {
        Self {
            launcher: Some(launcher),
            ..Self::default()
        }
    }

    /// Runs programs confined by the executable of this process. Logs a warning if the kernel of this node lacks
    /// Landlock.
    pub fn confined() -> Self {
        if !confinement::restricts_files() {
            tracing::warn!(
                "the kernel of this node has no Landlock: mkfs, fsck and other programs run without capabilities and network, and can \
                 open every device; enable landlock in the kernel's list of security modules (lsm=) to restrict them to their volume"
            );
        }
        Self::confined_by(confinement::own_program())
    }
}

impl Machine for Linux {
    fn start(&self, job: Job) -> io::Result<()> {
        self.threads.start(job)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        let entries = fs::read_dir(directory)?;
        let names: io::Result<Vec<OsString>> = entries.map(|entry| Ok(entry?.file_name())).collect();
        names.map(|mut names| {
            names.sort_unstable();
            names
        })
    }

    fn touch_directory(&self, directory: &Path) -> io::Result<()> {
        fs::read_dir(directory)?.next().transpose().map(drop)
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        fs::read_link(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        fs::metadata(path).map(|metadata| stat(&metadata))
    }

    fn lstat(&self, path: &Path) -> io::Result<Stat> {
        fs::symlink_metadata(path).map(|metadata| stat(&metadata))
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<io::Result<()>> {
        Ok(OpenOptions::new().write(true).open(path)?.write_all(bytes))
    }

    fn open_disk(&self, path: &Path, how: Open) -> io::Result<Box<dyn Disk>> {
        let flags = match how {
            Open::Read => OFlags::RDONLY,
            Open::ReadDirectly => OFlags::RDONLY | OFlags::DIRECT,
            Open::ReadAlone => OFlags::RDONLY | OFlags::EXCL,
            // O_EXCL is an exclusive claim on a block device. Mounts, mkfs, device mapper and md use it too.
            Open::WriteAlone => OFlags::RDWR | OFlags::EXCL,
        };
        let opened = rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Box::new(File::from(opened)))
    }

    fn mount(&self, device: &Path, target: &Path, fs_type: FsType, options: &MountOptions) -> Result<(), Refusal> {
        mounts::mount(device, target, fs_type, options)
    }

    fn bind(&self, from: &Path, target: &Path) -> io::Result<()> {
        Ok(rustix::mount::mount_bind(from, target)?)
    }

    fn remount_bind(&self, target: &Path, flags: MountFlags) -> io::Result<()> {
        Ok(rustix::mount::mount_remount(target, MountFlags::BIND | flags, "")?)
    }

    fn unmount(&self, target: &Path) -> io::Result<()> {
        Ok(rustix::mount::unmount(target, UnmountFlags::NOFOLLOW)?)
    }

    fn syncfs(&self, directory: &Path) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::syncfs(rustix::fs::open(directory, flags, Mode::empty())?)?)
    }

    fn create_directory(&self, path: &Path, mode: u32) -> io::Result<()> {
        DirBuilder::new().mode(mode).create(path)
    }

    fn create_directories(&self, path: &Path, mode: u32) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(mode).create(path)
    }

    fn create_file(&self, path: &Path, mode: u32) -> io::Result<()> {
        let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
        opened.map(drop)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn statvfs(&self, path: &Path) -> io::Result<Usage> {
        Ok(usage(&rustix::fs::statvfs(path)?))
    }

    fn run<'a>(
        &'a self,
        tool: &'a Path,
        args: &'a [&'a str],
        device: &'a Path,
        limit: Duration,
        task: ToolTask,
    ) -> BoxFuture<'a, Result<ToolExit, ToolError>> {
        let launcher = self.launcher.as_deref();
        Box::pin(programs::run(launcher, tool, args, device, limit, task))
    }

    fn device_watch(&self, paths: &HostPaths) -> Option<Box<dyn DeviceWatch>> {
        device_watch::InotifyWatch::watch(paths).map(|device_watch| Box::new(device_watch) as Box<dyn DeviceWatch>)
    }

    fn may_grow_mounted_ext(&self) -> bool {
        rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_RESOURCE))
    }
}

impl Disk for File {
    fn number(&self) -> io::Result<(u32, u32)> {
        let node = self.metadata()?.rdev();
        Ok((major(node), minor(node)))
    }

    fn size(&self) -> io::Result<u64> {
        let mut file = self;
        file.seek(SeekFrom::End(0))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }

    fn set_direct(&self, direct: bool) -> io::Result<()> {
        let mut flags = rustix::fs::fcntl_getfl(self)?;
        flags.set(OFlags::DIRECT, direct);
        Ok(rustix::fs::fcntl_setfl(self, flags)?)
    }
}

fn stat(metadata: &Metadata) -> Stat {
    let kind = if metadata.is_dir() {
        Kind::Directory
    } else if metadata.file_type().is_block_device() {
        Kind::BlockDevice
    } else {
        Kind::Other
    };
    let (number, filesystem) = (metadata.rdev(), metadata.dev());
    Stat {
        kind,
        number: (major(number), minor(number)),
        filesystem: (major(filesystem), minor(filesystem)),
        size: metadata.len(),
    }
}

fn usage(stat: &StatVfs) -> Usage {
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Usage {
        bytes_total: bytes(stat.f_blocks),
        bytes_used: bytes(stat.f_blocks.saturating_sub(stat.f_bfree)),
        bytes_available: bytes(stat.f_bavail),
        inodes_total: stat.f_files,
        inodes_used: stat.f_files.saturating_sub(stat.f_ffree),
        inodes_free: stat.f_ffree,
    }
}
