// SPDX-License-Identifier: Apache-2.0
//! Cached lists of the project's volumes and servers, shared by all callers within a few seconds.
//!
//! Sidecars page through these lists repeatedly and concurrently. A change by this process invalidates the list of
//! volumes at once, so that no caller sees a volume that it has just deleted. An expired list is dropped instead of
//! staying in memory until the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::api::block_storage::{BlockStorage, Volume};
use crate::api::compute::{Compute, Server};
use crate::context::Context;
use crate::context::cached_answer::CachedAnswer;
use crate::context::list_cache::ListedVolume;
use crate::error::CloudError;
use crate::http::transport::Transport;
use crate::ids::ServerId;
use crate::last_failure::LastFailure;

/// See [`crate::Cloud::listed_volumes`].
pub(crate) async fn listed_volumes(cx: &Context) -> Result<Arc<Vec<ListedVolume>>, CloudError> {
    let (transport, cached) = (Arc::clone(&cx.transport), Arc::clone(&cx.list_cache.volumes));
    // In a task, which completes the list even if the caller stops waiting.
    let list = LastFailure::spawn(async move { list_volumes(&transport, &cached).await });
    list.await.unwrap_or_else(|error| {
        Err(CloudError::Setup(format!(
            "the list of volumes ended without a result: {error}"
        )))
    })
}

async fn list_volumes(
    transport: &Transport,
    cached: &Arc<CachedAnswer<Vec<ListedVolume>>>,
) -> Result<Arc<Vec<ListedVolume>>, CloudError> {
    let fetch = || async {
        let mut zones: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut shared = |zone: &str| {
            zones.get(zone).cloned().unwrap_or_else(|| {
                let zone: Arc<str> = zone.into();
                zones.insert(Arc::clone(&zone));
                zone
            })
        };
        let slim = |volume: Volume| Some(ListedVolume::from_volume(&volume, &mut shared));
        let mut all = BlockStorage::new(transport).map_all(slim).await?;
        all.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        all.shrink_to_fit();
        cached.evict_later();
        Ok(all)
    };
    cached.get(fetch).await
}

/// See [`crate::Cloud::listed_servers`].
pub(crate) async fn listed_servers(cx: &Context) -> Result<Arc<BTreeMap<ServerId, Server>>, CloudError> {
    let fetch = || async {
        let all = Compute::new(&cx.transport).servers().await?;
        cx.list_cache.servers.evict_later();
        Ok(all.into_iter().map(|server| (server.id.clone(), server)).collect())
    };
    cx.list_cache.servers.get(fetch).await
}
