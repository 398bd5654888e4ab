// SPDX-License-Identifier: Apache-2.0
//! A snapshot or backup of a list.

use csi_proto::csi::v1::{self as csi};

use crate::controller::walk::{self};

/// What a list has of a snapshot or a backup.
#[derive(Debug)]
pub(in crate::controller) struct ListedSnapshot {
    /// Without its topology.
    pub(super) snapshot: csi::Snapshot,
    pub(super) zone: Option<String>,
}

impl walk::Entry for ListedSnapshot {
    fn id(&self) -> &str {
        &self.snapshot.snapshot_id
    }
}
