// SPDX-License-Identifier: Apache-2.0
//! The trait of a machine, and its types.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::MountFlags;

use crate::tool::{ToolError, ToolExit, ToolTask};
use crate::{FsType, HostPaths, MountOptions, Usage};

/// A blocking call, which brings its answer to whoever waits for it.
pub type Job = Box<dyn FnOnce() + Send>;

/// Something that is waited for.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What opening a device is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// To read, beside other users.
    Read,
    /// The same past every cache, from the first byte on.
    ReadDirectly,
    /// To read, and no other writer: neither a mount nor a mkfs. `EBUSY` where there is one.
    ReadAlone,
    /// To write, alone: neither a mount nor a mkfs. `EBUSY` where there is one.
    WriteAlone,
}

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Directory,
    BlockDevice,
    /// Anything else.
    Other,
}

/// What the kernel says of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub kind: Kind,
    /// Major and minor number of the device that it is (`st_rdev`); of no meaning where it is none.
    pub number: (u32, u32),
    /// Major and minor number of the file system that it is on (`st_dev`).
    pub filesystem: (u32, u32),
    /// Bytes of a file, or of what a symbolic link says; of no meaning for anything else.
    pub size: u64,
}

/// Why the kernel did not mount a file system.
#[derive(Debug)]
pub struct Refusal {
    pub errno: Errno,
    /// What the kernel said beside it; empty where it said nothing.
    pub messages: Vec<String>,
}

/// A node as the kernel shows it to this process. Errors are the kernel's own, with its error numbers.
///
/// Every function that is no future blocks, for ever where a device hangs. [`crate::Host`] calls them within [`Machine::start`]
/// only, with a limit.
pub trait Machine: fmt::Debug + Send + Sync {
    /// Lets a blocking call run, and returns at once. An error: the system gives no thread, and the call is dropped.
    fn start(&self, job: Job) -> io::Result<()>;

    /// All of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// All of a file that is text.
    fn read_to_string(&self, path: &Path) -> io::Result<String> {
        // The standard library's own words for what is no text.
        String::from_utf8(self.read(path)?)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8"))
    }

    /// Names in a directory, sorted.
    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>>;

    /// Reads the first entry of a directory, whatever it is: what a file system that was shut down refuses.
    fn touch_directory(&self, directory: &Path) -> io::Result<()>;

    /// The path without symbolic links. Everything on it exists.
    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf>;

    /// Where a symbolic link leads.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;

    /// What is at the end of a path, symbolic links followed.
    fn stat(&self, path: &Path) -> io::Result<Stat>;

    /// The same of the link itself.
    fn lstat(&self, path: &Path) -> io::Result<Stat>;

    /// Whether something is at the end of a path.
    fn exists(&self, path: &Path) -> bool {
        self.stat(path).is_ok()
    }

    /// Writes into a file of sysfs that exists. The outer error is the opening's, the inner one the writing's.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<io::Result<()>>;

    /// Opens a device. It stays the same disk for as long as the opening lives, and its number is given to no other.
    fn open_disk(&self, path: &Path, how: Open) -> io::Result<Box<dyn Disk>>;

    /// Mounts the file system of `device` at `target`.
    fn mount(&self, device: &Path, target: &Path, fs_type: FsType, options: &MountOptions) -> Result<(), Refusal>;

    /// Shows `from` at `target` as well.
    fn bind(&self, from: &Path, target: &Path) -> io::Result<()>;

    /// Replaces all flags of the one mount at `target`.
    fn remount_bind(&self, target: &Path, flags: MountFlags) -> io::Result<()>;

    /// Unmounts what was mounted last at `target`, which is no symbolic link.
    fn unmount(&self, target: &Path) -> io::Result<()>;

    /// Writes back what is dirty in the file system that the directory is of (`syncfs`).
    fn syncfs(&self, directory: &Path) -> io::Result<()>;

    /// Makes a directory. `AlreadyExists` where something is.
    fn create_directory(&self, path: &Path, mode: u32) -> io::Result<()>;

    /// Makes a directory and its parents. One that is there is fine.
    fn create_directories(&self, path: &Path, mode: u32) -> io::Result<()>;

    /// Makes an empty file. `AlreadyExists` where something is.
    fn create_file(&self, path: &Path, mode: u32) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Removes what is no directory.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// How full the file system at a path is.
    fn statvfs(&self, path: &Path) -> io::Result<Usage>;

    /// Runs `tool` with `args` on `device` (which comes last in its command line), for no longer than `limit`.
    ///
    /// Dropping the future ends the program, or lets it continue: see [`ToolTask::time_up`].
    fn run<'a>(
        &'a self,
        tool: &'a Path,
        args: &'a [&'a str],
        device: &'a Path,
        limit: Duration,
        task: ToolTask,
    ) -> BoxFuture<'a, Result<ToolExit, ToolError>>;

    /// Watches from now on where new disks show up. Nothing where the kernel cannot: then only the clock wakes.
    fn device_watch(&self, paths: &HostPaths) -> Option<Box<dyn DeviceWatch>> {
        let _ = paths;
        None
    }

    /// Whether the kernel lets this process grow an ext file system that is mounted: that takes `CAP_SYS_RESOURCE`.
    fn may_grow_mounted_ext(&self) -> bool;
}

/// An opening of a block device. Its drop closes it, which may block.
pub trait Disk: fmt::Debug + Send {
    /// Major and minor number.
    fn number(&self) -> io::Result<(u32, u32)>;

    /// Size in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Reads some bytes; none at the end of the device.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Fills the buffer. `UnexpectedEof` where the device ends before.
    fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read_at(buffer, offset) {
                // The standard library's own words.
                Ok(0) => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "failed to fill whole buffer",
                    ));
                }
                Ok(read) => {
                    buffer = buffer.get_mut(read..).unwrap_or_default();
                    offset += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all of it.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes durable what was written, by whomever.
    fn sync(&self) -> io::Result<()>;

    /// Lets reads go past the kernel's cache, or through it again.
    fn set_direct(&self, direct: bool) -> io::Result<()>;
}

/// A watch over the places where new disks show up.
pub trait DeviceWatch: fmt::Debug + Send + Sync {
    /// Ends when something has happened since the last call. May be cancelled.
    fn happen(&self) -> BoxFuture<'_, io::Result<()>>;
}
