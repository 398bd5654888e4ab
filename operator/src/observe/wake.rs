// SPDX-License-Identifier: Apache-2.0
//! Merges all triggers of a reconcile, and delivers them at most once per [`PACE`].
//!
//! The first change is delivered immediately, and all following changes together after the pace. Waiting for a quiet
//! moment instead would never end in a busy cluster. Senders never wait: a blocked watch would miss events.

use std::{sync::Arc, time::Duration};

use cinder_operator_core::cluster::{Affected, Scope};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

/// Minimum interval between two deliveries.
pub(crate) const PACE: Duration = Duration::from_secs(1);

/// The affected drivers, by the scope of the changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Drivers with changes of any kind.
    pub(crate) whole: Affected,
    /// Drivers with changes of volumes only.
    pub(crate) volumes: Affected,
}

/// Changes that were not delivered yet.
#[derive(Debug, Default)]
struct Pending {
    /// The changes, with the time of the first of them.
    changes: Mutex<Option<(Instant, Changes)>>,
    changed: Notify,
}

/// Sender of changes.
#[derive(Debug, Clone)]
pub(crate) struct ChangeSender(Arc<Pending>);

/// Receiver of changes.
#[derive(Debug)]
pub(crate) struct ChangeReceiver {
    pending: Arc<Pending>,
    last: Option<Instant>,
}

/// Creates a sender and a receiver.
pub(crate) fn change_channel() -> (ChangeSender, ChangeReceiver) {
    let pending = Arc::<Pending>::default();
    let woken = ChangeReceiver {
        pending: Arc::clone(&pending),
        last: None,
    };
    (ChangeSender(pending), woken)
}

impl ChangeSender {
    /// Reports the drivers that a change affected. Never waits.
    pub(crate) fn send(&self, affected: Affected) {
        self.changed(Scope::Whole, affected);
    }

    /// Reports the drivers that a change of this scope affected. Never waits.
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

impl ChangeReceiver {
    /// Waits until changes are due. Returns them with the time of the first change. Cancel-safe: dropping the future
    /// loses nothing.
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
    async fn volume_changes_are_delivered_separately() {
        let (wake, mut woken) = change_channel();
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
    async fn first_change_is_immediate_and_others_are_merged() {
        let (wake, mut woken) = change_channel();
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
    async fn continuous_changes_are_delivered_every_second() {
        let (wake, mut woken) = change_channel();
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
