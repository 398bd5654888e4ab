// SPDX-License-Identifier: Apache-2.0
//! Group snapshots whose members an earlier version of this driver took one by one: they are found, shown and deleted, and no more are
//! taken, for a group snapshot is of one moment.
//!
//! Cinder knows nothing of such a group. Its id follows from its name, and every member bears it, with the number of members, in its
//! metadata.

use std::collections::BTreeSet;

use futures::StreamExt;
use futures::stream;
use sha2::{Digest, Sha256};

use super::{GroupSnapshot, PARALLEL};
use crate::api::block_storage::{BlockStorage, Snapshot};
use crate::context::Context;
use crate::error::{CloudError, ObjectKind};
use crate::ids::{GroupSnapshotId, SnapshotId};
use crate::metadata_keys;
use crate::operations::snapshots::delete::delete_snapshot;

/// The version of the UUIDs that are made of names. Those that Cinder gives are random ones, of version 4.
const OWN_VERSION: usize = 8;

/// The id of the group of this name.
pub(super) fn id_of(name: &str) -> GroupSnapshotId {
    let digest = Sha256::digest(name.as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    let id = uuid::Builder::from_custom_bytes(bytes).into_uuid();
    GroupSnapshotId::new(id.hyphenated().to_string())
}

/// Whether an id is one of ours, of which Cinder has no object.
pub(super) fn is_own_id(id: &GroupSnapshotId) -> bool {
    id.is_uuid() && uuid::Uuid::try_parse(id.as_str()).is_ok_and(|id| id.get_version_num() == OWN_VERSION)
}

/// How many members the group has, as its member tells.
fn expected(member: &Snapshot) -> usize {
    let told = member.metadata.get(metadata_keys::GROUP_SNAPSHOT_MEMBERS);
    told.and_then(|told| told.parse().ok()).unwrap_or(usize::MAX)
}

/// The group with the members that are there; `None` when there is none.
pub(super) async fn one_by_one(cx: &Context, id: &GroupSnapshotId) -> Result<Option<GroupSnapshot>, CloudError> {
    let members = members_of(cx, id).await?;
    Ok((!members.is_empty()).then(|| of_members(id.clone(), members)))
}

/// Deletes all members and waits until they are gone. Where `named` are named, no other one may be there.
pub(super) async fn delete_one_by_one(
    cx: &Context,
    id: &GroupSnapshotId,
    named: &BTreeSet<SnapshotId>,
) -> Result<(), CloudError> {
    let members: BTreeSet<SnapshotId> = members_of(cx, id).await?.into_iter().map(|member| member.id).collect();
    if members.is_empty() {
        return Ok(());
    }
    refuse_other_members(cx, id, &members, named).await?;
    let deleted = stream::iter(members)
        .map(|member| async move { delete_snapshot(cx, &member).await })
        .buffered(PARALLEL);
    // As many as possible, whatever becomes of some.
    let deleted: Vec<Result<(), CloudError>> = deleted.collect().await;
    deleted.into_iter().collect()
}

/// [`CloudError::OtherMembers`] unless the group has no member but those that are named, and those that are missing are gone:
/// an earlier deletion may have been cut short.
pub(super) async fn refuse_other_members(
    cx: &Context,
    id: &GroupSnapshotId,
    members: &BTreeSet<SnapshotId>,
    named: &BTreeSet<SnapshotId>,
) -> Result<(), CloudError> {
    if named.is_empty() {
        return Ok(());
    }
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

/// Refuses to cut together what was taken one by one under the same name.
pub(super) async fn refuse_taken_one_by_one(cx: &Context, name: &str) -> Result<(), CloudError> {
    let id = id_of(name);
    if members_of(cx, &id).await?.is_empty() {
        return Ok(());
    }
    Err(CloudError::SnapshotExists {
        kind: ObjectKind::GroupSnapshot,
        id: id.to_string(),
        name: name.to_owned(),
        difference: "its members were taken one by one, and snapshots of one moment are wanted".to_owned(),
    })
}

async fn members_of(cx: &Context, id: &GroupSnapshotId) -> Result<Vec<Snapshot>, CloudError> {
    let cinder = BlockStorage::new(&cx.transport);
    cinder
        .marked_snapshots(metadata_keys::GROUP_SNAPSHOT, id.as_str())
        .await
}

fn of_members(id: GroupSnapshotId, mut snapshots: Vec<Snapshot>) -> GroupSnapshot {
    snapshots.sort_by(|one, other| one.volume_id.cmp(&other.volume_id));
    let earliest = snapshots.iter().map(|member| &member.created_at).min();
    GroupSnapshot {
        id,
        // What was written before this is in all of them.
        created_at: earliest.cloned().unwrap_or_default(),
        members: snapshots.iter().map(expected).max().unwrap_or_default(),
        snapshots,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_name_is_always_the_same_and_none_that_cinder_gives() {
        let id = id_of("groupsnapshot-1");
        assert_eq!(id, id_of("groupsnapshot-1"));
        assert_ne!(id, id_of("groupsnapshot-2"));
        assert!(is_own_id(&id), "{id}");
        for other in [&csi_sources::Sources::system().uuid().to_string(), "no-uuid", ""] {
            assert!(!is_own_id(&GroupSnapshotId::new(other)), "{other}");
        }
    }
}
