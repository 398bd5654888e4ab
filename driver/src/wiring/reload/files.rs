// SPDX-License-Identifier: Apache-2.0
//! Detects changes of files, even if a link to a whole directory is replaced, as Kubernetes does for Secrets.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::net::unix::pipe::Receiver;

/// The directories of the files, watched with inotify.
#[derive(Debug)]
pub(super) struct Changes {
    /// The inotify descriptor, which tokio can wait for and read like a pipe.
    ///
    /// `None` if the kernel has no inotify instance available. Changes are then found only by polling.
    inotify: Option<Receiver>,
    watched: BTreeSet<PathBuf>,
}

impl Changes {
    /// Starts to watch the directories of these files.
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
        changes.watch_more(files);
        changes
    }

    /// Watches these files as well.
    pub(super) fn watch_more(&mut self, files: &[PathBuf]) {
        let Some(inotify) = &self.inotify else { return };
        let events = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE | WatchFlags::DELETE;
        for directory in files.iter().filter_map(|file| file.parent()) {
            let directory = if directory.as_os_str().is_empty() {
                Path::new(".")
            } else {
                directory
            };
            // Changes in directories that cannot be watched, such as missing ones, are found by polling.
            if !self.watched.contains(directory) && inotify::add_watch(inotify, directory, events).is_ok() {
                self.watched.insert(directory.to_owned());
            }
        }
    }

    /// Returns after a change since the last call. Cancel-safe.
    pub(super) async fn wait_for_change(&mut self) {
        let Some(inotify) = &self.inotify else {
            return std::future::pending().await;
        };
        let changed = async {
            inotify.readable().await?;
            // The kind of event is irrelevant, because the files are read anyway.
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
