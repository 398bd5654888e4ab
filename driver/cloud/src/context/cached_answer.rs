// SPDX-License-Identifier: Apache-2.0
//! A cached response that is fetched once at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::error::CloudError;
use crate::timing::TIMING;

/// A cached response. Concurrent callers share one fetch, and its failure too.
#[derive(Debug)]
pub(crate) struct CachedAnswer<T> {
    lifetime: Duration,
    /// Whether a task is running that drops the response at its expiry.
    evicts: AtomicBool,
    entry: tokio::sync::Mutex<Option<CachedEntry<T>>>,
    /// Responses that were requested before this moment are outdated.
    changed: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct CachedEntry<T> {
    requested_at: Instant,
    arrived_at: Instant,
    answer: Result<Arc<T>, CloudError>,
}

impl<T> CachedAnswer<T> {
    pub(crate) fn for_time(lifetime: Duration) -> Self {
        Self {
            lifetime,
            evicts: AtomicBool::new(false),
            entry: tokio::sync::Mutex::default(),
            changed: Mutex::default(),
        }
    }

    /// Returns the cached response, or the result of `fetch`. Cancel safe: the next caller fetches then. A failure is
    /// only for callers that waited for it.
    pub(crate) async fn get<F: Future<Output = Result<T, CloudError>>>(
        &self,
        fetch: impl FnOnce() -> F,
    ) -> Result<Arc<T>, CloudError> {
        let arrived = Instant::now();
        let mut entry = self.entry.lock().await;
        if let Some(cached) = entry.as_ref().filter(|cached| self.is_valid(cached, arrived)) {
            return cached.answer.clone();
        }
        let requested_at = Instant::now();
        // On the heap: most callers find a cached response.
        let answer = Box::pin(fetch()).await.map(Arc::new);
        *entry = Some(CachedEntry {
            requested_at,
            arrived_at: Instant::now(),
            answer: answer.clone(),
        });
        answer
    }

    /// Starts the task that drops the response after its expiry, if none is running.
    pub(crate) fn evict_later(self: &Arc<Self>)
    where
        T: Send + Sync + 'static,
    {
        if self.evicts.swap(true, Ordering::Relaxed) {
            return;
        }
        let (cached, lifetime) = (Arc::downgrade(self), self.lifetime);
        tokio::spawn(async move {
            loop {
                sleep(lifetime + TIMING.list_eviction).await;
                let Some(cached) = cached.upgrade() else { return };
                if cached.evict().await {
                    return;
                }
            }
        });
    }

    /// Drops an expired response. Returns whether the cache is empty then. Waits for the end of a running fetch.
    async fn evict(&self) -> bool {
        let mut entry = self.entry.lock().await;
        if let Some(cached) = entry.as_ref()
            && self.is_valid(cached, Instant::now())
        {
            return false;
        }
        *entry = None;
        self.evicts.store(false, Ordering::Relaxed);
        true
    }

    /// Invalidates the response if it was requested before now.
    pub(crate) fn invalidate(&self) {
        *self.changed.lock() = Some(Instant::now());
    }

    fn is_valid(&self, cached: &CachedEntry<T>, arrived: Instant) -> bool {
        let changed = *self.changed.lock();
        let took = cached.arrived_at - cached.requested_at;
        // Some callers do not wait for a slow response. They get it at a later call, even if the cloud changes all the
        // time.
        let is_slow = took >= TIMING.slow_answer;
        if !is_slow && changed.is_some_and(|changed| cached.requested_at <= changed) {
            return false;
        }
        let lifetime = if is_slow { TIMING.slow_answer_ttl } else { self.lifetime };
        match cached.answer {
            // The lifetime begins with the arrival. Otherwise the response of a slow cloud would expire at once, and
            // every waiting caller would fetch again.
            Ok(_) => cached.arrived_at.elapsed() < lifetime,
            Err(_) => cached.arrived_at >= arrived,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const LIFETIME: Duration = Duration::from_secs(3);

    fn failed() -> CloudError {
        CloudError::Setup("for a test".into())
    }

    #[tokio::test(start_paused = true)]
    async fn response_is_fetched_once_per_lifetime() {
        let (cached, fetches) = (CachedAnswer::for_time(LIFETIME), Cell::new(0));
        let get = || {
            cached.get(|| async {
                fetches.set(fetches.get() + 1);
                Ok(fetches.get())
            })
        };
        assert_eq!((*get().await.expect("one"), *get().await.expect("one")), (1, 1));
        tokio::time::advance(LIFETIME).await;
        assert_eq!(*get().await.expect("two"), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_callers_share_fetch_and_failure() {
        let (cached, fetches) = (CachedAnswer::<u32>::for_time(LIFETIME), Cell::new(0));
        let get = || {
            cached.get(|| async {
                fetches.set(fetches.get() + 1);
                tokio::time::sleep(Duration::from_secs(1)).await;
                Err(failed())
            })
        };
        let (one, two, three) = tokio::join!(get(), get(), get());
        assert!(one.is_err() && two.is_err() && three.is_err());
        assert_eq!(fetches.get(), 1);
        tokio::time::advance(Duration::from_millis(1)).await;
        get().await.expect_err("asked anew");
        assert_eq!(fetches.get(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_response_serves_all_waiters() {
        let (cached, fetches) = (CachedAnswer::for_time(LIFETIME), Cell::new(0));
        let get = || {
            cached.get(|| async {
                fetches.set(fetches.get() + 1);
                tokio::time::sleep(2 * LIFETIME).await;
                Ok(fetches.get())
            })
        };
        let (one, two) = tokio::join!(get(), get());
        assert_eq!((*one.expect("one"), *two.expect("the same")), (1, 1));
        assert_eq!(*get().await.expect("still the same"), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn change_invalidates_pending_response() {
        let (cached, fetches) = (CachedAnswer::for_time(LIFETIME), Cell::new(0));
        let get = || {
            cached.get(|| async {
                fetches.set(fetches.get() + 1);
                if fetches.get() == 1 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    cached.invalidate();
                }
                Ok(fetches.get())
            })
        };
        get().await.expect("one");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(*get().await.expect("two"), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_response_outlives_changes() {
        let (cached, fetches) = (CachedAnswer::for_time(LIFETIME), Cell::new(0));
        let get = || {
            cached.get(|| async {
                fetches.set(fetches.get() + 1);
                cached.invalidate();
                tokio::time::sleep(TIMING.slow_answer).await;
                Ok(fetches.get())
            })
        };
        get().await.expect("one");
        tokio::time::advance(TIMING.slow_answer_ttl / 2).await;
        assert_eq!(*get().await.expect("the same"), 1);
        tokio::time::advance(TIMING.slow_answer_ttl).await;
        assert_eq!(*get().await.expect("two"), 2);
    }
}
