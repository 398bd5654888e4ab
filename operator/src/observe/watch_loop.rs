// SPDX-License-Identifier: Apache-2.0
//! Watches that pause after failures, and the state of all watches.
//!
//! The pause grows with each failure. The start of a list does not reset it, because a failing list starts again and
//! again. A watch that fails repeatedly is reported by kind and cause.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cinder_operator_core::cluster::{Affected, GuardedObject};
use csi_sources::UntrustedText;
use futures::{Stream, StreamExt, stream::BoxStream};
use kube::runtime::{
    watcher,
    watcher::{Error, Event},
};
use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};
use tracing::{info, warn};

use super::wake::ChangeSender;
use crate::{
    kubernetes::{answer, is_forbidden},
    metrics::Metrics,
};

/// Pause after the first failure. It doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(800);
/// Longest pause after a failure. During an outage, each of eleven kinds then logs one line per minute.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// Time without a failure after which a watch counts as working.
const CALM: Duration = Duration::from_mins(2);
/// Number of failures after which a watch is reported, some 25 s after the first one. A single failure is ordinary.
const LASTING: u32 = 5;
/// Maximum number of characters of a reported cause.
const LONGEST_CAUSE: usize = 300;

/// A watch that has failed.
#[derive(Debug, Clone)]
struct FailingWatch {
    kind: &'static str,
    cause: String,
    failures: u32,
}

/// The failing watches, by name.
#[derive(Debug, Clone)]
pub(crate) struct WatchHealth {
    failing: Arc<Mutex<BTreeMap<String, FailingWatch>>>,
    changed: watch::Sender<()>,
    wake: ChangeSender,
    metrics: Arc<Metrics>,
}

impl WatchHealth {
    pub(super) fn new(wake: ChangeSender, metrics: Arc<Metrics>) -> Self {
        Self {
            failing: Arc::default(),
            changed: watch::channel(()).0,
            wake,
            metrics,
        }
    }

    /// Notifies about changes of the failing watches.
    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The watches that have failed repeatedly, each with its cause.
    pub(super) fn failing(&self) -> Vec<String> {
        let failing = self.failing.lock();
        let lasting = failing.iter().filter(|(_, watch)| watch.failures >= LASTING);
        lasting
            .map(|(name, watch)| format!("{name}: {}", watch.cause))
            .collect()
    }

    /// Describes kinds without a first list, with their causes where known.
    pub(super) fn describe(&self, kinds: &[&'static str]) -> String {
        let failing = self.failing.lock();
        let describe = |kind: &&'static str| {
            let cause = failing.values().find(|watch| watch.kind == *kind);
            cause.map_or_else(
                || format!("{kind} are not listed yet"),
                |watch| format!("cannot list {kind}: {}", watch.cause),
            )
        };
        kinds.iter().map(describe).collect::<Vec<_>>().join("; ")
    }

    /// Sets the number of objects of a kind that cannot be decoded.
    pub(super) fn count_undecodable(&self, kind: &str, count: usize) {
        self.metrics.undecodable_objects(kind, count);
    }

    fn set(&self, name: &str, kind: &'static str, failure: Option<(String, u32)>) {
        let mut failing = self.failing.lock();
        let is_lasting = |watch: &FailingWatch| watch.failures >= LASTING;
        let before = failing
            .get(name)
            .filter(|watch| is_lasting(watch))
            .map(|watch| watch.cause.clone());
        match failure {
            Some((cause, failures)) => {
                let watch = FailingWatch { kind, cause, failures };
                failing.insert(name.to_owned(), watch);
            }
            None => {
                failing.remove(name);
            }
        }
        let now = failing
            .get(name)
            .filter(|watch| is_lasting(watch))
            .map(|watch| watch.cause.clone());
        let count = failing
            .values()
            .filter(|watch| watch.kind == kind && is_lasting(watch))
            .count();
        drop(failing);
        self.metrics.failing_watches(kind, count);
        self.changed.send_replace(());
        if before != now {
            self.wake.send(Affected::All);
        }
    }
}

/// A watch that continues after failures.
#[expect(clippy::struct_excessive_bools, reason = "facts, each for itself")]
pub(crate) struct WatchLoop<K> {
    kind: &'static str,
    name: String,
    events: BoxStream<'static, watcher::Result<Event<GuardedObject<K>>>>,
    health: WatchHealth,
    /// Consecutive failures without a calm period, and the time of the last one.
    failures: u32,
    last: Option<Instant>,
    /// Whether the last list is complete.
    is_listed: bool,
    /// Whether a complete list ends the present failure.
    ends_with_list: bool,
    /// Whether the last failure is recorded.
    is_recorded: bool,
    /// Whether the list is complete and the watch works.
    is_current: bool,
}

impl<K: Send + 'static> WatchLoop<K> {
    pub(crate) fn new(
        kind: &'static str,
        name: String,
        events: BoxStream<'static, watcher::Result<Event<GuardedObject<K>>>>,
        health: WatchHealth,
    ) -> Self {
        health.set(&name, kind, None);
        health.metrics.index(&name, kind, false);
        Self {
            kind,
            name,
            events,
            health,
            failures: 0,
            last: None,
            is_listed: false,
            ends_with_list: true,
            is_recorded: false,
            is_current: false,
        }
    }

    /// The next event; `None` at the end of the events. Cancel-safe: dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Event<GuardedObject<K>>> {
        loop {
            if let Some(until) = self.last.map(|last| last + self.pause()) {
                tokio::time::sleep_until(until).await;
            }
            let event = match self.last {
                // No event reports that a watch has resumed, so a calm period must indicate it.
                Some(last) if self.is_listed => tokio::time::timeout_at(last + CALM, self.events.next()).await,
                _ => Ok(self.events.next().await),
            };
            match event {
                Err(_calm) => self.recover(),
                Ok(Some(Err(error))) => self.fail(&error),
                Ok(Some(Ok(event))) => {
                    match &event {
                        Event::Init => {
                            self.is_listed = false;
                            self.set_current(false);
                        }
                        Event::InitApply(_) => {}
                        Event::InitDone | Event::Apply(_) | Event::Delete(_) => {
                            self.is_listed = true;
                            self.set_current(true);
                            if self.ends_with_list {
                                self.report_end();
                            }
                        }
                    }
                    return Some(event);
                }
                Ok(None) => return None,
            }
        }
    }

    /// Converts the watch into a stream of events.
    pub(crate) fn into_stream(self) -> impl Stream<Item = watcher::Result<Event<GuardedObject<K>>>> + Send {
        futures::stream::unfold(self, |mut events| async move {
            let event = events.next().await?;
            Some((Ok(event), events))
        })
    }

    /// The pause after the last failure.
    fn pause(&self) -> Duration {
        let doubled = 2_u32.saturating_pow(self.failures.saturating_sub(1));
        FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE)
    }

    fn fail(&mut self, error: &Error) {
        if self.last.is_some_and(|last| last.elapsed() >= CALM) {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        self.last = Some(Instant::now());
        self.ends_with_list = !self.is_listed;
        self.set_current(false);
        let cause = cause_of(self.kind, error);
        warn!(
            watch = self.name,
            failures = self.failures,
            "watch failed, and the operator retries in {:?}: {cause}",
            self.pause()
        );
        self.is_recorded = true;
        self.health.set(&self.name, self.kind, Some((cause, self.failures)));
    }

    /// Resets the failures after a calm period.
    fn recover(&mut self) {
        self.report_end();
        self.set_current(true);
        self.failures = 0;
        self.last = None;
    }

    fn set_current(&mut self, is_current: bool) {
        if std::mem::replace(&mut self.is_current, is_current) != is_current {
            self.health.metrics.index(&self.name, self.kind, is_current);
        }
    }

    fn report_end(&mut self) {
        if !std::mem::take(&mut self.is_recorded) {
            return;
        }
        self.health.set(&self.name, self.kind, None);
        if self.failures >= LASTING {
            info!(watch = self.name, "the watch works again");
        }
    }
}

/// Removes the state of the watch. The API server may have removed the kind, so that its watch ends after a failure.
impl<K> Drop for WatchLoop<K> {
    fn drop(&mut self) {
        self.health.set(&self.name, self.kind, None);
        self.health.metrics.remove_index(&self.name);
    }
}

/// The cause of a failure. It mentions rights only if the API server rejected the request.
fn cause_of(kind: &str, error: &Error) -> String {
    let cause = match error {
        Error::InitialListFailed(error) | Error::WatchStartFailed(error) | Error::WatchFailed(error) => match error {
            error if is_forbidden(error) => format!(
                "{}; check that the operator's ClusterRole allows get, list and watch on {kind}",
                answer(error)
            ),
            error => answer(error),
        },
        Error::WatchError(status) => status.message.clone(),
        Error::NoResourceVersion => "the answer of the API server has no resourceVersion".to_owned(),
    };
    UntrustedText::with_limit(&cause, LONGEST_CAUSE).to_string()
}

#[cfg(test)]
mod tests;
