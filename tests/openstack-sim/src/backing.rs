// SPDX-License-Identifier: Apache-2.0
//! Volumes with data: sparse files, and loop devices that stand for the disks of servers.

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

/// How often a device that is kept busy is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// How long it is waited at most for devices that were let go and that somebody still holds.
const LETTING_GO: Duration = Duration::from_secs(5);

/// How long a copy of a volume's data may take.
const COPY: Duration = Duration::from_mins(2);

/// What went wrong with a file or a device.
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

/// The folder that holds the volumes.
#[derive(Debug)]
pub(crate) struct Backing {
    folder: PathBuf,
    /// One `losetup` at a time: two that look for a free device would find the same.
    losetup: Mutex<()>,
    /// Held while the simulator lives.
    lock: fs::File,
}

impl Drop for Backing {
    fn drop(&mut self) {
        // To close it is not enough: a program that another thread is about to start has the file open until it is executed.
        drop(self.lock.unlock());
    }
}

impl Backing {
    /// Takes the folder, which no other simulator may use at the same time.
    pub(crate) fn open(folder: &Path) -> Result<Self, BackingError> {
        let fail = |source| BackingError::PrepareFolder {
            path: folder.to_owned(),
            source,
        };
        fs::create_dir_all(folder.join("volumes")).map_err(fail)?;
        // Device listings show resolved names.
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

    /// Makes the file of a volume or snapshot, empty or with the data of another one.
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

    /// Removes the file of a volume or snapshot; it may be gone.
    pub(crate) fn remove(&self, id: &str) -> Result<(), BackingError> {
        let path = self.file(id);
        absent_is_fine(fs::remove_file(&path)).map_err(|source| BackingError::RemoveFile { path, source })
    }

    /// Grows a volume and the devices that show it.
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

    /// Gives a server the volume: a loop device, and its link as udev makes it for a virtio disk. A device that is
    /// already there (after the simulator was killed) is used again.
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

    /// Takes the volume from a server. A guest that keeps its device busy is waited for until `patience` is over.
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
        // The kernel lets a device go when its last user, say a `dd`, has closed it.
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

    /// Lets every device of this folder go and removes every link to one: what the state names, and what a simulator
    /// that was killed left in the by-id folders of its servers.
    pub(crate) async fn release_all(&self, state: &CloudState) -> Result<(), BackingError> {
        self.release(state, |_| false).await
    }

    /// The same for all that is not attached any more, according to the state.
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
        let kept: Vec<_> = links
            .iter()
            .filter(|device| keep(device))
            .map(|device| device.path.clone())
            .collect();
        for device in links.iter().filter(|device| !keep(device)) {
            unlink(&device.link)?;
        }
        let end = Instant::now() + LETTING_GO;
        for device in devices.iter().filter(|device| !kept.contains(device)) {
            losetup::tear_down(device).await?;
            // Who looks at it for a moment, say a `blkid`, keeps it for that moment.
            while losetup::is_set_up(device, &self.folder).await? && Instant::now() < end {
                sleep(LOOK).await;
            }
        }
        Ok(())
    }
}

/// The name that udev gives to a virtio disk with this serial, which Nova cuts to 20 characters.
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

/// Whether somebody has a file system of it mounted or has taken it for himself.
fn is_busy(device: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NONBLOCK;
    matches!(rustix::fs::open(device, flags, Mode::empty()), Err(Errno::BUSY))
}

/// Copies data with their holes.
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
