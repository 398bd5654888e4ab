// SPDX-License-Identifier: Apache-2.0
//! Wake-up when something happens to the device nodes or their links.

use std::io;
use std::path::PathBuf;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::net::unix::pipe::Receiver;

use crate::HostPaths;
use crate::machine::{BoxFuture, DeviceWatch};

/// The directories in which a new disk shows up, watched by the kernel.
#[derive(Debug)]
pub(super) struct InotifyWatch {
    /// No pipe, and for tokio as good as one: something to wait for and to read from.
    inotify: Receiver,
    directories: [PathBuf; 3],
}

impl InotifyWatch {
    /// Watches from now on. Nothing where the kernel has no inotify left to give: then only the clock wakes.
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

    /// Adds the directories that exist; udev makes those of the links with the first link. One that is watched already
    /// stays so.
    fn arm(&self) {
        let events = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::DELETE;
        for directory in &self.directories {
            // What cannot be watched is found by the clock.
            let _ = inotify::add_watch(&self.inotify, directory, events);
        }
    }

    async fn next(&self) -> io::Result<()> {
        self.inotify.readable().await?;
        // Which of the events it is does not matter: one look finds all there is.
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
