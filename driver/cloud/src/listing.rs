//! All volumes of the project, and all servers that may have them: one list each, shared by all who ask within a few seconds.
//!
//! Sidecars walk these lists again and again, page by page and several at a time. What this process changes makes the kept list
//! out of date at once, so that nobody is told of a volume that he has just seen deleted.

pub(crate) mod kept;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::block_storage::{BlockStorage, Volume};
use crate::cloud::Inner;
use crate::compute::{Compute, Server};
use crate::error::CloudError;
use crate::ids::{ServerId, VolumeId};

impl Inner {
    /// See [`crate::Cloud::listed_volumes`].
    pub(crate) async fn listed_volumes(&self) -> Result<Arc<BTreeMap<VolumeId, Volume>>, CloudError> {
        let ask = || async {
            let all = BlockStorage::new(&self.transport).all(&[], None).await?;
            Ok(all.into_iter().map(|volume| (volume.id.clone(), volume)).collect())
        };
        self.listing.volumes.get(ask).await
    }

    /// See [`crate::Cloud::listed_servers`].
    pub(crate) async fn listed_servers(&self) -> Result<Arc<BTreeMap<ServerId, Server>>, CloudError> {
        let ask = || async {
            let all = Compute::new(&self.transport).servers().await?;
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
