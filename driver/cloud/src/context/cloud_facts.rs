// SPDX-License-Identifier: Apache-2.0
//! Caches of facts about a cloud: quotas, types, zones, pools.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::block_storage::{Pool, Quotas, VolumeType};
use crate::context::cached_answer::CachedAnswer;
use crate::timing::TIMING;

type Pools = CachedAnswer<Vec<Pool>>;

/// Facts about a cloud that were read recently.
#[derive(Debug)]
pub(crate) struct CloudFactsCache {
    pub(crate) quotas: CachedAnswer<Quotas>,
    pub(crate) types: CachedAnswer<Vec<VolumeType>>,
    pub(crate) zones: CachedAnswer<Vec<String>>,
    /// Each backend with its zone.
    pub(crate) backends: CachedAnswer<HashSet<(String, String)>>,
    /// The pools by volume type; `None` for all pools.
    pools: Mutex<HashMap<Option<String>, Arc<Pools>>>,
    refused: Mutex<Option<Instant>>,
}

impl Default for CloudFactsCache {
    fn default() -> Self {
        Self {
            quotas: CachedAnswer::for_time(TIMING.cloud_facts_ttl),
            types: CachedAnswer::for_time(TIMING.cloud_facts_ttl),
            zones: CachedAnswer::for_time(TIMING.cloud_facts_ttl),
            backends: CachedAnswer::for_time(TIMING.cloud_facts_ttl),
            pools: Mutex::default(),
            refused: Mutex::default(),
        }
    }
}

impl CloudFactsCache {
    pub(crate) fn pools_of(&self, volume_type: Option<&str>) -> Arc<Pools> {
        let mut pools = self.pools.lock();
        let entry = pools.entry(volume_type.map(str::to_owned));
        Arc::clone(entry.or_insert_with(|| Arc::new(CachedAnswer::for_time(TIMING.cloud_facts_ttl))))
    }

    pub(crate) fn is_refused(&self) -> bool {
        let refused = *self.refused.lock();
        refused.is_some_and(|at| at.elapsed() < TIMING.pools_refusal_ttl)
    }

    pub(crate) fn remember_refusal(&self) {
        *self.refused.lock() = Some(Instant::now());
    }
}
