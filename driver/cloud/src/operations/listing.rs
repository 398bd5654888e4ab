// SPDX-License-Identifier: Apache-2.0
//! All volumes of the project, and all servers that may have them: one list each, shared by all who ask within a few seconds.
//!
//! Sidecars walk these lists again and again, several at a time. What this process changes makes the kept list out of date at once, so
//! that no caller is shown a volume that it has just seen deleted. A list that is out of date is dropped, not kept until the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::api::block_storage::{BlockStorage, Volume};
use crate::api::compute::{Compute, Server};
use crate::context::Context;
use crate::context::list_cache::ListedVolume;
use crate::error::CloudError;
use crate::ids::ServerId;

/// See [`crate::Cloud::listed_volumes`].
pub(crate) async fn listed_volumes(cx: &Context) -> Result<Arc<Vec<ListedVolume>>, CloudError> {
    let ask = || async {
        let mut zones: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut shared = |zone: &str| {
            zones.get(zone).cloned().unwrap_or_else(|| {
                let zone: Arc<str> = zone.into();
                zones.insert(Arc::clone(&zone));
                zone
            })
        };
        let slim = |volume: Volume| Some(ListedVolume::of(&volume, &mut shared));
        let mut all = BlockStorage::new(&cx.transport).map_all(slim).await?;
        all.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        all.shrink_to_fit();
        cx.list_cache.evict_volumes_later();
        Ok(all)
    };
    cx.list_cache.volumes.get(ask).await
}

/// See [`crate::Cloud::listed_servers`].
pub(crate) async fn listed_servers(cx: &Context) -> Result<Arc<BTreeMap<ServerId, Server>>, CloudError> {
    let ask = || async {
        let all = Compute::new(&cx.transport).servers().await?;
        cx.list_cache.evict_servers_later();
        Ok(all.into_iter().map(|server| (server.id.clone(), server)).collect())
    };
    cx.list_cache.servers.get(ask).await
}
