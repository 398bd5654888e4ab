// SPDX-License-Identifier: Apache-2.0
//! A snapshot or backup of a list.

use std::sync::Arc;

use cinder_cloud::MemorySize;
use csi_proto::csi::v1::{self as csi};

use crate::controller::list_cache;

/// The properties of a snapshot or backup that a list retains.
#[derive(Debug)]
pub(in crate::controller) struct ListedSnapshot {
    /// The accessible topology is added per response.
    pub(super) snapshot: csi::Snapshot,
    /// The zone that the snapshot or its volume has, if it is known.
    pub(super) zone: Option<Arc<str>>,
    /// Whether it can be restored in one zone only. A backup can be restored in any zone.
    pub(super) has_zone: bool,
}

impl MemorySize for ListedSnapshot {
    fn heap_size(&self) -> usize {
        let csi::Snapshot {
            snapshot_id,
            source_volume_id,
            group_snapshot_id,
            ..
        } = &self.snapshot;
        [snapshot_id, source_volume_id, group_snapshot_id]
            .into_iter()
            .map(MemorySize::heap_size)
            .sum::<usize>()
            + self.zone.as_deref().map_or(0, str::len)
    }
}

impl list_cache::Entry for ListedSnapshot {
    fn id(&self) -> &str {
        &self.snapshot.snapshot_id
    }

    fn heap_size(&self) -> usize {
        MemorySize::heap_size(self)
    }
}
