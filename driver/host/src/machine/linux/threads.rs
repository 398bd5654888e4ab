// SPDX-License-Identifier: Apache-2.0
//! Threads for blocking calls. A few idle threads wait for the next call. [`crate::offload`] limits their total number.
//!
//! The pool of the runtime panics if the system has no thread, and waits for hung calls when it shuts down. The calls
//! of one volume run one after the other, and two idle threads avoid a new thread for each.

use std::collections::VecDeque;
use std::sync::Arc;
use std::{fmt, io, thread};

use parking_lot::{Condvar, Mutex};

use crate::machine::Job;
use crate::timing::TIMING;

/// Limit of idle threads. The calls of one volume run one after the other.
const MOST_IDLE: usize = 2;

/// A pool of threads and its queue of jobs.
#[derive(Default)]
pub(super) struct CallThreads {
    queue: Mutex<JobQueue>,
    more: Condvar,
}

/// Invariant: there are never more jobs than idle threads, and no thread ends while there is a job.
#[derive(Default)]
struct JobQueue {
    jobs: VecDeque<Job>,
    idle: usize,
}

impl fmt::Debug for CallThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallThreads")
            .field("idle", &self.queue.lock().idle)
            .finish_non_exhaustive()
    }
}

impl CallThreads {
    /// Passes a job to an idle thread, or starts a thread.
    pub(super) fn start(self: &Arc<Self>, job: Job) -> io::Result<()> {
        let mut queue = self.queue.lock();
        if queue.jobs.len() < queue.idle {
            queue.jobs.push_back(job);
            self.more.notify_one();
            return Ok(());
        }
        drop(queue);
        let threads = Arc::clone(self);
        let work = move || threads.serve(job);
        thread::Builder::new().name("host-call".into()).spawn(work).map(drop)
    }

    /// Runs the job and further jobs, until no job has arrived for a while.
    fn serve(&self, mut job: Job) {
        loop {
            job();
            let mut queue = self.queue.lock();
            if queue.idle >= MOST_IDLE {
                return;
            }
            queue.idle += 1;
            self.more
                .wait_while_for(&mut queue, |queue| queue.jobs.is_empty(), TIMING.idle_thread);
            queue.idle -= 1;
            let Some(next) = queue.jobs.pop_front() else { return };
            job = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Runs a call, waits until its thread is idle again, and returns the thread.
    fn run_call(threads: &Arc<CallThreads>) -> thread::ThreadId {
        let (sender, receiver) = mpsc::channel();
        let call = move || sender.send(thread::current().id()).expect("it is waited for");
        threads.start(Box::new(call)).expect("a thread");
        let thread = receiver.recv().expect("it answers");
        while threads.queue.lock().idle == 0 {
            thread::yield_now();
        }
        thread
    }

    #[test]
    fn reuses_idle_thread_and_survives_panic() {
        let threads = Arc::default();
        let first = run_call(&threads);
        assert_eq!(first, run_call(&threads));
        let (sender, receiver) = mpsc::channel::<()>();
        let mistake = move || {
            let _answer = sender;
            std::panic::resume_unwind(Box::new(()))
        };
        threads.start(Box::new(mistake)).expect("a thread");
        receiver.recv().expect_err("it ends without an answer");
        assert_ne!(first, run_call(&threads));
    }

    #[test]
    fn concurrent_calls_run_in_parallel() {
        let threads = Arc::default();
        run_call(&threads);
        let (started, starts) = mpsc::channel();
        let ends: Vec<_> = (0..2 * MOST_IDLE)
            .map(|_| {
                let (end, ended) = mpsc::channel::<()>();
                let started = started.clone();
                let call = move || {
                    started.send(()).expect("it is waited for");
                    let _ = ended.recv();
                };
                threads.start(Box::new(call)).expect("a thread");
                end
            })
            .collect();
        for _ in &ends {
            starts.recv().expect("each has begun though none has ended");
        }
        drop(ends);
        run_call(&threads);
    }
}
