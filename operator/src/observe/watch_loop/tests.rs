// SPDX-License-Identifier: Apache-2.0
//! Failures of a watch that never ends.

use cinder_operator_core::cluster::VolumeObject;
use futures::channel::mpsc;
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::observe::change_channel;

type Events = mpsc::UnboundedSender<watcher::Result<Event<GuardedObject<VolumeObject>>>>;

const KIND: &str = "persistentvolumes";

fn mk_loop() -> (WatchLoop<VolumeObject>, Events, WatchHealth) {
    let (sender, events) = mpsc::unbounded();
    let health = WatchHealth::new(change_channel().0, Arc::new(Metrics::new().expect("metrics")));
    let events = WatchLoop::new(KIND, KIND.to_owned(), events.boxed(), health.clone());
    (events, sender, health)
}

fn send(sender: &Events, event: watcher::Result<Event<GuardedObject<VolumeObject>>>) {
    sender.unbounded_send(event).expect("it is followed");
}

/// Polls for an hour at most, until no event follows.
async fn drain(events: &mut WatchLoop<VolumeObject>) {
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_hours(1), events.next()).await {}
}

fn failing_watches(health: &WatchHealth) -> Option<f64> {
    let families = health.metrics.registry().gather();
    let family = families
        .iter()
        .find(|family| family.name().ends_with("_failing_watches"))?;
    Some(family.get_metric().first()?.get_gauge().get_value())
}

fn refusal(code: u16) -> kube::Error {
    let status = json!({"code": code, "message": "no such right", "reason": "Forbidden", "status": "Failure"});
    kube::Error::Api(Box::new(serde_json::from_value(status).expect("a status")))
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_while_lists_begin_again() {
    let health = WatchHealth::new(change_channel().0, Arc::new(Metrics::new().expect("metrics")));
    let tries = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&tries);
    let failing = futures::stream::iter(0_u32..).map(move |number| {
        if number % 2 == 0 {
            return Ok(Event::Init);
        }
        *counted.lock() += 1;
        Err(Error::InitialListFailed(refusal(500)))
    });
    let mut events: WatchLoop<VolumeObject> = WatchLoop::new(KIND, KIND.to_owned(), failing.boxed(), health);

    let forever = async { while events.next().await.is_some() {} };
    let ended = tokio::time::timeout(Duration::from_mins(10), forever).await;

    assert!(ended.is_err());
    let tries = *tries.lock();
    assert!((10..=20).contains(&tries), "{tries} lists in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn failing_watch_is_reported_until_it_lists() {
    let (mut events, sender, health) = mk_loop();
    for failure in 1..=LASTING {
        assert_eq!(health.failing(), [""; 0], "after {} failures", failure - 1);
        send(&sender, Ok(Event::Init));
        send(&sender, Err(Error::InitialListFailed(refusal(403))));
        let next = tokio::time::timeout(Duration::from_mins(1), events.next());
        next.await.expect("an event");
        let none = tokio::time::timeout(Duration::from_millis(1), events.next()).await;
        assert!(none.is_err());
    }
    assert_eq!(failing_watches(&health), Some(1.0));
    let failing = health.failing();
    assert!(
        failing[0].starts_with("persistentvolumes: Forbidden: no such right; check that"),
        "{failing:?}"
    );
    assert!(health.describe(&[KIND]).contains("no such right"));

    send(&sender, Ok(Event::Init));
    send(&sender, Ok(Event::InitDone));
    drain(&mut events).await;
    assert_eq!(health.failing(), [""; 0]);
    assert_eq!(failing_watches(&health), Some(0.0));
    assert_eq!(health.describe(&[KIND]), "persistentvolumes are not listed yet");
}

#[tokio::test(start_paused = true)]
async fn resumed_watch_recovers_without_an_event() {
    let (mut events, sender, health) = mk_loop();
    send(&sender, Ok(Event::Init));
    send(&sender, Ok(Event::InitDone));
    for _ in 0..LASTING {
        send(&sender, Err(Error::WatchStartFailed(refusal(500))));
    }
    let still = tokio::time::timeout(Duration::from_mins(1), async { while events.next().await.is_some() {} });
    assert!(still.await.is_err());
    assert_eq!(health.failing().len(), 1);
    drain(&mut events).await;
    assert_eq!(health.failing(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn single_failures_are_not_reported() {
    let (mut events, sender, health) = mk_loop();
    for _ in 0..3 * LASTING {
        send(&sender, Ok(Event::Init));
        send(&sender, Ok(Event::InitDone));
        drain(&mut events).await;
        send(&sender, Err(Error::NoResourceVersion));
        drain(&mut events).await;
        assert_eq!(health.failing(), [""; 0]);
    }
}

#[rstest]
#[case::refused(Error::InitialListFailed(refusal(403)), true)]
#[case::broken(Error::InitialListFailed(refusal(500)), false)]
#[case::undecodable(Error::WatchFailed(kube::Error::LinesCodecMaxLineLengthExceeded), false)]
#[case::without_version(Error::NoResourceVersion, false)]
fn only_a_refusal_is_about_rights(#[case] error: Error, #[case] expected: bool) {
    let cause = cause_of(KIND, &error);
    assert_eq!(cause.contains("ClusterRole"), expected, "{cause}");
    assert!(!cause.is_empty() && cause.chars().count() <= LONGEST_CAUSE);
}

fn index_age(health: &WatchHealth) -> Option<f64> {
    let families = health.metrics.registry().gather();
    let family = families
        .iter()
        .find(|family| family.name().ends_with("_index_age_seconds"))?;
    Some(family.get_metric().first()?.get_gauge().get_value())
}

#[tokio::test(start_paused = true)]
async fn age_of_index_grows_until_it_is_complete() {
    let (mut events, sender, health) = mk_loop();
    send(&sender, Ok(Event::Init));
    drain(&mut events).await;
    assert_eq!(index_age(&health), Some(3600.0), "its first list stalls");
    send(&sender, Ok(Event::InitDone));
    drain(&mut events).await;
    assert_eq!(index_age(&health), Some(0.0));

    send(&sender, Err(Error::WatchStartFailed(refusal(500))));
    let minute = tokio::time::timeout(Duration::from_mins(1), events.next()).await;
    assert!(minute.is_err());
    assert_eq!(index_age(&health), Some(60.0));
    drain(&mut events).await;
    assert_eq!(index_age(&health), Some(0.0), "no failure followed");
}

#[tokio::test(start_paused = true)]
async fn ended_watch_is_not_reported() {
    let (mut events, sender, health) = mk_loop();
    for _ in 0..LASTING {
        send(&sender, Err(Error::InitialListFailed(refusal(404))));
    }
    let minute = tokio::time::timeout(Duration::from_mins(1), events.next()).await;
    assert!(minute.is_err());
    assert_eq!(health.failing().len(), 1);
    drop(events);
    assert_eq!(health.failing(), [""; 0]);
    assert_eq!((failing_watches(&health), index_age(&health)), (Some(0.0), None));
}
