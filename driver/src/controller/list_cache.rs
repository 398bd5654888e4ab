// SPDX-License-Identifier: Apache-2.0
//! Reads lists page by page.
//!
//! The first page of a walk fetches and caches the lists of all clouds. Later pages are taken from the cache, so
//! changes appear in the next walk only.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use cinder_cloud::{Cloud, VolumeId};
use csi_sources::Sources;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep};
use tonic::Status;

use super::token::{List, PagePosition};

use crate::timing::TIMING;

/// The maximum number of cached entries. The next page of an older entry fetches new lists.
const MAX_CACHED_LISTS: usize = 3;
/// The maximum size of all cached entries, in bytes. The newest entry may exceed it. The container has 128 MiB by
/// default, and a list that is being fetched needs half of it.
const MAX_CACHED_SIZE: usize = 48 << 20;

/// The lists of all clouds, ordered by the names of the clouds.
pub(super) type Lists<E> = Vec<ListOfCloud<E>>;

/// The entries of one cloud, ordered by id.
#[derive(Debug)]
pub(super) struct ListOfCloud<E> {
    pub(super) name: String,
    pub(super) cloud: Cloud,
    pub(super) entries: Arc<Vec<E>>,
}

pub(super) trait Entry {
    /// The key of the order.
    fn id(&self) -> &str;

    /// The bytes on the heap that the entry owns.
    fn heap_size(&self) -> usize;
}

/// A requested page.
#[derive(Debug, Clone)]
pub(super) struct Page {
    pub(super) list: List,
    pub(super) limit: usize,
    /// The position before the first entry; `None` for the beginning of the list.
    pub(super) position: Option<PagePosition>,
}

/// The cached lists of one kind, in this process. Cheap to clone; clones share the entries.
///
/// If the entry of a page expired or belongs to another process, new lists are fetched, and the page begins after the
/// same id.
#[derive(Debug)]
pub(super) struct ListCache<E> {
    cached: Arc<Mutex<VecDeque<CachedList<E>>>>,
}

#[derive(Debug)]
struct CachedList<E> {
    number: u32,
    used: Instant,
    lists: Arc<Lists<E>>,
}

impl<E> Default for ListCache<E> {
    fn default() -> Self {
        Self { cached: Arc::default() }
    }
}

impl<E> Clone for ListCache<E> {
    fn clone(&self) -> Self {
        Self {
            cached: Arc::clone(&self.cached),
        }
    }
}

impl<E: Entry + Send + Sync + 'static> ListCache<E> {
    /// Returns a page, with each entry converted by `show`, and the token for the next page, which is empty at the end.
    ///
    /// `fetch` gets new lists, ordered by the names of clouds and the ids of entries.
    pub(super) async fn page<T, F>(
        &self,
        page: Page,
        sources: &Sources,
        fetch: impl FnOnce() -> F,
        mut show: impl FnMut(&Cloud, &E) -> T,
    ) -> Result<(Vec<T>, String), Status>
    where
        F: Future<Output = Result<Lists<E>, Status>>,
    {
        let Page { list, limit, position } = page;
        let (number, lists) = match position.as_ref().and_then(|position| self.get(position.list_id)) {
            Some((number, lists)) => (Some(number), lists),
            None => (None, Arc::new(fetch().await?)),
        };
        let mut shown = Vec::new();
        let mut last = None;
        for ListOfCloud { name, cloud, entries } in lists.iter() {
            let begin = match &position {
                Some(position) if position.cloud > *name => continue,
                Some(position) if position.cloud == *name => {
                    entries.partition_point(|entry| entry.id() <= position.after.as_str())
                }
                _ => 0,
            };
            for entry in &entries[begin..] {
                if let (true, Some((of_cloud, after))) = (shown.len() == limit, last) {
                    let position = PagePosition {
                        list_id: number.unwrap_or_else(|| self.insert(sources, &lists)),
                        cloud: String::clone(of_cloud),
                        after: VolumeId::from(after),
                    };
                    return Ok((shown, position.token(list)));
                }
                shown.push(show(cloud, entry));
                last = Some((name, entry.id()));
            }
        }
        Ok((shown, String::new()))
    }

    fn cached(&self) -> MutexGuard<'_, VecDeque<CachedList<E>>> {
        self.cached.lock()
    }

    fn get(&self, number: u32) -> Option<(u32, Arc<Lists<E>>)> {
        let mut cached = self.cached();
        let entry = cached.iter_mut().find(|entry| entry.number == number)?;
        entry.used = Instant::now();
        Some((number, Arc::clone(&entry.lists)))
    }

    /// Caches lists and returns the number of the entry. The number is random, so that another process does not mistake
    /// the token for its own.
    fn insert(&self, sources: &Sources, lists: &Arc<Lists<E>>) -> u32 {
        let number = (sources.random() >> 32) as u32;
        let mut cached = self.cached();
        cached.truncate(MAX_CACHED_LISTS - 1);
        cached.push_front(CachedList {
            number,
            used: Instant::now(),
            lists: Arc::clone(lists),
        });
        while cached.len() > 1 && total_size(&cached) > MAX_CACHED_SIZE {
            cached.pop_back();
        }
        drop(cached);
        let cache = Arc::downgrade(&self.cached);
        tokio::spawn(async move {
            let mut rest = Some(TIMING.list_cache_ttl);
            while let Some(time) = rest {
                sleep(time).await;
                let Some(cached) = cache.upgrade() else { return };
                let mut cached = cached.lock();
                cached.retain(|entry| entry.used.elapsed() < TIMING.list_cache_ttl);
                let entry = cached.iter().find(|entry| entry.number == number);
                rest = entry.map(|entry| TIMING.list_cache_ttl.saturating_sub(entry.used.elapsed()));
            }
        });
        number
    }
}

/// Returns the size of all lists. Walks that began at the same time share theirs.
fn total_size<E: Entry>(cached: &VecDeque<CachedList<E>>) -> usize {
    let lists = cached.iter().flat_map(|cached| cached.lists.iter());
    let distinct: BTreeMap<_, _> = lists.map(|list| (Arc::as_ptr(&list.entries), &list.entries)).collect();
    let size =
        |entries: &Arc<Vec<E>>| size_of_val(entries.as_slice()) + entries.iter().map(Entry::heap_size).sum::<usize>();
    distinct.into_values().map(size).sum()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use cinder_cloud::{CloudConfig, CloudOptions};

    use super::*;

    impl Entry for String {
        fn id(&self) -> &str {
            self.trim()
        }

        fn heap_size(&self) -> usize {
            self.len()
        }
    }

    struct Stage {
        /// The spaces that each entry has after its id.
        padding: usize,
        cache: ListCache<String>,
        sources: Sources,
        cloud: Cloud,
        fetched: Cell<u32>,
    }

    impl Stage {
        fn new() -> Self {
            // A second installation in this process changes nothing.
            drop(rustls::crypto::ring::default_provider().install_default());
            let conf =
                "[Global]\nauth-url=http://127.0.0.1:1/v3\nusername=u\npassword=p\ntenant-name=t\ndomain-name=d\n";
            let config = CloudConfig::from_cloud_conf(conf).expect("a configuration");
            Self {
                padding: 0,
                cache: ListCache::default(),
                sources: Sources::seeded(1, "2026-01-02T03:04:05Z".parse().expect("a time")),
                cloud: Cloud::new(config, CloudOptions::default()).expect("a client"),
                fetched: Cell::new(0),
            }
        }

        fn lists(&self) -> Lists<String> {
            self.fetched.set(self.fetched.get() + 1);
            let spaces = " ".repeat(self.padding);
            let entries = (0..10).map(|number| format!("11111111-2222-4333-8444-00000000000{number}{spaces}"));
            vec![ListOfCloud {
                name: String::new(),
                cloud: self.cloud.clone(),
                entries: Arc::new(entries.collect()),
            }]
        }

        /// Fetches one entry after a token. Returns it with the next token.
        async fn next(&self, token: &str) -> (Vec<String>, String) {
            let page = Page {
                list: List::Volumes,
                limit: 1,
                position: PagePosition::parse(List::Volumes, token, [""].into_iter()),
            };
            let fetch = || async { Ok(self.lists()) };
            let page = self.cache.page(page, &self.sources, fetch, |_, entry| entry.clone());
            page.await.expect("a page")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn walk_reuses_lists_until_idle_for_one_minute() {
        let stage = Stage::new();
        let (_, mut token) = stage.next("").await;
        let lists = Arc::downgrade(&stage.cache.cached()[0].lists);
        for _ in 0..4 {
            sleep(TIMING.list_cache_ttl / 2).await;
            (_, token) = stage.next(&token).await;
        }
        assert_eq!(stage.fetched.get(), 1);
        sleep(TIMING.list_cache_ttl + Duration::from_millis(10)).await;
        assert!(lists.upgrade().is_none());

        let (entries, _) = stage.next(&token).await;
        assert!(entries[0].ends_with('5'), "behind the last one: {entries:?}");
        assert_eq!(stage.fetched.get(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn oldest_walk_is_dropped_and_fetches_new_lists() {
        let stage = Stage::new();
        let mut tokens = Vec::new();
        for _ in 0..=MAX_CACHED_LISTS {
            tokens.push(stage.next("").await.1);
        }
        assert_eq!(stage.cache.cached().len(), MAX_CACHED_LISTS);
        let fetched = stage.fetched.get();
        stage.next(&tokens[1]).await;
        assert_eq!(stage.fetched.get(), fetched);
        let (_, token) = stage.next(&tokens[0]).await;
        stage.next(&token).await;
        assert_eq!(stage.fetched.get(), fetched + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn large_walks_replace_older_ones() {
        let mut stage = Stage::new();
        // Two of these lists fit, three do not.
        stage.padding = MAX_CACHED_SIZE / 10 / 2 - 1_000;
        for expected in [1, 2, 2] {
            stage.next("").await;
            assert_eq!(stage.cache.cached().len(), expected);
            assert!(total_size(&stage.cache.cached()) <= MAX_CACHED_SIZE);
        }
        stage.padding = MAX_CACHED_SIZE / 10;
        let (_, token) = stage.next("").await;
        assert_eq!(stage.cache.cached().len(), 1);
        let fetched = stage.fetched.get();
        stage.next(&token).await;
        assert_eq!(stage.fetched.get(), fetched, "the newest walk remains whole");
    }

    #[tokio::test(start_paused = true)]
    async fn walks_with_shared_lists_count_once() {
        let mut stage = Stage::new();
        stage.padding = MAX_CACHED_SIZE / 10 - 1_000;
        let lists = stage.lists();
        let entries = Arc::clone(&lists[0].entries);
        for _ in 0..MAX_CACHED_LISTS {
            let mut shared = stage.lists();
            shared[0].entries = Arc::clone(&entries);
            stage.cache.insert(&stage.sources, &Arc::new(shared));
        }
        assert_eq!(stage.cache.cached().len(), MAX_CACHED_LISTS);
    }
}
