//! Threads for blocking calls.
//!
//! A few wait for the next call; how many there may be in all is decided above ([`crate::offload`]).

use std::io;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use crate::machine::Job;
use crate::offload::lock;

/// Most threads that wait for the next call, and for how long: one volume's calls come one after the other.
const MOST_IDLE: usize = 2;
const IDLE_FOR: Duration = Duration::from_secs(2);

/// A thread that waits for something to do.
type Idle = (thread::ThreadId, mpsc::SyncSender<Job>);

/// The threads in use.
#[derive(Debug, Default)]
pub(super) struct Threads {
    /// The one that became idle last stands last.
    idle: Arc<Mutex<Vec<Idle>>>,
}

impl Threads {
    /// Gives a thread that has just become free something to do, or starts one.
    pub(super) fn start(&self, mut job: Job) -> io::Result<()> {
        // Taken out first: it then waits for what it is sent.
        while let Some((_, thread)) = { lock(&self.idle).pop() } {
            match thread.send(job) {
                Ok(()) => return Ok(()),
                Err(mpsc::SendError(back)) => job = back,
            }
        }
        let idle = self.idle.clone();
        let work = move || serve(job, &idle);
        thread::Builder::new().name("host-call".into()).spawn(work).map(drop)
    }
}

/// Does the job, and then what others bring, until nobody has brought anything for a while.
fn serve(mut job: Job, idle: &Mutex<Vec<Idle>>) {
    loop {
        job();
        // Room for one: who has taken the sender out never waits.
        let (sender, jobs) = mpsc::sync_channel(1);
        {
            let mut idle = lock(idle);
            if idle.len() >= MOST_IDLE {
                return;
            }
            idle.push((thread::current().id(), sender));
        }
        job = if let Ok(job) = jobs.recv_timeout(IDLE_FOR) {
            job
        } else {
            let own = thread::current().id();
            lock(idle).retain(|(thread, _)| *thread != own);
            // If somebody has taken it before, there is something to do after all.
            let Ok(job) = jobs.recv() else { return };
            job
        };
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn one_thread_serves_calls_that_come_one_after_the_other_and_its_panic_is_no_end() {
        let threads = Threads::default();
        let ask = async || {
            let (answer, answered) = oneshot::channel();
            let call = move || answer.send(thread::current().id()).expect("it is waited for");
            threads.start(Box::new(call)).expect("a thread");
            let thread = answered.await;
            // It is idle a moment after it has answered.
            while lock(&threads.idle).is_empty() {
                tokio::task::yield_now().await;
            }
            thread.expect("it answers")
        };
        let first = ask().await;
        assert_eq!(first, ask().await);
        let (answer, answered) = oneshot::channel::<()>();
        let mistake = move || {
            let _answer = answer;
            std::panic::resume_unwind(Box::new(()))
        };
        threads.start(Box::new(mistake)).expect("a thread");
        answered.await.expect_err("it ends without an answer");
        assert_ne!(first, ask().await);
    }
}
