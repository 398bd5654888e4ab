//! What was read of a cloud lately.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::block_storage::{Pool, Quotas, VolumeType};
use crate::context::cached::Cached;
use crate::timing::TIMING;

type Pools = Cached<Vec<Pool>>;

/// What was read of a cloud lately.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) quotas: Cached<Quotas>,
    pub(crate) types: Cached<Vec<VolumeType>>,
    pub(crate) zones: Cached<Vec<String>>,
    /// Each backend with its zone.
    pub(crate) backends: Cached<HashSet<(String, String)>>,
    /// By type; `None` for all pools.
    pools: Mutex<HashMap<Option<String>, Arc<Pools>>>,
    refused: Mutex<Option<Instant>>,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            quotas: Cached::for_time(TIMING.cloud_facts_ttl),
            types: Cached::for_time(TIMING.cloud_facts_ttl),
            zones: Cached::for_time(TIMING.cloud_facts_ttl),
            backends: Cached::for_time(TIMING.cloud_facts_ttl),
            pools: Mutex::default(),
            refused: Mutex::default(),
        }
    }
}

impl Known {
    pub(crate) fn pools_of(&self, volume_type: Option<&str>) -> Arc<Pools> {
        let mut pools = self.pools.lock();
        let entry = pools.entry(volume_type.map(str::to_owned));
        Arc::clone(entry.or_insert_with(|| Arc::new(Cached::for_time(TIMING.cloud_facts_ttl))))
    }

    pub(crate) fn is_refused(&self) -> bool {
        let refused = *self.refused.lock();
        refused.is_some_and(|at| at.elapsed() < TIMING.pools_refusal_ttl)
    }

    pub(crate) fn remember_refusal(&self) {
        *self.refused.lock() = Some(Instant::now());
    }
}
