// SPDX-License-Identifier: Apache-2.0
//! The lists that are kept, and for how long.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cached_answer::CachedAnswer;
use crate::api::block_storage::{Source, Volume};
use crate::api::compute::Server;
use crate::ids::{GiB, ServerId, VolumeId};
use crate::timing::TIMING;

/// What a list tells of a volume. Small, because lists of many thousands of volumes are kept for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedVolume {
    pub id: VolumeId,
    pub size: GiB,
    /// The availability zone of Cinder; volumes of one list share its name.
    pub zone: Option<Arc<str>>,
    /// What it was made from.
    pub source: Option<Source>,
    /// The servers that have it.
    pub servers: Box<[ServerId]>,
}

impl ListedVolume {
    pub(crate) fn of(volume: &Volume, zone: impl FnOnce(&str) -> Arc<str>) -> Self {
        Self {
            id: volume.id.clone(),
            size: volume.size,
            zone: volume.availability_zone.as_deref().map(zone),
            source: volume.source(),
            servers: volume.servers().into(),
        }
    }
}

impl From<&Volume> for ListedVolume {
    fn from(volume: &Volume) -> Self {
        Self::of(volume, |zone| zone.into())
    }
}

/// The lists that are kept.
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
