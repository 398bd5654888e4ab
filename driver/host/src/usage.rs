// SPDX-License-Identifier: Apache-2.0
//! Reads the usage of file systems and the size of block devices.

mod figures;

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::Host;
use crate::machine::Open;
use crate::offload::OffloadError;
use crate::timing::TIMING;
pub use figures::Usage;

/// Errors of a usage request.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    #[error("{} does not exist", path.display())]
    NotFound { path: PathBuf },
    #[error("cannot ask for the usage of {}", path.display())]
    Stat { path: PathBuf, source: io::Error },
    /// The call did not return in time, or an earlier call for the same path still hangs.
    #[error(transparent)]
    NoAnswer(#[from] OffloadError),
}

impl Host {
    /// Returns the usage of the file system at `path`. Bounded by 10 s; fails at once while an earlier call for the
    /// same path hangs.
    pub async fn usage(&self, path: &Path) -> Result<Usage, UsageError> {
        let (machine, place) = (self.inner.machine.clone(), path.to_owned());
        let what = format!("statfs of {}", path.display());
        let result = self
            .inner
            .calls
            .run(what, TIMING.usage_timeout, move || machine.statvfs(&place))
            .await?;
        result.map_err(|source| {
            let path = path.to_owned();
            match Errno::from_io_error(&source) {
                Some(Errno::NOENT) => UsageError::NotFound { path },
                _ => UsageError::Stat { path, source },
            }
        })
    }

    /// Returns the size in bytes of the block device at `path`. Bounded by 10 s.
    pub async fn block_size(&self, path: &Path) -> Result<u64, UsageError> {
        let (machine, device) = (self.inner.machine.clone(), path.to_owned());
        let what = format!("opening {}", path.display());
        let size = self
            .inner
            .calls
            .run(what, TIMING.usage_timeout, move || {
                machine.open_disk(&device, Open::Read)?.size()
            })
            .await?;
        size.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => UsageError::NotFound { path: path.to_owned() },
            _ => UsageError::Stat {
                path: path.to_owned(),
                source,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostPaths;

    #[tokio::test]
    async fn usage_figures_are_consistent() {
        let usage = Host::new(HostPaths::default())
            .usage(Path::new("/"))
            .await
            .expect("the root has a usage");
        assert!(usage.bytes_total > 0);
        assert!(usage.bytes_used + usage.bytes_available <= usage.bytes_total);
        assert_eq!(usage.inodes_used + usage.inodes_free, usage.inodes_total);
    }

    #[tokio::test]
    async fn missing_path_is_not_found() {
        let host = Host::new(HostPaths::default());
        let error = host
            .usage(Path::new("/nonexistent"))
            .await
            .expect_err("it does not exist");
        assert!(matches!(error, UsageError::NotFound { .. }), "{error}");
        let error = host
            .block_size(Path::new("/nonexistent"))
            .await
            .expect_err("it does not exist");
        assert!(matches!(error, UsageError::NotFound { .. }), "{error}");
    }
}
