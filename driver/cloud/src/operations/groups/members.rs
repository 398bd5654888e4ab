// SPDX-License-Identifier: Apache-2.0
//! The member snapshots of a group snapshot.

use std::collections::BTreeSet;

use super::types::GroupSnapshot;
use crate::api::block_storage::{BlockStorage, GroupSnapshotRecord, Snapshot};
use crate::context::Context;
use crate::error::CloudError;
use crate::ids::{GroupSnapshotId, SnapshotId};
use crate::operations::groups::own::cluster_of;

/// Gets the group snapshot with its members. Cinder has no filter for members, but they have its name.
pub(super) async fn with_members(cx: &Context, record: &GroupSnapshotRecord) -> Result<GroupSnapshot, CloudError> {
    let is_member = |snapshot: &Snapshot| snapshot.group_snapshot_id.as_deref() == Some(&record.id);
    let named = [("name", record.name.clone())];
    let cinder = BlockStorage::new(&cx.transport);
    let mut snapshots = cinder
        .snapshots(&named, |listed| Some(listed).filter(is_member))
        .await?;
    snapshots.sort_by(|one, other| one.volume_id.cmp(&other.volume_id));
    Ok(GroupSnapshot {
        id: GroupSnapshotId::new(record.id.clone()),
        created_at: record.created_at.clone(),
        snapshots,
        cluster: cluster_of(&record.description).map(str::to_owned),
    })
}

/// Fails with [`CloudError::OtherMembers`] unless every member is named and every other named snapshot is missing. An
/// interrupted deletion may have removed such a snapshot.
pub(super) async fn refuse_other_members(
    cx: &Context,
    id: &GroupSnapshotId,
    members: &BTreeSet<SnapshotId>,
    named: &BTreeSet<SnapshotId>,
) -> Result<(), CloudError> {
    let mut differ = !members.is_subset(named);
    for missing in named.difference(members).filter(|missing| missing.is_uuid()) {
        differ = differ || BlockStorage::new(&cx.transport).snapshot(missing).await?.is_some();
    }
    if differ {
        return Err(CloudError::OtherMembers {
            id: id.clone(),
            members: members.iter().cloned().collect(),
        });
    }
    Ok(())
}
