// SPDX-License-Identifier: Apache-2.0
//! The snapshots that make up a group snapshot.

use super::GroupSnapshot;
use crate::api::block_storage::{BlockStorage, GroupSnapshotRecord};
use crate::context::Context;
use crate::error::CloudError;
use crate::ids::GroupSnapshotId;

/// The group snapshot with its members. Cinder has no filter for them, but they bear its name.
pub(super) async fn with_members(cx: &Context, record: &GroupSnapshotRecord) -> Result<GroupSnapshot, CloudError> {
    let named = BlockStorage::new(&cx.transport)
        .snapshots(&[("name", record.name.clone())])
        .await?;
    let mut snapshots: Vec<_> = named
        .into_iter()
        .filter(|snapshot| snapshot.group_snapshot_id.as_deref() == Some(&record.id))
        .collect();
    snapshots.sort_by(|one, other| one.volume_id.cmp(&other.volume_id));
    Ok(GroupSnapshot {
        id: GroupSnapshotId::new(record.id.clone()),
        created_at: record.created_at.clone(),
        members: snapshots.len(),
        snapshots,
    })
}
