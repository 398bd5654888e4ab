//! Blocking system calls on threads of their own.
//!
//! A call on a device that died may never return. On the runtime's own blocking pool a few of those would keep every
//! other volume waiting and would hold up the end of the process; here each has a thread that is left to itself when its
//! time is up, and the number of threads is bounded.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

/// Most calls that may be under way at once, hung ones included. A node has at most a few hundred volumes, and a healthy
/// call takes milliseconds.
const MOST_THREADS: usize = 128;

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
        /// The system's reason.
        source: std::io::Error,
    },
    /// The call panicked; the log has the reason.
    #[error("{what} ended without an answer because of a mistake in the driver; see its log")]
    Panicked {
        /// What was being done.
        what: String,
    },
}

/// The threads in use.
#[derive(Debug)]
pub(crate) struct Threads {
    free: Arc<Semaphore>,
}

impl Default for Threads {
    fn default() -> Self {
        Self {
            free: Arc::new(Semaphore::new(MOST_THREADS)),
        }
    }
}

impl Threads {
    /// Runs `call` on a thread and waits `limit` for it. Dropping the future, or the limit, leaves the call running.
    pub(crate) async fn run<T, F>(&self, what: impl Into<String>, limit: Duration, call: F) -> Result<T, OffloadError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let what = what.into();
        let deadline = Instant::now() + limit;
        let Ok(Ok(permit)) = timeout_at(deadline, self.free.clone().acquire_owned()).await else {
            return Err(OffloadError::Saturated { what, limit });
        };
        let (answer, answered) = oneshot::channel();
        let started = thread::Builder::new().name("host-call".into()).spawn(move || {
            // The receiver is gone when the caller gave up: nobody is left to tell.
            let _ = answer.send(call());
            drop(permit);
        });
        if let Err(source) = started {
            return Err(OffloadError::StartThread { what, source });
        }
        match timeout_at(deadline, answered).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(_)) => Err(OffloadError::Panicked { what }),
            Err(_) => Err(OffloadError::TimedOut { what, limit }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_call_that_hangs_is_given_up_and_does_not_hold_up_the_next() {
        let threads = Threads::default();
        let (release, hung) = mpsc::channel::<()>();
        let error = threads
            .run("statfs of /dead", Duration::from_millis(20), move || hung.recv())
            .await
            .expect_err("it hangs");
        assert!(
            matches!(&error, OffloadError::TimedOut { what, .. } if what == "statfs of /dead"),
            "{error}"
        );
        assert_eq!(
            threads
                .run("the next", Duration::from_secs(10), || 7)
                .await
                .expect("the next runs"),
            7
        );
        drop(release);
    }

    #[tokio::test]
    async fn when_every_thread_hangs_a_call_is_refused_in_time() {
        let threads = Threads {
            free: Arc::new(Semaphore::new(1)),
        };
        let (release, hung) = mpsc::channel::<()>();
        let first = threads
            .run("first", Duration::from_millis(10), move || hung.recv())
            .await;
        assert!(matches!(first, Err(OffloadError::TimedOut { .. })));
        let second = threads.run("second", Duration::from_millis(10), || ()).await;
        assert!(matches!(second, Err(OffloadError::Saturated { .. })));
        drop(release);
        threads
            .run("third", Duration::from_secs(10), || ())
            .await
            .expect("the thread came back");
    }
}
