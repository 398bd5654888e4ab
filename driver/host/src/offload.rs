// SPDX-License-Identifier: Apache-2.0
//! Runs blocking system calls on dedicated threads.
//!
//! A call on a dead device may never return. On the blocking pool of the runtime, a few such calls would block every
//! other volume and the end of the process. Here a call runs on its own thread, which is abandoned after its time
//! limit. The number of threads is bounded in total and for each operation. While an operation hangs, further calls of
//! it fail at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::Machine;

/// Limit of concurrent calls, including hung ones. A node has at most a few hundred volumes, and a healthy call takes
/// milliseconds.
pub(crate) const MOST_THREADS: usize = 128;

/// Limit of concurrent local calls, which touch no device. They have their own threads, so that dead devices never
/// delay them.
const MOST_LOCAL_THREADS: usize = 32;

/// Limit of concurrent calls of one operation. It bounds the threads that an operation can occupy before its first time
/// limit.
const MOST_PER_OPERATION: usize = 8;

/// Reasons why a blocking call returned no result.
#[derive(Debug, thiserror::Error)]
pub enum OffloadError {
    /// The call did not return in time. It continues on its own thread and may still take effect.
    #[error(
        "{what} did not end within {:.1} s: the device or its server does not answer; see the kernel's log of this node",
        limit.as_secs_f64()
    )]
    TimedOut {
        /// Operation and object.
        what: String,
        limit: Duration,
    },
    /// An earlier call of the same operation has not ended.
    #[error(
        "{what} was not started: it was begun {:.0} s ago and has not ended; the device or its server does not answer; see \
         the kernel's log of this node", since.as_secs_f64()
    )]
    Stuck {
        what: String,
        /// Time since the earlier call started.
        since: Duration,
    },
    /// An earlier call at the same path has not ended, and may still take effect.
    #[error(
        "{what} was not started: an earlier call there began {:.0} s ago and has not ended; the device or its server does not \
         answer; see the kernel's log of this node", since.as_secs_f64()
    )]
    Unfinished {
        what: String,
        /// Time since the earlier call started.
        since: Duration,
    },
    /// Too many earlier calls hang.
    #[error(
        "{what} was not started: {MOST_THREADS} calls to the kernel are under way on this node and none ended within {:.1} s; \
         look for dead devices in the kernel's log",
        limit.as_secs_f64()
    )]
    Saturated { what: String, limit: Duration },
    /// The kernel cannot start another thread.
    #[error("{what} was not started: the system refuses another thread")]
    StartThread { what: String, source: std::io::Error },
    /// The call panicked; the log has the reason.
    #[error("{what}: internal error: it ended without a result (see the driver's log)")]
    Panicked { what: String },
}

impl OffloadError {
    /// Whether the object of the call does not respond, as opposed to this node having reached its limits.
    pub fn is_hang(&self) -> bool {
        matches!(
            self,
            Self::TimedOut { .. } | Self::Stuck { .. } | Self::Unfinished { .. }
        )
    }
}

/// The running calls.
#[derive(Debug)]
pub(crate) struct Calls {
    machine: Arc<dyn Machine>,
    free: Arc<Semaphore>,
    local: Arc<Semaphore>,
    alike: Arc<Mutex<BTreeMap<String, Operation>>>,
    changes: Arc<RunningChanges>,
}

/// The running calls that change a path, in the order in which they started.
#[derive(Debug, Default)]
struct RunningChanges(Mutex<Vec<(PathBuf, Instant)>>);

/// Entry of a running call in [`RunningChanges`]; removed on drop.
#[derive(Debug)]
struct ChangeGuard {
    changes: Arc<RunningChanges>,
    entry: (PathBuf, Instant),
}

impl Drop for ChangeGuard {
    fn drop(&mut self) {
        let mut changes = self.changes.0.lock();
        if let Some(at) = changes.iter().position(|entry| *entry == self.entry) {
            changes.remove(at);
        }
    }
}

/// Calls of one operation on one object, including those that wait for a permit.
#[derive(Debug)]
struct Operation {
    free: Arc<Semaphore>,
    /// Number of running and waiting calls.
    users: usize,
    /// Start of the first call that has exceeded its time limit.
    stuck_since: Option<Instant>,
}

/// Counts a call among the users of an [`Operation`].
#[derive(Debug)]
struct OperationUser {
    operations: Arc<Mutex<BTreeMap<String, Operation>>>,
    what: String,
}

impl Drop for OperationUser {
    fn drop(&mut self) {
        let mut operations = self.operations.lock();
        if let Some(operation) = operations.get_mut(&self.what) {
            operation.users -= 1;
            if operation.users == 0 {
                operations.remove(&self.what);
            }
        }
    }
}

/// Permits of a running call, released when the call returns.
#[derive(Debug)]
struct CallGuard {
    _thread: OwnedSemaphorePermit,
    _alike: OwnedSemaphorePermit,
    user: OperationUser,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        // The operation responds again, so further calls may start.
        if let Some(operation) = self.user.operations.lock().get_mut(&self.user.what) {
            operation.stuck_since = None;
        }
    }
}

impl Calls {
    pub(crate) fn on(machine: Arc<dyn Machine>) -> Self {
        Self::with(machine, MOST_THREADS)
    }

    fn with(machine: Arc<dyn Machine>, threads: usize) -> Self {
        Self {
            machine,
            free: Arc::new(Semaphore::new(threads)),
            local: Arc::new(Semaphore::new(MOST_LOCAL_THREADS)),
            alike: Arc::default(),
            changes: Arc::default(),
        }
    }

    /// Runs `call` on a thread and waits at most `limit` for it. The call continues after the limit, and after a drop
    /// of the future.
    ///
    /// `what` names the operation and the object, such as `statfs of /mnt`. While an operation hangs, further calls of
    /// it fail at once.
    pub(crate) async fn run<T, F>(&self, what: impl Into<String>, limit: Duration, call: F) -> Result<T, OffloadError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.run_on(&self.free, what, limit, call).await
    }

    /// Runs a call that creates or mounts something at `path`, as [`Self::run`] does.
    ///
    /// Until the call returns, even after its limit, [`Self::unmount_at`] fails for this path. Otherwise the unmount
    /// could miss a mount that appears later.
    pub(crate) async fn change_at<T, F>(
        &self,
        path: &Path,
        what: impl Into<String>,
        limit: Duration,
        call: F,
    ) -> Result<T, OffloadError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let change = ChangeGuard {
            changes: Arc::clone(&self.changes),
            entry: (path.to_owned(), Instant::now()),
        };
        self.changes.0.lock().push(change.entry.clone());
        let call = move || {
            let value = call();
            drop(change);
            value
        };
        self.run(what, limit, call).await
    }

    /// Runs a call that removes or unmounts `path`, as [`Self::run`] does.
    pub(crate) async fn unmount_at<T, F>(
        &self,
        path: &Path,
        what: impl Into<String>,
        limit: Duration,
        call: F,
    ) -> Result<T, OffloadError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let began = (self.changes.0.lock().iter())
            .find(|(at, _)| at == path)
            .map(|(_, began)| *began);
        match began {
            Some(began) => Err(OffloadError::Unfinished {
                what: what.into(),
                since: began.elapsed(),
            }),
            None => self.run(what, limit, call).await,
        }
    }

    /// Runs a call that reads procfs, sysfs or the driver's own files, and touches no device.
    pub(crate) async fn run_local<T, F>(
        &self,
        what: impl Into<String>,
        limit: Duration,
        call: F,
    ) -> Result<T, OffloadError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.run_on(&self.local, what, limit, call).await
    }

    async fn run_on<T, F>(
        &self,
        threads: &Arc<Semaphore>,
        what: impl Into<String>,
        limit: Duration,
        call: F,
    ) -> Result<T, OffloadError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let what = what.into();
        let start = Instant::now();
        let deadline = start + limit;
        let (user, alike) = self.join(&what, start)?;
        let permits = async {
            let alike = alike.acquire_owned().await;
            (alike, threads.clone().acquire_owned().await)
        };
        let Ok((Ok(alike), Ok(thread))) = timeout_at(deadline, permits).await else {
            return Err(OffloadError::Saturated { what, limit });
        };
        let operations = user.operations.clone();
        let guard = CallGuard {
            _thread: thread,
            _alike: alike,
            user,
        };
        let (sender, receiver) = oneshot::channel();
        let job = move || {
            let value = call();
            // Releases the permits before the response, so that they are available to the caller's next call.
            drop(guard);
            // The receiver no longer exists if the caller has given up.
            drop(sender.send(value));
        };
        if let Err(source) = self.machine.start(Box::new(job)) {
            return Err(OffloadError::StartThread { what, source });
        }
        match timeout_at(deadline, receiver).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(_)) => Err(OffloadError::Panicked { what }),
            Err(_) => {
                // If the call has just ended, the entry is missing or belongs to a newer call, which then clears it.
                if let Some(operation) = operations.lock().get_mut(&what) {
                    operation.stuck_since.get_or_insert(start);
                }
                Err(OffloadError::TimedOut { what, limit })
            }
        }
    }

    fn join(&self, what: &str, now: Instant) -> Result<(OperationUser, Arc<Semaphore>), OffloadError> {
        let mut operations = self.alike.lock();
        let operation = operations.entry(what.to_owned()).or_insert_with(|| Operation {
            free: Arc::new(Semaphore::new(MOST_PER_OPERATION)),
            users: 0,
            stuck_since: None,
        });
        if let Some(since) = operation.stuck_since {
            return Err(OffloadError::Stuck {
                what: what.to_owned(),
                since: now - since,
            });
        }
        operation.users += 1;
        let user = OperationUser {
            operations: self.alike.clone(),
            what: what.to_owned(),
        };
        Ok((user, operation.free.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::Linux;

    fn calls() -> Calls {
        Calls::on(Arc::new(Linux::default()))
    }

    #[tokio::test]
    async fn hung_call_does_not_delay_next_call() {
        let calls = calls();
        let (release, hung) = mpsc::channel::<()>();
        let error = calls
            .run("statfs of /dead", Duration::from_millis(20), move || hung.recv())
            .await
            .expect_err("it hangs");
        assert!(
            matches!(&error, OffloadError::TimedOut { what, .. } if what == "statfs of /dead"),
            "{error}"
        );
        assert_eq!(
            calls
                .run("the next", Duration::from_secs(10), || 7)
                .await
                .expect("the next runs"),
            7
        );
        drop(release);
    }

    #[tokio::test]
    async fn unfinished_mount_blocks_unmount() {
        let (calls, limit) = (calls(), Duration::from_secs(10));
        let (release, hung) = mpsc::channel::<()>();
        let short = Duration::from_millis(10);
        let mounted = calls.change_at(Path::new("/a"), "mounting at /a", short, move || hung.recv());
        mounted.await.expect_err("it hangs");
        let error = calls.unmount_at(Path::new("/a"), "unmounting /a", limit, || ()).await;
        let error = error.expect_err("the mount may still come");
        assert!(matches!(error, OffloadError::Unfinished { .. }), "{error}");
        let other = calls.unmount_at(Path::new("/b"), "unmounting /b", limit, || ()).await;
        other.expect("nothing is under way there");
        drop(release);
        while calls
            .unmount_at(Path::new("/a"), "unmounting /a", limit, || ())
            .await
            .is_err()
        {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn panic_in_call_becomes_error() {
        let panic = calls()
            .run("a mistake", Duration::from_secs(10), || {
                std::panic::resume_unwind(Box::new(()))
            })
            .await;
        assert!(
            matches!(panic, Err::<(), _>(OffloadError::Panicked { .. })),
            "{panic:?}"
        );
    }

    #[tokio::test]
    async fn refuses_call_in_time_without_threads() {
        let calls = Calls::with(Arc::new(Linux::default()), 1);
        let (release, hung) = mpsc::channel::<()>();
        let first = calls.run("first", Duration::from_millis(10), move || hung.recv()).await;
        assert!(matches!(first, Err(OffloadError::TimedOut { .. })));
        let second = calls.run("second", Duration::from_millis(10), || ()).await;
        assert!(matches!(second, Err(OffloadError::Saturated { .. })));
        let local = calls.run_local("a read of sysfs", Duration::from_secs(10), || 7).await;
        assert_eq!(local.expect("local calls have threads of their own"), 7);
        drop(release);
        calls
            .run("third", Duration::from_secs(10), || ())
            .await
            .expect("the thread came back");
    }

    #[tokio::test]
    async fn refuses_hung_operation_until_it_returns() {
        let calls = calls();
        let (release, hung) = mpsc::channel::<()>();
        let (ended, end) = mpsc::channel::<()>();
        let wait = move || {
            let _ = hung.recv();
            drop(ended);
        };
        let first = calls.run("statfs of /dead", Duration::from_millis(10), wait).await;
        assert!(matches!(first, Err(OffloadError::TimedOut { .. })));
        let second = calls.run("statfs of /dead", Duration::from_hours(1), || ()).await;
        assert!(
            matches!(second, Err(OffloadError::Stuck { .. })),
            "no thread is piled up"
        );
        calls
            .run("statfs of /alive", Duration::from_secs(10), || ())
            .await
            .expect("another thing is not touched by it");
        drop(release);
        tokio::task::spawn_blocking(move || end.recv())
            .await
            .expect("no panic")
            .expect_err("it came back");
        let comes_back = async {
            while calls
                .run("statfs of /dead", Duration::from_secs(10), || ())
                .await
                .is_err()
            {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), comes_back)
            .await
            .expect("it may be asked again");
        assert!(calls.alike.lock().is_empty(), "nothing is kept about it");
    }

    #[tokio::test]
    async fn hung_operation_occupies_few_threads() {
        let calls = Arc::new(calls());
        let (release, hung) = mpsc::channel::<()>();
        let hung = Arc::new(Mutex::new(hung));
        let tasks = (0..2 * MOST_PER_OPERATION).map(|_| {
            let (calls, hung) = (calls.clone(), hung.clone());
            tokio::spawn(async move {
                calls
                    .run("statfs of /dead", Duration::from_millis(50), move || {
                        hung.lock().recv().is_ok()
                    })
                    .await
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("no panic").expect_err("it hangs");
        }
        assert_eq!(calls.free.available_permits(), MOST_THREADS - MOST_PER_OPERATION);
        drop(release);
    }
}
