// SPDX-License-Identifier: Apache-2.0

use cinder_operator_core::cluster::{OptionalApis, SnapshotContents};
use tokio::time::Instant;

/// The last list of snapshot contents. No watch reports them.
#[derive(Debug, Default)]
pub(crate) struct ClassesMemory {
    pub(crate) snapshot_contents: Option<ListedContents>,
}

/// A list of snapshot contents, with the circumstances in which it is valid.
#[derive(Clone, Debug)]
pub(crate) struct ListedContents {
    pub(crate) contents: SnapshotContents,
    pub(crate) is_wanted: bool,
    pub(crate) apis: OptionalApis,
    pub(crate) at: Instant,
}
