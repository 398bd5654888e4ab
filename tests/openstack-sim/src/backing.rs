// SPDX-License-Identifier: Apache-2.0
//! Volumes with data: sparse files as volumes, and loop devices as disks of servers.

mod losetup;

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use thiserror::Error;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::state::{CloudState, LoopDevice};
pub use losetup::LosetupError;

/// Poll interval for a busy device.
const LOOK: Duration = Duration::from_millis(50);

/// Limit of the wait for released devices that still have users.
const LETTING_GO: Duration = Duration::from_secs(5);

/// Limit of a copy of volume data.
const COPY: Duration = Duration::from_mins(2);

/// An operation on a file or a device failed.
#[derive(Debug, Error)]
pub enum BackingError {
    #[error("cannot prepare the backing folder {path}: {source}; name a folder that can be written")]
    PrepareFolder { path: PathBuf, source: io::Error },
    #[error("another simulator uses the backing folder {path}; stop it or name another folder")]
    LockFolder { path: PathBuf },
    #[error("cannot make the file {path}: {source}")]
    CreateFile { path: PathBuf, source: io::Error },
    #[error("cannot copy {from} to {to}: {reason}")]
    CopyFile { from: PathBuf, to: PathBuf, reason: String },
    #[error("cannot remove the file {path}: {source}")]
    RemoveFile { path: PathBuf, source: io::Error },
    #[error("cannot change the size of {path}: {source}")]
    Resize { path: PathBuf, source: io::Error },
    #[error("cannot link {link} to {device}: {source}; is the by-id folder of the server there and writable?")]
    Link {
        link: PathBuf,
        device: PathBuf,
        source: io::Error,
    },
    #[error("cannot remove the link {link}: {source}")]
    Unlink { link: PathBuf, source: io::Error },
    #[error("{device} is still in use after {after:?}: something has it mounted or open")]
    Busy { device: PathBuf, after: Duration },
    #[error(transparent)]
    Losetup(#[from] LosetupError),
}

/// The folder with the volume files.
#[derive(Debug)]
pub(crate) struct Backing {
    folder: PathBuf,
    /// Serializes calls of `losetup`, because two concurrent ones could select the same free device.
    losetup: Mutex<()>,
    /// Locked during the lifetime of the simulator.
    lock: fs::File,
}

impl Drop for Backing {
    fn drop(&mut self) {
        // Closing the file does not suffice: a child process between fork and exec still has it open.
        drop(self.lock.unlock());
    }
}

impl Backing {
    /// Opens and locks the folder. Fails if another simulator uses it.
    pub(crate) fn open(folder: &Path) -> Result<Self, BackingError> {
        let fail = |source| BackingError::PrepareFolder {
            path: folder.to_owned(),
            source,
        };
        fs::create_dir_all(folder.join("volumes")).map_err(fail)?;
        // Device lists contain resolved paths.
        let folder = folder.canonicalize().map_err(fail)?;
        let lock = fs::File::create(folder.join("lock")).map_err(fail)?;
        lock.try_lock()
            .map_err(|_| BackingError::LockFolder { path: folder.clone() })?;
        Ok(Self {
            folder,
            losetup: Mutex::default(),
            lock,
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn file(&self, id: &str) -> PathBuf {
        self.folder.join("volumes").join(format!("{id}.img"))
    }

    /// Creates the file of a volume or snapshot, empty or as a copy of another file.
    pub(crate) async fn create(&self, id: &str, bytes: u64, source: Option<&str>) -> Result<(), BackingError> {
        let path = self.file(id);
        if let Some(source) = source {
            copy(&self.file(source), &path).await?;
        }
        let fail = |source| BackingError::CreateFile {
            path: path.clone(),
            source,
        };
        let file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(fail)?;
        file.set_len(bytes).map_err(fail)
    }

    /// Deletes the file of a volume or snapshot, if it exists.
    pub(crate) fn remove(&self, id: &str) -> Result<(), BackingError> {
        let path = self.file(id);
        absent_is_fine(fs::remove_file(&path)).map_err(|source| BackingError::RemoveFile { path, source })
    }

    /// Grows a volume and its devices.
    pub(crate) async fn grow(&self, id: &str, bytes: u64, devices: &[LoopDevice]) -> Result<(), BackingError> {
        let path = self.file(id);
        let fail = |source| BackingError::Resize {
            path: path.clone(),
            source,
        };
        fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_len(bytes))
            .map_err(fail)?;
        for device in devices {
            losetup::read_size_again(&device.path).await?;
        }
        Ok(())
    }

    /// Attaches the volume to a server: creates a loop device, and its link as udev does for a virtio disk. A device
    /// that survived a kill of the simulator is reused.
    pub(crate) async fn attach(&self, volume_id: &str, by_id: &Path) -> Result<LoopDevice, BackingError> {
        let guard = self.losetup.lock().await;
        let file = self.file(volume_id);
        let link = by_id.join(link_name(volume_id));
        let known = losetup::devices_of(&file).await?;
        let linked = fs::read_link(&link).ok().filter(|target| known.contains(target));
        let path = match linked {
            Some(path) => path,
            None => losetup::set_up(&file).await?,
        };
        drop(guard);
        let device = LoopDevice { path, link };
        match make_link(&device) {
            Ok(()) => Ok(device),
            Err(source) => {
                losetup::tear_down(&device.path).await?;
                Err(BackingError::Link {
                    link: device.link,
                    device: device.path,
                    source,
                })
            }
        }
    }

    /// Detaches the volume from a server. Waits at most `patience` for a guest that keeps the device busy.
    pub(crate) async fn detach(&self, device: &LoopDevice, patience: Duration) -> Result<(), BackingError> {
        let end = Instant::now() + patience;
        while is_busy(&device.path) {
            if Instant::now() >= end {
                return Err(BackingError::Busy {
                    device: device.path.clone(),
                    after: patience,
                });
            }
            sleep(LOOK).await;
        }
        losetup::tear_down(&device.path).await?;
        // The kernel releases a device when its last user, for example a `dd`, closes it.
        while losetup::is_set_up(&device.path, &self.folder).await? {
            if Instant::now() >= end {
                return Err(BackingError::Busy {
                    device: device.path.clone(),
                    after: patience,
                });
            }
            sleep(LOOK).await;
        }
        unlink(&device.link)
    }

    /// Releases every device of this folder and deletes every link to one. Includes devices in the state, and remains
    /// of a killed simulator in the by-id folders of its servers.
    pub(crate) async fn release_all(&self, state: &CloudState) -> Result<(), BackingError> {
        self.release(state, |_| false).await
    }

    /// Releases all devices that are not attached according to the state.
    pub(crate) async fn release_strays(&self, state: &CloudState) -> Result<(), BackingError> {
        let attached = |device: &LoopDevice| {
            state.mappings.iter().any(|mapping| {
                device
                    .link
                    .file_name()
                    .is_some_and(|name| *name == *link_name(&mapping.volume_id))
                    && state.servers.iter().any(|server| {
                        server.spec.id == mapping.server_id && server.spec.by_id.as_deref() == device.link.parent()
                    })
            })
        };
        self.release(state, attached).await
    }

    async fn release(&self, state: &CloudState, keep: impl Fn(&LoopDevice) -> bool) -> Result<(), BackingError> {
        let devices = losetup::devices_below(&self.folder).await?;
        let mut links: Vec<LoopDevice> = state.loop_devices().cloned().collect();
        for folder in state.servers.iter().filter_map(|server| server.spec.by_id.as_deref()) {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let link = entry.path();
                let Ok(path) = fs::read_link(&link) else { continue };
                if devices.contains(&path) {
                    links.push(LoopDevice { path, link });
                }
            }
        }
        let links_in_use: Vec<_> = links
            .iter()
            .filter(|device| keep(device))
            .map(|device| device.path.clone())
            .collect();
        for device in links.iter().filter(|device| !keep(device)) {
            unlink(&device.link)?;
        }
        let end = Instant::now() + LETTING_GO;
        for device in devices.iter().filter(|device| !links_in_use.contains(device)) {
            losetup::tear_down(device).await?;
            // Short users such as `blkid` delay the release.
            while losetup::is_set_up(device, &self.folder).await? && Instant::now() < end {
                sleep(LOOK).await;
            }
        }
        Ok(())
    }
}

/// Returns the link name that udev gives to a virtio disk with this serial, which Nova truncates to 20 characters.
pub(crate) fn link_name(volume_id: &str) -> String {
    format!("virtio-{}", volume_id.chars().take(20).collect::<String>())
}

fn make_link(device: &LoopDevice) -> io::Result<()> {
    if let Some(folder) = device.link.parent() {
        fs::create_dir_all(folder)?;
    }
    absent_is_fine(fs::remove_file(&device.link))?;
    symlink(&device.path, &device.link)
}

fn unlink(link: &Path) -> Result<(), BackingError> {
    absent_is_fine(fs::remove_file(link)).map_err(|source| BackingError::Unlink {
        link: link.to_owned(),
        source,
    })
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Whether the device is mounted or opened exclusively.
fn is_busy(device: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NONBLOCK;
    matches!(rustix::fs::open(device, flags, Mode::empty()), Err(Errno::BUSY))
}

/// Copies a file and its holes.
async fn copy(from: &Path, to: &Path) -> Result<(), BackingError> {
    let fail = |reason: String| BackingError::CopyFile {
        from: from.to_owned(),
        to: to.to_owned(),
        reason,
    };
    let mut command = tokio::process::Command::new("cp");
    command
        .args(["--sparse=always", "--reflink=auto", "--"])
        .arg(from)
        .arg(to)
        .kill_on_drop(true);
    match tokio::time::timeout(COPY, command.output()).await {
        Err(_) => Err(fail(format!("not done after {COPY:?}"))),
        Ok(Err(error)) => Err(fail(error.to_string())),
        Ok(Ok(output)) if !output.status.success() => Err(fail(String::from_utf8_lossy(&output.stderr).into_owned())),
        Ok(Ok(_)) => Ok(()),
    }
}
