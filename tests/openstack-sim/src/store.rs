// SPDX-License-Identifier: Apache-2.0
//! Persists the state of a cloud, so that a restarted simulator restores its volumes.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::watch;

use crate::keystone::Tokens;
use crate::state::CloudState;

/// Limit of the wait of a response for the disk.
const PATIENCE: Duration = Duration::from_secs(5);

/// Content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct SavedState {
    pub(crate) cloud: CloudState,
    pub(crate) tokens: Tokens,
}

/// The state cannot be read or written.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The file cannot be read.
    #[error("cannot read the state in {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    /// The content of the file is not valid.
    #[error("the state in {path} was not written by this simulator ({source}); remove the folder to start afresh")]
    Decode { path: PathBuf, source: serde_json::Error },
    /// The file cannot be written.
    #[error("cannot write the state to {path}: {source}")]
    Write { path: PathBuf, source: std::io::Error },
}

/// Notifies the writer of changes, and waiting responses of completed writes.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    changed: watch::Sender<u64>,
    written: watch::Sender<u64>,
}

impl Store {
    pub(crate) fn new(folder: &Path) -> Self {
        Self {
            path: folder.join("state.json"),
            changed: watch::Sender::new(0),
            written: watch::Sender::new(0),
        }
    }

    /// Loads the state of an earlier run; the default if there was none.
    pub(crate) fn load(&self) -> Result<SavedState, StoreError> {
        let path = self.path.clone();
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|source| StoreError::Decode { path, source }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(SavedState::default()),
            Err(source) => Err(StoreError::Read { path, source }),
        }
    }

    pub(crate) fn touch(&self) {
        self.changed.send_modify(|generation| *generation += 1);
    }

    /// Waits until all changes so far are written, with a limit.
    pub(crate) async fn saved(&self) {
        let version = *self.changed.borrow();
        let mut written = self.written.subscribe();
        if tokio::time::timeout(PATIENCE, written.wait_for(|generation| *generation >= version))
            .await
            .is_err()
        {
            tracing::warn!(path = %self.path.display(), "the state is not on the disk after {PATIENCE:?}");
        }
    }

    /// Writes every change until it is dropped. Merges changes that are faster than the disk.
    pub(crate) async fn write_changes(&self, state: impl Fn() -> SavedState) {
        let mut changed = self.changed.subscribe();
        loop {
            let generation = *changed.borrow_and_update();
            if generation > *self.written.borrow() {
                if let Err(error) = self.write(&state()) {
                    tracing::error!(%error, "the state is not saved");
                }
                self.written.send_replace(generation);
            }
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Writes atomically: a new file replaces the old one.
    pub(crate) fn write(&self, saved: &SavedState) -> Result<(), StoreError> {
        let fail = |source| StoreError::Write {
            path: self.path.clone(),
            source,
        };
        let bytes = serde_json::to_vec(saved).map_err(|error| fail(error.into()))?;
        let temporary = self.path.with_extension("json.new");
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)
            .map_err(fail)?;
        file.write_all(&bytes).map_err(fail)?;
        std::fs::rename(&temporary, &self.path).map_err(fail)
    }
}
