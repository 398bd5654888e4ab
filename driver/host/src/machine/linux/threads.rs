// SPDX-License-Identifier: Apache-2.0
//! Threads for blocking calls: a few wait for the next one. How many there may be in all is decided in [`crate::offload`].
//!
//! The runtime's pool panics where the system gives no thread, and waits at its end for what hangs. Two threads
//! that wait spare a volume's calls, which come one after the other, a new thread each.

use std::collections::VecDeque;
use std::sync::Arc;
use std::{fmt, io, thread};

use parking_lot::{Condvar, Mutex};

use crate::machine::Job;
use crate::timing::TIMING;

/// Most threads that wait for the next call: one volume's calls come one after the other.
const MOST_IDLE: usize = 2;

/// Threads that wait for something to do, and what they are to do.
#[derive(Default)]
pub(super) struct CallThreads {
    queue: Mutex<JobQueue>,
    more: Condvar,
}

/// No thread leaves while there is a job, and there are never more jobs than idle threads.
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
    /// Gives a thread that is idle something to do, or starts one.
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

    /// Does the job, and then others, until none has come for a while.
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

    /// The thread that did a call, seen when it is idle again.
    fn ask(threads: &Arc<CallThreads>) -> thread::ThreadId {
        let (answer, answered) = mpsc::channel();
        let call = move || answer.send(thread::current().id()).expect("it is waited for");
        threads.start(Box::new(call)).expect("a thread");
        let thread = answered.recv().expect("it answers");
        while threads.queue.lock().idle == 0 {
            thread::yield_now();
        }
        thread
    }

    #[test]
    fn one_thread_serves_calls_that_come_one_after_the_other_and_its_panic_is_no_end() {
        let threads = Arc::default();
        let first = ask(&threads);
        assert_eq!(first, ask(&threads));
        let (answer, answered) = mpsc::channel::<()>();
        let mistake = move || {
            let _answer = answer;
            std::panic::resume_unwind(Box::new(()))
        };
        threads.start(Box::new(mistake)).expect("a thread");
        answered.recv().expect_err("it ends without an answer");
        assert_ne!(first, ask(&threads));
    }

    #[test]
    fn calls_that_come_at_once_do_not_wait_for_each_other() {
        let threads = Arc::default();
        ask(&threads);
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
        ask(&threads);
    }
}
