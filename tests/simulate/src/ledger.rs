// SPDX-License-Identifier: Apache-2.0
//! Records of the clients: volumes, snapshots and attachments that they have requested and that have not ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

/// A resource that a client requested, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResourceState {
    /// It is requested, and no final response has arrived.
    Asked,
    /// It was created with this id.
    Made(String),
    /// It is being deleted; its id.
    Deleting(String),
}

impl ResourceState {
    /// Returns the id, if known.
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Asked => None,
            Self::Made(id) | Self::Deleting(id) => Some(id),
        }
    }
}

/// All records of the clients. A missing resource was never requested, was refused finally, or is deleted. Clones share
/// the same records.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    inner: Arc<Mutex<Book>>,
}

/// The entries.
#[derive(Debug, Clone, Default)]
pub struct Book {
    /// By name.
    pub volumes: BTreeMap<String, ResourceState>,
    /// By name.
    pub snapshots: BTreeMap<String, ResourceState>,
    /// By name.
    pub group_snapshots: BTreeMap<String, ResourceState>,
    /// Volumes of requested group snapshots, by name.
    pub members: BTreeMap<String, Vec<String>>,
    /// Group snapshots with a volume that another group snapshot had too. Cinder refuses a volume that is a member of a
    /// group, but not concurrent additions to two groups.
    pub contested: BTreeSet<String>,
    /// By volume and server: from the first ControllerPublishVolume to the OK of ControllerUnpublishVolume.
    pub attachments: BTreeMap<(String, String), AttachmentState>,
    /// Servers that are not nodes of the cluster.
    pub foreign: BTreeSet<String>,
    /// Volumes that other users changed, and the step of the change.
    pub touched: BTreeMap<String, u64>,
}

/// State of an attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachmentState {
    /// ControllerPublishVolume is running.
    Asked,
    /// ControllerPublishVolume returned OK.
    Made,
    /// ControllerUnpublishVolume is running.
    Leaving,
}

impl Ledger {
    /// Locks the records for reading or writing.
    pub fn book(&self) -> MutexGuard<'_, Book> {
        self.inner.lock()
    }
}
