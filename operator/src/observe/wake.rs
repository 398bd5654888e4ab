// SPDX-License-Identifier: Apache-2.0
//! Where all that calls for a reconcile comes together: it is merged, and passed on at most once in [`PACE`].
//!
//! The first change is passed on at once and what comes right behind it a little later, however many there are: a wait for a moment
//! without changes would never end in a busy cluster. Nobody who reports a change ever waits here: a watch that stood still would
//! miss what it is there for.

use std::{sync::Arc, time::Duration};

use cinder_operator_core::cluster::{Affected, Scope};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

/// The shortest time between two wake-ups.
pub(crate) const PACE: Duration = Duration::from_secs(1);

/// Whom changes concern, by what has to be looked at.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Everything.
    pub(crate) whole: Affected,
    /// Volumes only.
    pub(crate) volumes: Affected,
}

/// What has changed and was not passed on yet.
#[derive(Debug, Default)]
struct Pending {
    /// With the time of the first of them.
    changes: Mutex<Option<(Instant, Changes)>>,
    changed: Notify,
}

/// Reports changes.
#[derive(Debug, Clone)]
pub(crate) struct Wake(Arc<Pending>);

/// Passes changes on.
#[derive(Debug)]
pub(crate) struct Woken {
    pending: Arc<Pending>,
    last: Option<Instant>,
}

/// The two ends.
pub(crate) fn wake_ups() -> (Wake, Woken) {
    let pending = Arc::<Pending>::default();
    let woken = Woken {
        pending: Arc::clone(&pending),
        last: None,
    };
    (Wake(pending), woken)
}

impl Wake {
    /// Reports what a change affected. Never waits.
    pub(crate) fn send(&self, affected: Affected) {
        self.changed(Scope::Whole, affected);
    }

    /// The same, with what has to be looked at.
    pub(crate) fn changed(&self, scope: Scope, affected: Affected) {
        if affected.is_empty() {
            return;
        }
        let mut changes = self.0.changes.lock();
        let (_, changes) = changes.get_or_insert_with(|| (Instant::now(), Changes::default()));
        let of_scope = match scope {
            Scope::Whole => &mut changes.whole,
            Scope::Volumes => &mut changes.volumes,
        };
        *of_scope = std::mem::take(of_scope).and(affected);
        self.0.changed.notify_one();
    }

    /// Reports a change that affected one driver.
    #[cfg(test)]
    fn driver(&self, name: &str) {
        self.send(Affected::Drivers(std::collections::BTreeSet::from([name.to_owned()])));
    }
}

impl Woken {
    /// Waits for changes, and for their time; with when the first of them came. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> (Instant, Changes) {
        if let Some(last) = self.last {
            tokio::time::sleep_until(last + PACE).await;
        }
        loop {
            let taken = self.pending.changes.lock().take();
            if let Some(taken) = taken {
                self.last = Some(Instant::now());
                return taken;
            }
            self.pending.changed.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> Changes {
        Changes {
            whole: drivers(names),
            ..Changes::default()
        }
    }

    fn drivers(names: &[&str]) -> Affected {
        Affected::Drivers(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[tokio::test]
    async fn what_concerns_volumes_only_stays_apart() {
        let (wake, mut woken) = wake_ups();
        wake.changed(Scope::Volumes, drivers(&["a"]));
        wake.driver("b");
        wake.changed(Scope::Volumes, drivers(&["c"]));
        let changes = Changes {
            whole: drivers(&["b"]),
            volumes: drivers(&["a", "c"]),
        };
        assert_eq!(woken.next().await.1, changes);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_change_is_passed_on_at_once_and_the_next_ones_together() {
        let (wake, mut woken) = wake_ups();
        let begun = Instant::now();
        wake.driver("a");
        assert_eq!(woken.next().await.1, of(&["a"]));
        assert_eq!(begun.elapsed(), Duration::ZERO);
        wake.driver("b");
        wake.send(Affected::default());
        tokio::time::sleep(PACE / 4).await;
        wake.driver("c");
        let (first, changes) = woken.next().await;
        assert_eq!(changes, of(&["b", "c"]));
        assert_eq!((begun.elapsed(), first), (PACE, begun));
    }

    #[tokio::test(start_paused = true)]
    async fn changes_without_a_pause_are_passed_on_in_every_second() {
        let (wake, mut woken) = wake_ups();
        let begun = Instant::now();
        tokio::spawn(async move {
            loop {
                wake.driver("a");
                tokio::time::sleep(PACE / 4).await;
            }
        });
        for second in 0..120 {
            assert_eq!(woken.next().await.1, of(&["a"]));
            assert!(begun.elapsed() <= PACE * (second + 1), "{:?}", begun.elapsed());
        }
        assert!(begun.elapsed() >= PACE * 119, "{:?}", begun.elapsed());
    }
}
