// SPDX-License-Identifier: Apache-2.0
//! Watches that only wake drivers, without an index.

use std::{fmt::Debug, time::Duration};

use cinder_operator_core::cluster::Affected;
use futures::StreamExt;
use kube::{
    Resource,
    api::{ListParams, ObjectMeta},
    runtime::{watcher, watcher::Event},
};
use serde::de::DeserializeOwned;
use tracing::warn;

use super::{
    wake::ChangeSender,
    watch_loop::{WatchHealth, WatchLoop},
};
use crate::kubernetes::{GuardedApi, answer};

/// Pause between two checks whether a namespace may be watched.
const ROLE_PAUSE: Duration = Duration::from_secs(10);

/// Wakes the drivers that the changes of a kind affect, until the task is aborted.
///
/// Each kind has its own watch. The watches of a [`kube::runtime::Controller`] all pause when one of them fails, and
/// the operator may lack its role for one kind.
pub(crate) async fn hear<K>(
    kind: &'static str,
    api: GuardedApi<K>,
    config: watcher::Config,
    (wake, health): (ChangeSender, WatchHealth),
    find: impl Fn(&ObjectMeta) -> Affected + Send,
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    until_allowed(kind, &api).await;
    let events = watcher(api.into_inner(), config).boxed();
    let mut events = WatchLoop::new(kind, kind.to_owned(), events, health);
    while let Some(event) = events.next().await {
        if let Event::InitApply(object) | Event::Apply(object) | Event::Delete(object) = &event {
            wake.send(find(object.meta()));
        }
    }
}

/// Waits until a kind may be listed, because the operator may lack its role. A watch would retry every second, because
/// each retry resets its pause.
pub(super) async fn until_allowed<K>(kind: &str, api: &GuardedApi<K>)
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut is_first = true;
    while let Err(error) = api.list_guarded(&ListParams::default().limit(1)).await {
        if std::mem::take(&mut is_first) {
            warn!(
                kind,
                error = answer(&error),
                "a kind cannot be watched yet; the operator retries"
            );
        }
        tokio::time::sleep(ROLE_PAUSE).await;
    }
}
