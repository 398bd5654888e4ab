//! How full a file system is, how large a block device is.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Host;
use crate::offload::OffloadError;

/// How long one question to the kernel may take. The kubelet asks for all volumes once a minute.
const LIMIT: Duration = Duration::from_secs(10);

/// How full a file system is. Bytes and inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Size of the file system.
    pub bytes_total: u64,
    /// What is taken, reserved blocks not counted.
    pub bytes_used: u64,
    /// What an unprivileged user may still write.
    pub bytes_available: u64,
    /// All inodes.
    pub inodes_total: u64,
    /// Inodes taken.
    pub inodes_used: u64,
    /// Inodes left.
    pub inodes_free: u64,
}

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// The path does not exist.
    #[error("{} does not exist", path.display())]
    NotFound {
        /// The path.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("cannot ask for the usage of {}", path.display())]
    Stat {
        /// The path.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The question got no answer in time, or an earlier one about the same path has none yet.
    #[error(transparent)]
    NoAnswer(#[from] OffloadError),
}

impl Host {
    /// How full the file system at `path` is. Bounded by 10 s; while an earlier question about the same path hangs, the
    /// answer comes at once.
    pub async fn usage(&self, path: &Path) -> Result<Usage, UsageError> {
        let place = path.to_owned();
        let what = format!("statfs of {}", path.display());
        let asked = self
            .inner
            .threads
            .run(what, LIMIT, move || rustix::fs::statvfs(&place))
            .await?;
        match asked {
            Ok(stat) => Ok(Usage::of(&stat)),
            Err(rustix::io::Errno::NOENT) => Err(UsageError::NotFound { path: path.to_owned() }),
            Err(errno) => Err(UsageError::Stat {
                path: path.to_owned(),
                source: errno.into(),
            }),
        }
    }

    /// Size in bytes of the block device at `path`. Bounded by 10 s.
    pub async fn block_size(&self, path: &Path) -> Result<u64, UsageError> {
        let device = path.to_owned();
        let what = format!("opening {}", path.display());
        let size = self
            .inner
            .threads
            .run(what, LIMIT, move || File::open(device)?.seek(SeekFrom::End(0)))
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

impl Usage {
    fn of(stat: &rustix::fs::StatVfs) -> Self {
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Self {
            bytes_total: bytes(stat.f_blocks),
            bytes_used: bytes(stat.f_blocks.saturating_sub(stat.f_bfree)),
            bytes_available: bytes(stat.f_bavail),
            inodes_total: stat.f_files,
            inodes_used: stat.f_files.saturating_sub(stat.f_ffree),
            inodes_free: stat.f_ffree,
        }
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
