// SPDX-License-Identifier: Apache-2.0
//! Snapshots of several volumes at one moment, through Cinder's generic groups.
//!
//! Cinder takes such a snapshot only of a group, not of a list of volumes. Only groups of a type with
//! `consistent_group_snapshot_enabled` have snapshots of one moment. For other groups, Cinder takes one snapshot after
//! the other without an error.
//!
//! A volume in a group can neither be deleted nor retyped. The snapshot of a group stays valid when the volumes leave
//! the group, but the group must exist as long as its snapshot. Therefore every group snapshot has its own group: the
//! volumes join it, Cinder takes the snapshot, and the volumes leave at once. The empty group is deleted after its
//! snapshot. If the volumes are already in a group of another client, and the group has no other volumes, the snapshot
//! is taken of that group.
//!
//! The group has the snapshot's name and a mark of this driver in its description. These identify the remains of a
//! killed process.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod members;
pub(crate) mod own;
pub(crate) mod poll;
mod preparation;
mod types;

use crate::api::block_storage::BlockStorage;
use crate::context::Context;
use crate::error::CloudError;
use crate::ids::GroupSnapshotId;
use members::with_members;
pub use types::{GroupSnapshot, NewGroupSnapshot};

/// See [`crate::Cloud::group_snapshot`].
pub(crate) async fn group_snapshot(cx: &Context, id: &GroupSnapshotId) -> Result<Option<GroupSnapshot>, CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    if !id.is_uuid() || !cinder.knows_groups().await? {
        return Ok(None);
    }
    match cinder.group_snapshot(id.as_str()).await? {
        None => Ok(None),
        Some(record) => with_members(cx, &record).await.map(Some),
    }
}
