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

/// A blocking call, which sends its own result.
pub type Job = Box<dyn FnOnce() + Send>;

/// A boxed future that can move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Access mode of an open device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// Reads, concurrently with other users.
    Read,
    /// Reads past every cache, from the first byte on.
    ReadDirectly,
    /// Reads while no mount and no mkfs uses the device. Fails with `EBUSY` otherwise.
    ReadAlone,
    /// Writes while no mount and no mkfs uses the device. Fails with `EBUSY` otherwise.
    WriteAlone,
}

/// File type of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Directory,
    BlockDevice,
    Other,
}

/// File attributes of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub kind: Kind,
    /// Major and minor number of a device node (`st_rdev`); meaningless for other files.
    pub number: (u32, u32),
    /// Major and minor number of the file system that contains the path (`st_dev`).
    pub filesystem: (u32, u32),
    /// Size in bytes of a regular file or of the target of a symbolic link; meaningless for other files.
    pub size: u64,
}

/// Reason why the kernel did not mount a file system.
#[derive(Debug)]
pub struct Refusal {
    pub errno: Errno,
    /// Messages of the kernel; empty if it gave none.
    pub messages: Vec<String>,
}

/// A node as the kernel shows it to this process. Errors have the error numbers of the kernel.
///
/// Every function that does not return a future blocks, without limit if a device hangs. [`crate::Host`] calls them
/// only within [`Machine::start`], with a time limit.
pub trait Machine: fmt::Debug + Send + Sync {
    /// Starts a blocking call and returns at once. After an error the system had no thread, and the call is dropped.
    fn start(&self, job: Job) -> io::Result<()>;

    /// Reads a whole file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Reads a whole text file.
    fn read_to_string(&self, path: &Path) -> io::Result<String> {
        // Message of the standard library for invalid UTF-8.
        String::from_utf8(self.read(path)?)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8"))
    }

    /// Lists the names in a directory, sorted.
    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>>;

    /// Reads the first entry of a directory. Fails if the file system has been shut down.
    fn touch_directory(&self, directory: &Path) -> io::Result<()>;

    /// Resolves all symbolic links of an existing path.
    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf>;

    /// Reads the target of a symbolic link.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;

    /// Reads the attributes of a path. Follows symbolic links.
    fn stat(&self, path: &Path) -> io::Result<Stat>;

    /// Reads the attributes of a path. Does not follow a symbolic link at its end.
    fn lstat(&self, path: &Path) -> io::Result<Stat>;

    /// Whether a path exists. Follows symbolic links.
    fn exists(&self, path: &Path) -> bool {
        self.stat(path).is_ok()
    }

    /// Writes into an existing file of sysfs. The outer error is from the open, the inner one from the write.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<io::Result<()>>;

    /// Opens a device. While it is open, its number always identifies the same disk.
    fn open_disk(&self, path: &Path, how: Open) -> io::Result<Box<dyn Disk>>;

    /// Mounts the file system of `device` at `target`.
    fn mount(&self, device: &Path, target: &Path, fs_type: FsType, options: &MountOptions) -> Result<(), Refusal>;

    /// Binds `from` to `target`.
    fn bind(&self, from: &Path, target: &Path) -> io::Result<()>;

    /// Replaces all flags of the one mount at `target`.
    fn remount_bind(&self, target: &Path, flags: MountFlags) -> io::Result<()>;

    /// Unmounts the last mount at `target`, which is not a symbolic link.
    fn unmount(&self, target: &Path) -> io::Result<()>;

    /// Writes back the dirty data of the file system that contains the directory (`syncfs`).
    fn syncfs(&self, directory: &Path) -> io::Result<()>;

    /// Creates a directory. Fails with `AlreadyExists` if the path exists.
    fn create_directory(&self, path: &Path, mode: u32) -> io::Result<()>;

    /// Creates a directory and its parents. Succeeds if they exist.
    fn create_directories(&self, path: &Path, mode: u32) -> io::Result<()>;

    /// Creates an empty file. Fails with `AlreadyExists` if the path exists.
    fn create_file(&self, path: &Path, mode: u32) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Reads the usage of the file system that contains a path.
    fn statvfs(&self, path: &Path) -> io::Result<Usage>;

    /// Runs `tool` with `args` and then `device` as its last argument, for at most `limit`.
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

    /// Watches the directories of device nodes. `None` if the kernel cannot; the driver then polls.
    fn device_watch(&self, paths: &HostPaths) -> Option<Box<dyn DeviceWatch>> {
        let _ = paths;
        None
    }

    /// Whether this process may grow a mounted ext file system. The kernel requires `CAP_SYS_RESOURCE`.
    fn may_grow_mounted_ext(&self) -> bool;
}

/// An open block device. The drop closes it, which may block.
pub trait Disk: fmt::Debug + Send {
    /// Returns the major and minor number.
    fn number(&self) -> io::Result<(u32, u32)>;

    /// Returns the size in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Reads some bytes; none at the end of the device.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Fills the buffer. Fails with `UnexpectedEof` if the device ends earlier.
    fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read_at(buffer, offset) {
                // Message of the standard library.
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

    /// Writes the whole buffer.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Flushes all data that was written to the device, by any process.
    fn sync(&self) -> io::Result<()>;

    /// Enables or disables reads past the page cache.
    fn set_direct(&self, direct: bool) -> io::Result<()>;
}

/// A watch of the directories in which new disks appear.
pub trait DeviceWatch: fmt::Debug + Send + Sync {
    /// Completes after an event since the last call. Cancellation-safe.
    fn happen(&self) -> BoxFuture<'_, io::Result<()>>;
}
