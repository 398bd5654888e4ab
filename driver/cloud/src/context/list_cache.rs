// SPDX-License-Identifier: Apache-2.0
//! The cached lists of volumes and servers.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cached_answer::CachedAnswer;
use crate::api::block_storage::{Source, Volume};
use crate::api::compute::Server;
use crate::ids::{GiB, ServerId, VolumeId};
use crate::memory_size::memory_size;
use crate::timing::TIMING;

/// The facts about a volume in a cached list. It is small, because lists of many thousands of volumes stay in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedVolume {
    pub id: VolumeId,
    pub size: GiB,
    /// The availability zone of Cinder. The volumes of one list share one string per zone.
    pub zone: Option<Arc<str>>,
    /// The source from which Cinder created the volume.
    pub source: Option<Source>,
    /// The servers to which it is attached.
    pub servers: Box<[ServerId]>,
}

impl ListedVolume {
    pub(crate) fn from_volume(volume: &Volume, zone: impl FnOnce(&str) -> Arc<str>) -> Self {
        Self {
            id: volume.id.clone(),
            size: volume.size,
            zone: volume.availability_zone.as_deref().map(zone),
            source: volume.source(),
            servers: volume.servers().into(),
        }
    }
}

memory_size!(ListedVolume {
    id,
    size,
    zone,
    source,
    servers,
});

impl From<&Volume> for ListedVolume {
    fn from(volume: &Volume) -> Self {
        Self::from_volume(volume, |zone| zone.into())
    }
}

#[derive(Debug)]
pub(crate) struct ListCache {
    pub(crate) volumes: Arc<CachedAnswer<Vec<ListedVolume>>>,
    pub(crate) servers: Arc<CachedAnswer<BTreeMap<ServerId, Server>>>,
}

impl Default for ListCache {
    fn default() -> Self {
        Self {
            volumes: Arc::new(CachedAnswer::for_time(TIMING.volume_list_ttl)),
            servers: Arc::new(CachedAnswer::for_time(TIMING.server_list_ttl)),
        }
    }
}
