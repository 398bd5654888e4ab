// SPDX-License-Identifier: Apache-2.0
//! A snapshot or backup of a list.

use csi_proto::csi::v1::{self as csi};

use crate::controller::list_cache;

/// The properties of a snapshot or backup that a list retains.
#[derive(Debug)]
pub(in crate::controller) struct ListedSnapshot {
    /// The accessible topology is added per response.
    pub(super) snapshot: csi::Snapshot,
    pub(super) zone: Option<String>,
}

impl list_cache::Entry for ListedSnapshot {
    fn id(&self) -> &str {
        &self.snapshot.snapshot_id
    }
}
