// SPDX-License-Identifier: Apache-2.0
//! Wake-up when files change, also where a link to a whole directory is swapped, as Kubernetes does with Secrets.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::net::unix::pipe::Receiver;

/// The directories of the files, watched by the kernel.
#[derive(Debug)]
pub(super) struct Changes {
    /// No pipe, and for tokio as good as one: something to wait for and to read from. `None` where the kernel has no inotify left to
    /// give: then only the clock wakes.
    inotify: Option<Receiver>,
    watched: BTreeSet<PathBuf>,
}

impl Changes {
    /// Watches from now on.
    pub(super) fn watch(files: &[PathBuf]) -> Self {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)
            .map_err(io::Error::from)
            .and_then(Receiver::from_owned_fd_unchecked)
            .inspect_err(|error| tracing::warn!(%error, "no inotify: changes of cloud.conf are found by the clock"))
            .ok();
        let mut changes = Self {
            inotify,
            watched: BTreeSet::new(),
        };
        changes.follow(files);
        changes
    }

    /// Watches these files too.
    pub(super) fn follow(&mut self, files: &[PathBuf]) {
        let Some(inotify) = &self.inotify else { return };
        let events = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE | WatchFlags::DELETE;
        for directory in files.iter().filter_map(|file| file.parent()) {
            let directory = if directory.as_os_str().is_empty() {
                Path::new(".")
            } else {
                directory
            };
            // What cannot be watched, such as a directory that is not there yet, is found by the clock.
            if !self.watched.contains(directory) && inotify::add_watch(inotify, directory, events).is_ok() {
                self.watched.insert(directory.to_owned());
            }
        }
    }

    /// Ends when something has happened since the last call. May be cancelled.
    pub(super) async fn happen(&mut self) {
        let Some(inotify) = &self.inotify else {
            return std::future::pending().await;
        };
        let changed = async {
            inotify.readable().await?;
            // Which of the events it is does not matter: one look finds all there is.
            let mut events = [0; 4096];
            loop {
                match inotify.try_read(&mut events) {
                    Ok(1..) => {}
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        };
        if let Err(error) = changed.await {
            tracing::warn!(%error, "inotify failed: changes of cloud.conf are found by the clock from now on");
            self.inotify = None;
        }
    }
}
