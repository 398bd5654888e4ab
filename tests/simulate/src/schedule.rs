// SPDX-License-Identifier: Apache-2.0
//! Steps, the trace of them, and what ends a run.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use csi_sources::Sources;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Lines that are kept of a trace where not all of it is wanted: enough to see what led to a violation.
const LAST_LINES: usize = 400;

/// What one run shares: chance, the count of steps, the trace and the first violation. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Schedule {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    sources: Sources,
    began: Instant,
    /// Keep the whole trace, and not only its end.
    whole: bool,
    state: Mutex<State>,
    calm: OnceLock<Instant>,
    ended: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    steps: u64,
    lines: VecDeque<String>,
    digest: DefaultHasher,
    violation: Option<String>,
}

impl Schedule {
    /// A schedule whose chance is that of `sources`. To be made in the runtime whose clock is meant.
    pub fn new(sources: Sources, whole: bool) -> Self {
        Self {
            inner: Arc::new(Inner {
                sources,
                began: Instant::now(),
                whole,
                state: Mutex::default(),
                calm: OnceLock::new(),
                ended: CancellationToken::new(),
            }),
        }
    }

    /// The source of chance.
    pub fn sources(&self) -> &Sources {
        &self.inner.sources
    }

    /// Takes the next event off the schedule: it comes after `time`, and is one step.
    pub async fn event(&self, time: Duration, what: impl FnOnce() -> String) {
        sleep(time).await;
        self.state().steps += 1;
        self.note(&what());
    }

    /// Writes a line of the trace.
    pub fn note(&self, what: &str) {
        let elapsed = self.inner.began.elapsed();
        let mut state = self.state();
        let mut line = String::new();
        // A String takes whatever is written.
        let _ = write!(line, "{:>10.3} {:>6} {what}", elapsed.as_secs_f64(), state.steps);
        state.digest.write(line.as_bytes());
        if !self.inner.whole && state.lines.len() >= LAST_LINES {
            state.lines.pop_front();
        }
        state.lines.push_back(line);
    }

    /// Ends the run: something happened that must not. The first violation counts.
    pub fn violation(&self, what: &str) {
        self.note(&format!("VIOLATION {what}"));
        self.state().violation.get_or_insert_with(|| what.to_owned());
        self.inner.ended.cancel();
    }

    /// What must not happen and did.
    pub fn violated(&self) -> Option<String> {
        self.state().violation.clone()
    }

    /// Waits for a violation.
    pub async fn ended(&self) {
        self.inner.ended.cancelled().await;
    }

    /// Events so far.
    pub fn steps(&self) -> u64 {
        self.state().steps
    }

    /// The trace, or its end, and a digest of all of it.
    pub fn trace(&self) -> (Vec<String>, u64) {
        let state = self.state();
        (state.lines.iter().cloned().collect(), state.digest.finish())
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&self, bound: u64) -> u64 {
        self.inner.sources.random() % bound.max(1)
    }

    /// One of these, which are not none.
    pub fn one_of<T: Copy>(&self, choices: &[T]) -> T {
        let at = usize::try_from(self.below(choices.len() as u64)).unwrap_or_default();
        choices[at]
    }

    /// True in `per_mille` of 1,000 cases.
    pub fn chance(&self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// A time between these.
    pub fn between(&self, shortest: Duration, longest: Duration) -> Duration {
        let span = longest.saturating_sub(shortest).as_millis();
        let span = u64::try_from(span).unwrap_or(u64::MAX);
        shortest + Duration::from_millis(self.below(span.saturating_add(1)))
    }

    /// From now on nothing goes wrong.
    pub fn set_calm(&self) {
        self.inner.calm.get_or_init(Instant::now);
    }

    /// How long nothing has gone wrong; nothing while something may.
    pub fn calm(&self) -> Option<Duration> {
        self.inner.calm.get().map(Instant::elapsed)
    }

    /// Since the run began.
    pub fn elapsed(&self) -> Duration {
        self.inner.began.elapsed()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock()
    }
}
