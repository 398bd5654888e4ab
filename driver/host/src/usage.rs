//! How full a file system is, how large a block device is.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

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
    /// An earlier question about the same path has not been answered.
    #[error("the kernel has not answered an earlier question about {}: its device seems dead; see the kernel's log", path.display())]
    Hung {
        /// The path.
        path: PathBuf,
    },
    /// The question got no answer in time.
    #[error(transparent)]
    NoAnswer(#[from] OffloadError),
}

/// A question to the kernel; it counts as asked until this value is gone, whoever still waits for the answer.
struct Question {
    host: Host,
    path: PathBuf,
    answer: watch::Sender<Answer>,
}

impl Question {
    fn ask(self) {
        let usage = rustix::fs::statvfs(&self.path).map(|stat| Usage::of(&stat));
        self.answer.send_replace(Some(usage));
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.host.inner.usage.lock().remove(&self.path);
    }
}

type Answer = Option<Result<Usage, rustix::io::Errno>>;

/// Questions that wait for the kernel. A path that hangs is asked once, however often the kubelet wants to know, so that
/// one dead device holds one thread.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    asked: Mutex<HashMap<PathBuf, watch::Receiver<Answer>>>,
}

impl Host {
    /// How full the file system at `path` is. Bounded by 10 s; callers that come while one asks share its answer.
    pub async fn usage(&self, path: &Path) -> Result<Usage, UsageError> {
        let (mut answer, question) = self.join_question(path);
        if let Some(question) = question {
            let what = format!("statfs of {}", path.display());
            self.inner.threads.run(what, LIMIT, move || question.ask()).await?;
        }
        let outcome = tokio::time::timeout(LIMIT, answer.wait_for(Option::is_some)).await;
        match outcome.map(|answer| answer.map(|value| *value)) {
            Ok(Ok(Some(Ok(usage)))) => Ok(usage),
            Ok(Ok(Some(Err(rustix::io::Errno::NOENT)))) => Err(UsageError::NotFound { path: path.to_owned() }),
            Ok(Ok(Some(Err(errno)))) => Err(UsageError::Stat {
                path: path.to_owned(),
                source: errno.into(),
            }),
            Ok(Ok(None) | Err(_)) | Err(_) => Err(UsageError::Hung { path: path.to_owned() }),
        }
    }

    /// The answer to wait for, and the question if this caller is the one that has to ask it.
    fn join_question(&self, path: &Path) -> (watch::Receiver<Answer>, Option<Question>) {
        let mut asked = self.inner.usage.lock();
        if let Some(answer) = asked.get(path) {
            return (answer.clone(), None);
        }
        let (sender, answer) = watch::channel(None);
        asked.insert(path.to_owned(), answer.clone());
        (
            answer,
            Some(Question {
                host: self.clone(),
                path: path.to_owned(),
                answer: sender,
            }),
        )
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

impl InFlight {
    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, watch::Receiver<Answer>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[tokio::test(start_paused = true)]
    async fn a_path_that_hangs_is_asked_once() {
        let host = Host::new(HostPaths::default());
        let path = Path::new("/");
        // As if the thread that asks were stuck in the kernel.
        let (_, stuck) = host.join_question(path);
        let error = host.usage(path).await.expect_err("nobody answers");
        assert!(matches!(error, UsageError::Hung { .. }), "{error}");
        drop(stuck);
        let (_, question) = host.join_question(path);
        assert!(question.is_some(), "after the kernel came back the path is asked anew");
    }
}
