// SPDX-License-Identifier: Apache-2.0
//! Lists that are read page by page. All pages of a walk are cut from the lists that its first page began with: what changes meanwhile
//! costs no further request, and belongs to the next walk.

use std::collections::VecDeque;
use std::sync::Arc;

use cinder_cloud::{Cloud, VolumeId};
use csi_sources::Sources;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep};
use tonic::Status;

use super::token::{List, PagePosition};

use crate::timing::TIMING;

/// How many walks are kept; the next page of an older one begins with new lists.
const MAX_WALKS: usize = 3;

/// What a list has of each cloud, by the clouds' names.
pub(super) type Lists<E> = Vec<ListOfCloud<E>>;

/// The entries of one cloud, in the order of their ids.
#[derive(Debug)]
pub(super) struct ListOfCloud<E> {
    pub(super) name: String,
    pub(super) cloud: Cloud,
    pub(super) entries: Arc<Vec<E>>,
}

/// An entry of a list.
pub(super) trait Entry {
    /// By what the list is in order.
    fn id(&self) -> &str;
}

/// Which page is asked for.
#[derive(Debug, Clone)]
pub(super) struct Page {
    pub(super) list: List,
    pub(super) limit: usize,
    /// Where it begins; at the first entry when `None`.
    pub(super) place: Option<PagePosition>,
}

/// The walks under way through lists of one kind, in this process. A page whose walk another process has, or that came too late,
/// begins a walk with new lists behind the same id. Cheap to clone; clones share the walks.
#[derive(Debug)]
pub(super) struct Walks<E> {
    kept: Arc<Mutex<VecDeque<Walk<E>>>>,
}

#[derive(Debug)]
struct Walk<E> {
    number: u32,
    used: Instant,
    lists: Arc<Lists<E>>,
}

impl<E> Default for Walks<E> {
    fn default() -> Self {
        Self { kept: Arc::default() }
    }
}

impl<E> Clone for Walks<E> {
    fn clone(&self) -> Self {
        Self {
            kept: Arc::clone(&self.kept),
        }
    }
}

impl<E: Entry + Send + Sync + 'static> Walks<E> {
    /// A page, each entry as `show` makes of it, and the token for the next one, which is empty at the end. `fetch` gets the lists of
    /// a new walk, by the clouds' names and the entries' ids.
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
        let Page { list, limit, place } = page;
        let (number, lists) = match place.as_ref().and_then(|place| self.get(place.walk)) {
            Some((number, lists)) => (Some(number), lists),
            None => (None, Arc::new(fetch().await?)),
        };
        let mut shown = Vec::new();
        let mut last = None;
        for ListOfCloud { name, cloud, entries } in lists.iter() {
            let begin = match &place {
                Some(place) if place.cloud > *name => continue,
                Some(place) if place.cloud == *name => {
                    entries.partition_point(|entry| entry.id() <= place.after.as_str())
                }
                _ => 0,
            };
            for entry in &entries[begin..] {
                if let (true, Some((of_cloud, after))) = (shown.len() == limit, last) {
                    let place = PagePosition {
                        walk: number.unwrap_or_else(|| self.keep(sources, &lists)),
                        cloud: String::clone(of_cloud),
                        after: VolumeId::from(after),
                    };
                    return Ok((shown, place.token(list)));
                }
                shown.push(show(cloud, entry));
                last = Some((name, entry.id()));
            }
        }
        Ok((shown, String::new()))
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Walk<E>>> {
        self.kept.lock()
    }

    fn get(&self, number: u32) -> Option<(u32, Arc<Lists<E>>)> {
        let mut kept = self.kept();
        let walk = kept.iter_mut().find(|walk| walk.number == number)?;
        walk.used = Instant::now();
        Some((number, Arc::clone(&walk.lists)))
    }

    /// Keeps the lists of a walk, and gives its number: a random one, so that no other process takes the token for one of its own.
    fn keep(&self, sources: &Sources, lists: &Arc<Lists<E>>) -> u32 {
        let number = (sources.random() >> 32) as u32;
        let mut kept = self.kept();
        kept.truncate(MAX_WALKS - 1);
        kept.push_front(Walk {
            number,
            used: Instant::now(),
            lists: Arc::clone(lists),
        });
        drop(kept);
        let walks = Arc::downgrade(&self.kept);
        tokio::spawn(async move {
            let mut rest = Some(TIMING.walk_ttl);
            while let Some(time) = rest {
                sleep(time).await;
                let Some(kept) = walks.upgrade() else { return };
                let mut kept = kept.lock();
                kept.retain(|walk| walk.used.elapsed() < TIMING.walk_ttl);
                let walk = kept.iter().find(|walk| walk.number == number);
                rest = walk.map(|walk| TIMING.walk_ttl.saturating_sub(walk.used.elapsed()));
            }
        });
        number
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use cinder_cloud::{CloudConfig, CloudOptions};

    use super::*;

    impl Entry for String {
        fn id(&self) -> &str {
            self
        }
    }

    struct Stage {
        walks: Walks<String>,
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
                walks: Walks::default(),
                sources: Sources::seeded(1, "2026-01-02T03:04:05Z".parse().expect("a time")),
                cloud: Cloud::new(config, CloudOptions::default()).expect("a client"),
                fetched: Cell::new(0),
            }
        }

        fn lists(&self) -> Lists<String> {
            self.fetched.set(self.fetched.get() + 1);
            let entries = (0..10).map(|number| format!("11111111-2222-4333-8444-00000000000{number}"));
            vec![ListOfCloud {
                name: String::new(),
                cloud: self.cloud.clone(),
                entries: Arc::new(entries.collect()),
            }]
        }

        /// One entry behind a token, and the next token.
        async fn next(&self, token: &str) -> (Vec<String>, String) {
            let page = Page {
                list: List::Volumes,
                limit: 1,
                place: PagePosition::read(List::Volumes, token, [""].into_iter()),
            };
            let fetch = || async { Ok(self.lists()) };
            let page = self.walks.page(page, &self.sources, fetch, |_, entry| entry.clone());
            page.await.expect("a page")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_walk_goes_on_with_its_lists_and_frees_them_a_minute_after_its_last_page() {
        let stage = Stage::new();
        let (_, mut token) = stage.next("").await;
        let lists = Arc::downgrade(&stage.walks.kept()[0].lists);
        for _ in 0..4 {
            sleep(TIMING.walk_ttl / 2).await;
            (_, token) = stage.next(&token).await;
        }
        assert_eq!(stage.fetched.get(), 1);
        sleep(TIMING.walk_ttl + Duration::from_millis(10)).await;
        assert!(lists.upgrade().is_none());

        let (entries, _) = stage.next(&token).await;
        assert!(entries[0].ends_with('5'), "behind the last one: {entries:?}");
        assert_eq!(stage.fetched.get(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_walks_the_latest_are_kept_and_an_older_one_goes_on_with_lists_of_its_own() {
        let stage = Stage::new();
        let mut tokens = Vec::new();
        for _ in 0..=MAX_WALKS {
            tokens.push(stage.next("").await.1);
        }
        assert_eq!(stage.walks.kept().len(), MAX_WALKS);
        let fetched = stage.fetched.get();
        stage.next(&tokens[1]).await;
        assert_eq!(stage.fetched.get(), fetched);
        let (_, token) = stage.next(&tokens[0]).await;
        stage.next(&token).await;
        assert_eq!(stage.fetched.get(), fetched + 1);
    }
}
