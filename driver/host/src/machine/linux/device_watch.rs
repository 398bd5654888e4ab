// SPDX-License-Identifier: Apache-2.0
//! Detects changes of the device nodes and their links.

use std::io;
use std::path::PathBuf;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::net::unix::pipe::Receiver;

use crate::HostPaths;
use crate::machine::{BoxFuture, DeviceWatch};

/// An inotify watch of the directories in which new disks appear.
#[derive(Debug)]
pub(super) struct InotifyWatch {
    /// An inotify descriptor. tokio's pipe receiver can wait for and read from it, although it is not a pipe.
    inotify: Receiver,
    directories: [PathBuf; 3],
}

impl InotifyWatch {
    /// Starts the watch. `None` if the kernel has no free inotify instance; the driver then polls.
    pub(super) fn watch(paths: &HostPaths) -> Option<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)
            .map_err(io::Error::from)
            .and_then(Receiver::from_owned_fd_unchecked);
        let inotify = inotify
            .inspect_err(|error| tracing::debug!(%error, "no inotify: devices are looked for by the clock"))
            .ok()?;
        let device_watch = Self {
            inotify,
            directories: ["", "disk", "disk/by-id"].map(|name| paths.dev.join(name)),
        };
        device_watch.arm();
        Some(device_watch)
    }

    /// Adds the directories that exist. udev creates the directories of links with the first link. Adding a watched
    /// directory again has no effect.
    fn arm(&self) {
        let events = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::DELETE;
        for directory in &self.directories {
            // Polling covers directories that cannot be watched.
            let _ = inotify::add_watch(&self.inotify, directory, events);
        }
    }

    async fn next(&self) -> io::Result<()> {
        self.inotify.readable().await?;
        // The kind of event is irrelevant, because the caller checks all devices.
        let mut events = [0; 4096];
        loop {
            match self.inotify.try_read(&mut events) {
                Ok(1..) => {}
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.arm();
        Ok(())
    }
}

impl DeviceWatch for InotifyWatch {
    fn happen(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(self.next())
    }
}
