// SPDX-License-Identifier: Apache-2.0
//! How full a file system is, how large a block device is.

mod figures;

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::Host;
use crate::machine::Open;
use crate::offload::OffloadError;
use crate::timing::TIMING;
pub use figures::Usage;

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// The path does not exist.
    #[error("{} does not exist", path.display())]
    NotFound { path: PathBuf },
    #[error("cannot ask for the usage of {}", path.display())]
    Stat { path: PathBuf, source: io::Error },
    /// The question got no answer in time, or an earlier one about the same path has none yet.
    #[error(transparent)]
    NoAnswer(#[from] OffloadError),
}

impl Host {
    /// How full the file system at `path` is. Bounded by 10 s; while an earlier question about the same path hangs, the
    /// answer comes at once.
    pub async fn usage(&self, path: &Path) -> Result<Usage, UsageError> {
        let (machine, place) = (self.inner.machine.clone(), path.to_owned());
        let what = format!("statfs of {}", path.display());
        let asked = self
            .inner
            .calls
            .run(what, TIMING.usage_timeout, move || machine.statvfs(&place))
            .await?;
        asked.map_err(|source| {
            let path = path.to_owned();
            match Errno::from_io_error(&source) {
                Some(Errno::NOENT) => UsageError::NotFound { path },
                _ => UsageError::Stat { path, source },
            }
        })
    }

    /// Size in bytes of the block device at `path`. Bounded by 10 s.
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
    async fn the_figures_of_a_file_system_add_up() {
        let usage = Host::new(HostPaths::default())
            .usage(Path::new("/"))
            .await
            .expect("the root has a usage");
        assert!(usage.bytes_total > 0);
        assert!(usage.bytes_used + usage.bytes_available <= usage.bytes_total);
        assert_eq!(usage.inodes_used + usage.inodes_free, usage.inodes_total);
    }

    #[tokio::test]
    async fn a_path_that_does_not_exist_is_told_apart() {
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
