// SPDX-License-Identifier: Apache-2.0
//! What the callers know: which volumes, snapshots and attachments they have asked for and not seen the end of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

/// A thing that a caller asked for, by the name that it gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// It is asked for, and no final answer has come.
    Asked,
    /// It was made: its id.
    Made(String),
    /// It is to be deleted: its id.
    Deleting(String),
}

impl Known {
    /// The id, once it is known.
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Asked => None,
            Self::Made(id) | Self::Deleting(id) => Some(id),
        }
    }
}

/// All that callers know. What is not in here was never asked for, was refused for good, or is deleted. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    inner: Arc<Mutex<Book>>,
}

/// The entries.
#[derive(Debug, Clone, Default)]
pub struct Book {
    /// By name.
    pub volumes: BTreeMap<String, Known>,
    /// By name.
    pub snapshots: BTreeMap<String, Known>,
    /// By name.
    pub group_snapshots: BTreeMap<String, Known>,
    /// Volumes of group snapshots, by the name of each, once it was asked for.
    pub members: BTreeMap<String, Vec<String>>,
    /// The group snapshots with a volume that another one has had as well. Cinder refuses a volume that is in a group, and not one that two
    /// groups get at the same moment.
    pub contested: BTreeSet<String>,
    /// Volume and server: between the first ControllerPublishVolume and the OK of ControllerUnpublishVolume.
    pub attachments: BTreeMap<(String, String), Attached>,
    /// Servers that are no nodes of the cluster.
    pub foreign: BTreeSet<String>,
    /// Volumes that were changed beside the callers, and at which step.
    pub touched: BTreeMap<String, u64>,
}

/// How far an attachment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attached {
    /// ControllerPublishVolume is called.
    Asked,
    /// It answered OK.
    Made,
    /// ControllerUnpublishVolume is called.
    Leaving,
}

impl Ledger {
    /// Reads or writes it.
    pub fn book(&self) -> MutexGuard<'_, Book> {
        self.inner.lock()
    }
}
