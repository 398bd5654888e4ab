// SPDX-License-Identifier: Apache-2.0
//! Steps, the trace, and the end of a run.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use csi_sources::Sources;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Number of last lines that a partial trace retains, sufficient to explain a violation.
const LAST_LINES: usize = 400;

/// State that a run shares: random numbers, the number of steps, the trace and the first violation. Clones share the
/// same state.
#[derive(Debug, Clone)]
pub struct Schedule {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    sources: Sources,
    began: Instant,
    /// Whether to record the whole trace.
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
    /// Creates a schedule with the random numbers of `sources`. Must be called in the runtime with the paused clock.
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

    /// Returns the source of random numbers.
    pub fn sources(&self) -> &Sources {
        &self.inner.sources
    }

    /// Waits for `time`, and records an event, which is one step.
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
        // Writing to a String never fails.
        let _ = write!(line, "{:>10.3} {:>6} {what}", elapsed.as_secs_f64(), state.steps);
        state.digest.write(line.as_bytes());
        if !self.inner.whole && state.lines.len() >= LAST_LINES {
            state.lines.pop_front();
        }
        state.lines.push_back(line);
    }

    /// Records a violation and ends the run. Only the first violation counts.
    pub fn violation(&self, what: &str) {
        self.note(&format!("VIOLATION {what}"));
        self.state().violation.get_or_insert_with(|| what.to_owned());
        self.inner.ended.cancel();
    }

    /// Returns the first violation.
    pub fn violated(&self) -> Option<String> {
        self.state().violation.clone()
    }

    /// Waits for a violation.
    pub async fn ended(&self) {
        self.inner.ended.cancelled().await;
    }

    /// Returns the number of events so far.
    pub fn steps(&self) -> u64 {
        self.state().steps
    }

    /// Returns the trace, or its last lines, and a digest of the whole trace.
    pub fn trace(&self) -> (Vec<String>, u64) {
        let state = self.state();
        (state.lines.iter().cloned().collect(), state.digest.finish())
    }

    /// Draws a number below `bound`, which must not be 0.
    pub fn below(&self, bound: u64) -> u64 {
        self.inner.sources.random() % bound.max(1)
    }

    /// Draws one of these choices, which must not be empty.
    pub fn one_of<T: Copy>(&self, choices: &[T]) -> T {
        let at = usize::try_from(self.below(choices.len() as u64)).unwrap_or_default();
        choices[at]
    }

    /// Draws true with a probability of `per_mille` in 1,000.
    pub fn chance(&self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// Draws a duration between these.
    pub fn between(&self, shortest: Duration, longest: Duration) -> Duration {
        let span = longest.saturating_sub(shortest).as_millis();
        let span = u64::try_from(span).unwrap_or(u64::MAX);
        shortest + Duration::from_millis(self.below(span.saturating_add(1)))
    }

    /// Marks the end of all faults.
    pub fn set_calm(&self) {
        self.inner.calm.get_or_init(Instant::now);
    }

    /// Returns the time since the end of all faults; `None` before it.
    pub fn calm(&self) -> Option<Duration> {
        self.inner.calm.get().map(Instant::elapsed)
    }

    /// Returns the time since the start of the run.
    pub fn elapsed(&self) -> Duration {
        self.inner.began.elapsed()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock()
    }
}
