// SPDX-License-Identifier: Apache-2.0
//! Blocking system calls on threads of their own.
//!
//! A call on a device that died may never return. On the runtime's own blocking pool a few of those would keep every
//! other volume waiting and would hold up the end of the process; here each has a thread that is left to itself when its
//! time is up, and the number of threads is bounded: in all, and for one act on one thing. An act that hangs is not begun
//! again: whoever asks for it is told at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::Machine;

/// Most calls that may be under way at once, hung ones included. A node has at most a few hundred volumes, and a healthy
/// call takes milliseconds.
pub(crate) const MOST_THREADS: usize = 128;

/// The same for local calls, which touch no device. They have threads of their own, so that dead devices never delay them.
const MOST_LOCAL_THREADS: usize = 32;

/// Most of them that may do the same to the same thing. What hangs takes no more than these before it is known to hang.
const MOST_ALIKE: usize = 8;

/// Why a blocking call gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum OffloadError {
    /// The call did not return in time. It goes on on its own thread and may still take effect.
    #[error(
        "{what} did not end within {:.1} s: the device or its server does not answer; see the kernel's log of this node",
        limit.as_secs_f64()
    )]
    TimedOut {
        /// What was being done to what.
        what: String,
        /// The time that it had.
        limit: Duration,
    },
    /// The same was begun before and has not ended.
    #[error(
        "{what} was not started: it was begun {:.0} s ago and has not ended; the device or its server does not answer; see \
         the kernel's log of this node", since.as_secs_f64()
    )]
    Stuck {
        /// What was to be done.
        what: String,
        /// How long ago it began.
        since: Duration,
    },
    /// An earlier call at the same path has not ended, and may still take effect.
    #[error(
        "{what} was not started: an earlier call there began {:.0} s ago and has not ended; the device or its server does not \
         answer; see the kernel's log of this node", since.as_secs_f64()
    )]
    Unfinished {
        /// What was to be done.
        what: String,
        /// How long ago the earlier call began.
        since: Duration,
    },
    /// Too many earlier calls hang.
    #[error(
        "{what} was not started: {MOST_THREADS} calls to the kernel are under way on this node and none ended within {:.1} s; \
         look for dead devices in the kernel's log",
        limit.as_secs_f64()
    )]
    Saturated {
        /// What was to be done.
        what: String,
        /// The time that it had.
        limit: Duration,
    },
    /// The kernel gave no thread.
    #[error("{what} was not started: the system refuses another thread")]
    StartThread {
        /// What was to be done.
        what: String,
        source: std::io::Error,
    },
    /// The call panicked; the log has the reason.
    #[error("{what}: internal error: it ended without a result (see the driver's log)")]
    Panicked {
        /// What was being done.
        what: String,
    },
}

impl OffloadError {
    /// Whether the thing that was asked is what does not answer, as opposed to this node being at its limits.
    pub fn is_hang(&self) -> bool {
        matches!(
            self,
            Self::TimedOut { .. } | Self::Stuck { .. } | Self::Unfinished { .. }
        )
    }
}

/// The calls under way.
#[derive(Debug)]
pub(crate) struct Calls {
    machine: Arc<dyn Machine>,
    free: Arc<Semaphore>,
    local: Arc<Semaphore>,
    alike: Arc<Mutex<BTreeMap<String, Act>>>,
    changes: Arc<Changes>,
}

/// The calls under way that change what is at a path, by the order in which they began.
#[derive(Debug, Default)]
struct Changes(Mutex<Vec<(PathBuf, Instant)>>);

/// One of these calls, until it returns.
#[derive(Debug)]
struct Change {
    changes: Arc<Changes>,
    entry: (PathBuf, Instant),
}

impl Drop for Change {
    fn drop(&mut self) {
        let mut changes = self.changes.0.lock();
        if let Some(at) = changes.iter().position(|entry| *entry == self.entry) {
            changes.remove(at);
        }
    }
}

/// One act on one thing, for as long as somebody does it or wants to.
#[derive(Debug)]
struct Act {
    free: Arc<Semaphore>,
    /// How many do it or wait for their turn.
    users: usize,
    /// When the first of those that hang began.
    stuck_since: Option<Instant>,
}

/// Counts its holder among the users of an act.
#[derive(Debug)]
struct Part {
    acts: Arc<Mutex<BTreeMap<String, Act>>>,
    what: String,
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut acts = self.acts.lock();
        if let Some(act) = acts.get_mut(&self.what) {
            act.users -= 1;
            if act.users == 0 {
                acts.remove(&self.what);
            }
        }
    }
}

/// What a thread holds until its call returns.
#[derive(Debug)]
struct CallGuard {
    _thread: OwnedSemaphorePermit,
    _alike: OwnedSemaphorePermit,
    part: Part,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        // One came back, so the next may try.
        if let Some(act) = self.part.acts.lock().get_mut(&self.part.what) {
            act.stuck_since = None;
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

    /// Runs `call` on a thread and waits `limit` for it. Dropping the future, or the limit, leaves the call running.
    ///
    /// `what` names the act and the thing, such as `statfs of /mnt`. While one act on one thing hangs, the same is
    /// refused at once.
    pub(crate) async fn run<T, F>(&self, what: impl Into<String>, limit: Duration, call: F) -> Result<T, OffloadError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.run_on(&self.free, what, limit, call).await
    }

    /// The same for a call that makes or mounts something at `path`. As long as it is under way, even after its limit,
    /// [`Self::unmount_at`] is refused there: what it would not find could still come.
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
        let change = Change {
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

    /// The same for a call that takes away what is at `path`.
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

    /// The same for a call that reads procfs, sysfs or the driver's own files, and touches no device.
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
        let (part, alike) = self.join(&what, start)?;
        let permits = async {
            let alike = alike.acquire_owned().await;
            (alike, threads.clone().acquire_owned().await)
        };
        let Ok((Ok(alike), Ok(thread))) = timeout_at(deadline, permits).await else {
            return Err(OffloadError::Saturated { what, limit });
        };
        let acts = part.acts.clone();
        let held = CallGuard {
            _thread: thread,
            _alike: alike,
            part,
        };
        let (answer, answered) = oneshot::channel();
        let job = move || {
            let value = call();
            // First given back, then answered: who comes after the answer finds its place free.
            drop(held);
            // The receiver is gone when the caller gave up: nobody is left to tell.
            drop(answer.send(value));
        };
        if let Err(source) = self.machine.start(Box::new(job)) {
            return Err(OffloadError::StartThread { what, source });
        }
        match timeout_at(deadline, answered).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(_)) => Err(OffloadError::Panicked { what }),
            Err(_) => {
                // If it has just ended, the entry is gone or somebody else's, who then clears it.
                if let Some(act) = acts.lock().get_mut(&what) {
                    act.stuck_since.get_or_insert(start);
                }
                Err(OffloadError::TimedOut { what, limit })
            }
        }
    }

    fn join(&self, what: &str, now: Instant) -> Result<(Part, Arc<Semaphore>), OffloadError> {
        let mut acts = self.alike.lock();
        let act = acts.entry(what.to_owned()).or_insert_with(|| Act {
            free: Arc::new(Semaphore::new(MOST_ALIKE)),
            users: 0,
            stuck_since: None,
        });
        if let Some(since) = act.stuck_since {
            return Err(OffloadError::Stuck {
                what: what.to_owned(),
                since: now - since,
            });
        }
        act.users += 1;
        let part = Part {
            acts: self.alike.clone(),
            what: what.to_owned(),
        };
        Ok((part, act.free.clone()))
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
    async fn a_call_that_hangs_is_given_up_and_does_not_hold_up_the_next() {
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
    async fn unfinished_call_keeps_its_path() {
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
    async fn a_mistake_in_a_call_is_an_error_of_that_call() {
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
    async fn when_every_thread_hangs_a_call_is_refused_in_time() {
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
    async fn what_hangs_is_refused_at_once_until_it_comes_back() {
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
    async fn before_it_is_known_to_hang_it_takes_a_few_threads_only() {
        let calls = Arc::new(calls());
        let (release, hung) = mpsc::channel::<()>();
        let hung = Arc::new(Mutex::new(hung));
        let tasks = (0..2 * MOST_ALIKE).map(|_| {
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
        assert_eq!(calls.free.available_permits(), MOST_THREADS - MOST_ALIKE);
        drop(release);
    }
}
