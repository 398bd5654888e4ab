//! All volumes of the project, and all servers that may have them: one list each, shared by all who ask within a few seconds.
//!
//! Sidecars walk these lists again and again, several at a time. What this process changes makes the kept list out of date at once, so
//! that no caller is shown a volume that it has just seen deleted. A list that is out of date is dropped, not kept until the next one.

pub(crate) mod kept;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::block_storage::{BlockStorage, Source, Volume};
use crate::cloud::Inner;
use crate::compute::{Compute, Server};
use crate::error::CloudError;
use crate::ids::{GiB, ServerId, VolumeId};

/// What a list tells of a volume. Small, because lists of many thousands of volumes are kept for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedVolume {
    /// Its id.
    pub id: VolumeId,
    /// Its size.
    pub size: GiB,
    /// The availability zone of Cinder; volumes of one list share its name.
    pub zone: Option<Arc<str>>,
    /// What it was made from.
    pub source: Option<Source>,
    /// The servers that have it.
    pub servers: Box<[ServerId]>,
}

impl ListedVolume {
    fn of(volume: &Volume, zone: impl FnOnce(&str) -> Arc<str>) -> Self {
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

impl Inner {
    /// See [`crate::Cloud::listed_volumes`].
    pub(crate) async fn listed_volumes(&self) -> Result<Arc<Vec<ListedVolume>>, CloudError> {
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
            let mut all = BlockStorage::new(&self.transport).map_all(slim).await?;
            all.sort_unstable_by(|one, other| one.id.cmp(&other.id));
            all.shrink_to_fit();
            self.listing.evict_volumes_later();
            Ok(all)
        };
        self.listing.volumes.get(ask).await
    }

    /// See [`crate::Cloud::listed_servers`].
    pub(crate) async fn listed_servers(&self) -> Result<Arc<BTreeMap<ServerId, Server>>, CloudError> {
        let ask = || async {
            let all = Compute::new(&self.transport).servers().await?;
            self.listing.evict_servers_later();
            Ok(all.into_iter().map(|server| (server.id.clone(), server)).collect())
        };
        self.listing.servers.get(ask).await
    }

    /// Does what makes, removes, attaches, detaches or changes a volume. The next list is a new one, whatever came of it.
    pub(crate) async fn then_list_anew<T>(&self, change: impl Future<Output = T>) -> T {
        let changed = change.await;
        self.listing.volumes.forget();
        changed
    }
}
