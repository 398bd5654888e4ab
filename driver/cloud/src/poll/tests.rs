// SPDX-License-Identifier: Apache-2.0
//! Tests of the watch with simulated time: the number of requests and the delay, without a cloud.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use futures::future::join_all;
use tokio::time::{sleep, sleep_until};

use super::*;
use crate::config::CloudConfig;
use crate::error::Failure;
use crate::http::connection::Connection;
use crate::http::options::CloudOptions;

/// A resource with an operation that finishes after some time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Thing {
    id: u32,
    status: &'static str,
    changed: Timestamp,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ListMode {
    #[default]
    Complete,
    /// Every second list is empty.
    Forgetful,
    Failing,
    Unserved,
}

#[derive(Debug, Default)]
struct World {
    /// The time at which each operation finishes; `None` for never.
    ends: HashMap<u32, Option<Instant>>,
    /// The final status; `None` for a deleted resource.
    ended: Option<&'static str>,
    since: Vec<Timestamp>,
    lists: usize,
    gets: usize,
    list_mode: ListMode,
    /// Whether pending resources have not changed since their creation, so that no list of changes contains them.
    unplaced: bool,
    /// The resources with polls that never end.
    dead: HashSet<u32>,
    changed: Timestamp,
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::default();
}

fn world<R>(with: impl FnOnce(&mut World) -> R) -> R {
    WORLD.with_borrow_mut(with)
}

impl World {
    fn result(&self, id: u32) -> Option<Thing> {
        let end = *self.ends.get(&id)?;
        let status = if end.is_some_and(|end| end <= Instant::now()) {
            self.ended?
        } else {
            "busy"
        };
        Some(Thing {
            id,
            status,
            changed: self.changed,
        })
    }
}

impl Pollable for Thing {
    type Id = u32;
    type Status = &'static str;

    const LISTS: bool = true;

    fn id(&self) -> &u32 {
        &self.id
    }

    fn status(&self) -> &&'static str {
        &self.status
    }

    fn under_way(_: Kind) -> &'static str {
        "busy"
    }

    fn changed_at(&self) -> Option<Timestamp> {
        Some(self.changed)
    }

    async fn get(_: &Transport, id: &u32) -> Result<Option<Self>, CloudError> {
        if world(|world| world.dead.contains(id)) {
            std::future::pending::<()>().await;
        }
        Ok(world(|world| {
            world.gets += 1;
            world.result(*id)
        }))
    }

    async fn changed_since(
        _: &Transport,
        since: Timestamp,
        ids: &HashSet<u32>,
    ) -> Result<Option<Vec<Self>>, CloudError> {
        if world(|world| world.list_mode == ListMode::Failing) {
            world(|world| world.lists += 1);
            return Err(CloudError::Server(Failure {
                operation: "volumes_get",
                object: "list of changes".to_owned(),
                status: Some(500),
                fault: String::new(),
                request_id: None,
                elapsed: Duration::ZERO,
            }));
        }
        Ok(world(|world| {
            if world.list_mode == ListMode::Unserved {
                return None;
            }
            world.lists += 1;
            world.since.push(since);
            let forgotten = world.list_mode == ListMode::Forgetful && world.lists.is_multiple_of(2);
            let known = world.ends.keys().filter(|id| ids.contains(*id));
            let all = known.filter_map(|id| world.result(*id));
            let reported =
                |thing: &Thing| thing.changed >= since && !(world.unplaced && thing.status == "busy") && !forgotten;
            Some(all.filter(reported).collect())
        }))
    }
}

fn watch() -> Watch<Thing> {
    // A second installation in this process changes nothing.
    drop(rustls::crypto::ring::default_provider().install_default());
    let config = CloudConfig::from_cloud_conf(
        "[Global]\nauth-url=http://127.0.0.1:1\napplication-credential-id=i\napplication-credential-secret=s\n",
    )
    .expect("good");
    let options = CloudOptions::default();
    let connection = Connection::new(&config, &options).expect("a connection");
    world(|world| {
        *world = World {
            ended: Some("done"),
            changed: options.sources.now(),
            ..World::default()
        };
    });
    Watch::new(Arc::new(Transport::new(connection, &options)))
}

/// Waits for an operation of this duration. Returns the delay until its end is seen.
async fn wait(watch: &Watch<Thing>, kind: Kind, id: u32, takes: Duration) -> Duration {
    let started = Instant::now();
    world(|world| world.ends.insert(id, Some(started + takes)));
    let wait = Wait {
        kind,
        id: &id,
        name: None,
        status: None,
        started,
        deadline: started + Duration::from_mins(10),
        at_most_every: None,
        what: format!("thing {id}"),
    };
    let end = watch.until(wait, |thing| match thing {
        Some(thing) if thing.status == "busy" => PollVerdict::Pending,
        _ => PollVerdict::Done(Ok(())),
    });
    end.await.expect("it ends");
    started.elapsed().saturating_sub(takes)
}

/// Returns pseudo-random numbers between 0 and 1, the same each time.
fn chances() -> impl Iterator<Item = f64> {
    let mut state = 12_345_u64;
    std::iter::from_fn(move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        Some((state >> 40) as f64 / f64::from(1_u32 << 24))
    })
}

/// Returns the median and the 99th percentile.
fn summary(mut late: Vec<Duration>) -> (Duration, Duration) {
    late.sort();
    (late[late.len() / 2], late[(late.len() * 99).div_ceil(100) - 1])
}

#[tokio::test(start_paused = true)]
async fn crowd_needs_few_requests_and_little_delay() {
    for count in [40, 100, 400] {
        let watch = watch();
        let takes = chances()
            .take(count)
            .map(|chance| Duration::from_secs_f64(0.6 + 2.4 * chance));
        let waits = (0..)
            .zip(takes)
            .map(|(id, takes)| wait(&watch, Kind::Attach, id, takes));
        let (median, worst) = summary(join_all(waits).await);
        let (lists, gets) = world(|world| (world.lists, world.gets));
        assert!(lists + gets <= 16, "{count} at once: {lists} lists, {gets} looks");
        assert!(median <= Duration::from_millis(350), "{count} at once: {median:?}");
        assert!(worst <= Duration::from_secs(1), "{count} at once: {worst:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn sequential_operations_cost_about_one_poll_each() {
    let watch = watch();
    let mut free = Instant::now();
    let mut waits = Vec::new();
    // Like Nova at one server: the response to the next request comes when the previous operation has finished.
    for (id, chance) in (0..100).zip(chances()) {
        let takes = Duration::from_secs_f64(0.6 + 0.2 * chance);
        let (watch, answered) = (&watch, free);
        waits.push(async move {
            sleep_until(answered).await;
            wait(watch, Kind::Attach, id, takes).await
        });
        free += takes;
    }
    let (median, worst) = summary(join_all(waits).await);
    let polls = world(|world| world.lists + world.gets);
    assert!(polls <= 175, "{polls}");
    assert!(median <= Duration::from_millis(200), "{median:?}");
    assert!(worst <= Duration::from_secs(1), "{worst:?}");
}

#[tokio::test(start_paused = true)]
async fn attachments_of_any_duration_are_seen_promptly() {
    let watch = watch();
    let mut late = Vec::new();
    // One operation at a time, as in a quiet cluster, with the variance of a real cloud.
    for (id, chance) in (0..300).zip(chances()) {
        let takes = Duration::from_secs_f64(0.9 + 0.5 * chance + if chance > 0.95 { 3.0 } else { 0.0 });
        late.push(wait(&watch, Kind::Attach, id, takes).await);
    }
    let (median, worst) = summary(late);
    assert!(median <= Duration::from_millis(300), "{median:?}");
    assert!(worst <= Duration::from_secs(2), "{worst:?}");
}

#[tokio::test(start_paused = true)]
async fn unlisted_resource_is_polled_before_it_counts_deleted() {
    let watch = watch();
    world(|world| world.ended = None);
    join_all((0..40).map(|id| wait(&watch, Kind::Delete, id, Duration::from_millis(900)))).await;
    let (lists, gets) = world(|world| (world.lists, world.gets));
    assert!((1..=6).contains(&lists), "{lists}");
    assert_eq!(gets, 40, "each is seen to be gone by a look at itself");
}

#[tokio::test(start_paused = true)]
async fn resource_hidden_by_lag_is_not_deleted() {
    let watch = watch();
    // The lists are empty, although the cloud has all of the resources and they have changed.
    world(|world| world.list_mode = ListMode::Forgetful);
    let waits = (0..40).map(|id| wait(&watch, Kind::Attach, id, Duration::from_millis(900)));
    join_all(waits).await;
}

#[tokio::test(start_paused = true)]
async fn unlisted_new_resources_are_not_polled_singly() {
    for count in [40, 100] {
        let watch = watch();
        world(|world| world.unplaced = true);
        // Like a busy scheduler, which places them one after the other.
        let waits = (0..count).map(|id| {
            let watch = &watch;
            async move {
                sleep(Duration::from_millis(100) * id).await;
                wait(
                    watch,
                    Kind::Create,
                    id,
                    Duration::from_millis(800 + 150 * u64::from(id)),
                )
                .await
            }
        });
        let (median, worst) = summary(join_all(waits).await);
        let (lists, gets) = world(|world| (world.lists, world.gets));
        assert!(
            lists + gets <= count as usize * 2 / 3,
            "{count} at once: {lists} lists, {gets} looks"
        );
        assert!(
            median <= Duration::from_millis(1500) && worst <= Duration::from_secs(3),
            "{median:?} {worst:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn attachments_are_prompt_among_long_waits() {
    let watch = watch();
    let creations = (0..60).map(|id| wait(&watch, Kind::Create, id, Duration::from_mins(1)));
    let attachments = (100..140).map(|id| {
        let watch = &watch;
        async move {
            sleep(Duration::from_millis(15_000 + 930 * u64::from(id - 100))).await;
            wait(watch, Kind::Attach, id, Duration::from_millis(1200)).await
        }
    });
    let (_, late) = tokio::join!(join_all(creations), join_all(attachments));
    let (median, worst) = summary(late);
    let polls = world(|world| world.lists + world.gets);
    assert!(worst <= Duration::from_secs(1), "{median:?} {worst:?}");
    assert!(polls <= 110, "{polls}");
}

#[tokio::test(start_paused = true)]
async fn crowd_members_wait_for_shared_list() {
    let watch = watch();
    // A single operation finishes at once. In a crowd it takes longer.
    for id in 1000..1004 {
        wait(&watch, Kind::Attach, id, Duration::ZERO).await;
    }
    world(|world| (world.lists, world.gets) = (0, 0));
    let waits = (0..40).map(|id| {
        let watch = &watch;
        async move {
            sleep(Duration::from_millis(30) * id).await;
            wait(watch, Kind::Attach, id, Duration::from_millis(900)).await
        }
    });
    let (_, worst) = summary(join_all(waits).await);
    let (lists, gets) = world(|world| (world.lists, world.gets));
    // The first waiters arrive before there is a crowd.
    assert!(gets <= 12 && lists <= 10, "{lists} lists, {gets} looks");
    assert!(worst <= Duration::from_secs(1), "{worst:?}");
}

#[tokio::test(start_paused = true)]
async fn cloud_without_change_lists_is_polled_directly() {
    let watch = watch();
    world(|world| world.list_mode = ListMode::Unserved);
    let waits = (0..40).map(|id| wait(&watch, Kind::Attach, id, Duration::from_secs(1)));
    let (_, worst) = summary(join_all(waits).await);
    let (lists, gets) = world(|world| (world.lists, world.gets));
    assert!(lists == 0 && gets <= 80, "{lists} lists, {gets} looks");
    assert!(worst <= Duration::from_secs(1), "{worst:?}");
}

#[tokio::test(start_paused = true)]
async fn minimum_interval_limits_only_own_polls() {
    let watch = watch();
    let started = Instant::now();
    world(|world| world.ends.insert(1000, Some(started + Duration::from_secs(20))));
    let rare = Wait {
        kind: Kind::Detach,
        id: &1000,
        name: None,
        status: None,
        started,
        deadline: started + Duration::from_mins(1),
        at_most_every: Some(Duration::from_secs(3)),
        what: "thing 1000".to_owned(),
    };
    let mut polls = 0;
    watch
        .until(rare, |thing| {
            polls += 1;
            match thing {
                Some(thing) if thing.status == "done" => PollVerdict::Done(Ok(())),
                _ => PollVerdict::Pending,
            }
        })
        .await
        .expect("it ends");
    assert!((6..=7).contains(&polls), "{polls}");
}

#[tokio::test(start_paused = true)]
async fn failed_lists_lead_to_direct_polls() {
    let watch = watch();
    world(|world| world.list_mode = ListMode::Failing);
    let waits = (0..40).map(|id| wait(&watch, Kind::Attach, id, Duration::from_millis(900)));
    let (_, worst) = summary(join_all(waits).await);
    let (lists, gets) = world(|world| (world.lists, world.gets));
    assert!(worst <= Duration::from_secs(1), "{worst:?}");
    assert!((1..=2).contains(&lists) && gets <= 120, "{lists} lists, {gets} polls");
}

#[tokio::test(start_paused = true)]
async fn dead_servers_do_not_delay_others() {
    let watch = watch();
    let healthy = async {
        world(|world| world.list_mode = ListMode::Unserved);
        // The first polls of the dead servers are pending.
        sleep(Duration::from_secs(30)).await;
        let waits = (0..8).map(|id| wait(&watch, Kind::Detach, id, Duration::from_millis(900)));
        summary(join_all(waits).await)
    };
    let dead = (100..164).map(|id| {
        world(|world| world.dead.insert(id));
        wait(&watch, Kind::Detach, id, Duration::from_mins(9))
    });
    let worst = tokio::select! {
        (_, worst) = healthy => worst,
        _ = join_all(dead) => panic!("the dead ones end"),
    };
    assert!(worst <= Duration::from_secs(1), "{worst:?}");
}

/// Waits for a resource with a state that may be older than the request. Returns the result and the duration of the
/// wait.
async fn wait_unchanged(watch: &Watch<Thing>, takes: Option<Duration>) -> (bool, Duration) {
    let started = Instant::now();
    world(|world| world.ends.insert(1, takes.map(|takes| started + takes)));
    let wait = Wait {
        kind: Kind::Attach,
        id: &1,
        name: None,
        status: None,
        started,
        deadline: started + Duration::from_mins(1),
        at_most_every: None,
        what: "thing 1".to_owned(),
    };
    let end = watch.until(wait, |thing| match thing {
        Some(thing) if thing.status == "done" => PollVerdict::Done(Ok(true)),
        _ => PollVerdict::Unchanged(Ok(false)),
    });
    (end.await.expect("it ends"), started.elapsed())
}

#[tokio::test(start_paused = true)]
async fn state_from_before_the_request_proves_nothing() {
    let watch = watch();
    world(|world| world.changed = Timestamp::UNIX_EPOCH);
    let (done, _) = wait_unchanged(&watch, Some(Duration::from_secs(8))).await;
    assert!(done, "an API node lags");
    let (done, took) = wait_unchanged(&watch, None).await;
    assert!(
        !done && took >= TIMING.database_lag && took <= 2 * TIMING.database_lag,
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn state_that_changed_after_the_request_is_news() {
    let watch = watch();
    world(|world| world.changed += Duration::from_mins(1));
    let (done, took) = wait_unchanged(&watch, None).await;
    assert!(!done && took <= Duration::from_secs(3), "{took:?}");
}

#[rstest::rstest]
#[case::clock_behind(850, -1_000, false)]
#[case::just_before(5_000, 4_000, false)]
#[case::after(5_000, 2_000, true)]
#[case::clock_ahead(3_000, -1_000, true)]
fn news_allows_for_rounded_times(#[case] elapsed: u64, #[case] changed: i64, #[case] expected: bool) {
    let changed = SignedDuration::from_millis(changed);
    assert_eq!(is_newer(Duration::from_millis(elapsed), changed), expected);
}
